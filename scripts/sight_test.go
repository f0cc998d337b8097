package scripts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// start runs sight.sh with a program that runs some lines in place of the download, and returns what it says.
func start(t *testing.T, dest, lines string) string {
	t.Helper()
	program := dest + ".program"
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"+lines+"\n"), 0o700))
	out, err := exec.CommandContext(t.Context(), "./sight.sh", program, dest).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// TestSightWaitsOnce: a download that hangs costs the first start 20 s, and the next ones nothing.
func TestSightWaitsOnce(t *testing.T) {
	programs, dest := t.TempDir(), filepath.Join(t.TempDir(), "sight")
	waits := filepath.Join(programs, "waits")
	require.NoError(t, os.WriteFile(filepath.Join(programs, "sleep"), []byte("#!/bin/sh\necho $1 >>"+waits+"\n"), 0o700))
	slept := func() (seconds int) {
		text, _ := os.ReadFile(waits) // there is none before the first wait
		for s := range strings.FieldsSeq(string(text)) {
			n, err := strconv.Atoi(s)
			require.NoError(t, err)
			seconds += n
		}
		return seconds
	}
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	for i, says := range []string{"the download goes on in the background", "fetching them in the background", "fetching them in the background"} {
		pid := filepath.Join(programs, "pid"+strconv.Itoa(i))
		require.Contains(t, start(t, dest, "echo $$ $* >"+pid+"\nexec "+sleep+" 600"), says)
		require.Equal(t, 20, slept())
		require.FileExists(t, dest+".tried")
		var words []string
		require.Eventually(t, func() bool {
			text, _ := os.ReadFile(pid) // the program has just begun
			words = strings.Fields(string(text))
			return len(words) == 5
		}, time.Minute, time.Millisecond)
		require.Equal(t, []string{"models", "pull", "sight", dest}, words[1:])
		n, err := strconv.Atoi(words[0])
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(n, syscall.SIGKILL), "it still runs")
	}
}

// TestSightFails: the reason is said at once, and the next starts fetch in the background until the networks are here.
func TestSightFails(t *testing.T) {
	dest := filepath.Join(t.TempDir(), "sight")
	require.Contains(t, start(t, dest, "echo first\necho 'no route to the registry' >&2\nexit 1"),
		"not fetched, so the scene engine comments: no route to the registry")
	require.FileExists(t, dest+".tried")
	require.Contains(t, start(t, dest, "touch "+dest+".began"), "fetching them in the background")
	require.Eventually(t, func() bool {
		_, err := os.Stat(dest + ".began")
		return err == nil
	}, time.Minute, time.Millisecond)

	require.NoError(t, os.Remove(dest+".tried"))
	require.NotContains(t, start(t, dest, "mkdir $4\necho {} >$4/sight.json"), "not")
	require.NoFileExists(t, dest+".tried")
	require.NoFileExists(t, dest+".log")
	require.Empty(t, start(t, dest, "touch $4/again"))
	require.NoFileExists(t, dest+"/again")
}
