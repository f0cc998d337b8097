package convert_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/models"
	"touchline/models/convert"
	"touchline/models/disk"
)

// victim is the variable with the destination of a child process, which converts
// half of a checkpoint and waits to be killed.
const victim = "CONVERT_TEST_VICTIM"

func TestMain(m *testing.M) {
	if dst := os.Getenv(victim); dst != "" {
		os.Exit(beVictim(dst))
	}
	goleak.VerifyTestMain(m)
}

func beVictim(dst string) int {
	src, err := tinySource()
	if err != nil {
		return 1
	}
	calls := 0
	err = convert.Convert(context.Background(), src, dst, convert.Options{Progress: func(convert.Progress) {
		if calls++; calls == 20 {
			_, _ = os.Stdout.WriteString("halfway\n")
			select {}
		}
	}})
	if err != nil {
		return 1
	}
	return 0
}

func TestKilledConversion(t *testing.T) {
	dst := filepath.Join(t.TempDir(), "x")
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), victim+"="+dst)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "halfway\n", line)

	require.NoDirExists(t, dst)
	require.ErrorIs(t, convert.Convert(t.Context(), tiny(t), dst, convert.Options{}), disk.ErrLocked)
	require.NoError(t, child.Process.Kill())
	require.Error(t, child.Wait())

	require.NoDirExists(t, dst)
	left, err := os.ReadDir(filepath.Join(filepath.Dir(dst), ".x.partial"))
	require.NoError(t, err)
	require.NotEmpty(t, left)
	o := convert.Options{Weights: []models.Weights{models.WeightsFloat16}} // the quickest
	require.NoError(t, convert.Convert(t.Context(), tiny(t), dst, o), "the leftovers are removed")
	b, err := models.OpenBundle(dst)
	require.NoError(t, err)
	require.NoError(t, disk.Verify(t.Context(), b, nil))
	entries, err := os.ReadDir(filepath.Dir(dst))
	require.NoError(t, err)
	require.Len(t, entries, 1)
}
