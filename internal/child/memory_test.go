package child

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// limitMemory sets the memory of this process and all programs for a test, and what this process uses of it.
func limitMemory(t *testing.T, limit, own uint64) {
	t.Helper()
	set := func(l, o func() uint64) (limit, own func() uint64) {
		all.mu.Lock()
		defer all.mu.Unlock()
		limit, own, all.limit, all.own = all.limit, all.own, l, o
		return limit, own
	}
	beforeLimit, beforeOwn := set(func() uint64 { return limit }, func() uint64 { return own })
	t.Cleanup(func() { set(beforeLimit, beforeOwn) })
}

// TestMemoryOfAll: programs and scripts want ten times what all may use together. The largest end and say why; a small one runs
// on, and so do as many as fit.
func TestMemoryOfAll(t *testing.T) {
	const budget, each, many = 80 << 20, 40 << 20, 20
	limitMemory(t, 2*budget, budget)
	_, _, before := Memory()
	script := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\nx=$(head -c %d /dev/zero | tr '\\0' x)\nsleep 600\n", each), 0o755))
	small := exec.CommandContext(t.Context(), "/bin/sleep", "600")
	wait, err := Start(small, Limits{})
	require.NoError(t, err)

	var running sync.WaitGroup
	ends := make(chan error, many)
	for i := range many {
		cmd, l, env := exec.CommandContext(t.Context(), script), Limits{Read: []string{script}}, []string(nil)
		if i%2 == 0 {
			cmd, l, env = exec.CommandContext(t.Context(), self(t)), Limits{Memory: 1 << 47}, []string{"TRY=allocate", fmt.Sprint("BYTES=", each)}
		}
		running.Go(func() {
			_, _, err := Run(cmd, l, 0, env...)
			ends <- err
		})
	}
	require.Eventually(t, func() bool {
		used, most, ended := Memory()
		return ended-before >= many-budget/each && used <= most && most == budget && used > budget-each*3/2
	}, time.Minute, lookEvery)
	require.Less(t, len(ends), many)
	require.NoError(t, unix.Kill(small.Process.Pid, 0))
	limitMemory(t, 0, 0)
	running.Wait()
	for range many {
		err := <-ends
		require.ErrorIs(t, err, ErrMemory)
		require.Regexp(t, `: \d+ of \d+ MiB, this one \d+$`, err)
	}
	require.ErrorIs(t, wait(), ErrMemory)
	used, _, ended := Memory()
	require.Zero(t, used)
	require.EqualValues(t, many+1, ended-before)
}

// TestMemoryOf: the least of the machine's memory and the limits of its container or service.
func TestMemoryOf(t *testing.T) {
	const machine, gib = "MemTotal:       24683652 kB\nMemFree: 1 kB\n", 1 << 30
	for name, tt := range map[string]struct {
		groups string
		files  map[string]string
		want   uint64
	}{
		"a machine":                       {"0::/\n", nil, 24683652 << 10},
		"a service":                       {"0::/s.slice/t.service\n", map[string]string{"s.slice/t.service": "2147483648\n"}, 2 * gib},
		"a slice":                         {"0::/a/b\n", map[string]string{"a": "1073741824\n", "a/b": "max\n"}, gib},
		"a container":                     {"0::/\n", map[string]string{".": "6442450944\n"}, 6 * gib},
		"with the path of the machine":    {"0::/kubepods/pod1\n", map[string]string{".": "6442450944\n"}, 6 * gib},
		"version 1":                       {"5:cpu:/\n4:memory:/docker/x\n0::/\n", map[string]string{"memory": "6442450944\n"}, 6 * gib},
		"version 1 without a limit":       {"4:cpu,memory:/\n", map[string]string{"memory": "9223372036854771712\n"}, 24683652 << 10},
		"more than the machine has":       {"0::/\n", map[string]string{".": "64424509440\n"}, 24683652 << 10},
		"a group above that of the mount": {"0::/../x\n", map[string]string{".": "1073741824\n"}, gib},
	} {
		root := fstest.MapFS{"proc/meminfo": {Data: []byte(machine)}, "proc/self/cgroup": {Data: []byte(tt.groups)}}
		for dir, text := range tt.files {
			file := "memory.max"
			if dir == "memory" {
				file = "memory.limit_in_bytes"
			}
			root[path.Join("sys/fs/cgroup", dir, file)] = &fstest.MapFile{Data: []byte(text)}
		}
		require.Equal(t, tt.want, memoryOf(root), name)
	}
	require.Equal(t, uint64(math.MaxInt64), memoryOf(fstest.MapFS{}), "unknown")
}

// TestBudgetOfPrograms: this process has its share, more if it uses more, and leaves a part in any case.
func TestBudgetOfPrograms(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct{ limit, own, want uint64 }{
		{6144, 100, 5632}, {6144, 700, 5444}, {6144, 6000, 1536}, {1024, 100, 768}, {512, 100, 384}, {512, 200, 312}, {512, 500, 128},
	} {
		limitMemory(t, tt.limit*mib, tt.own*mib)
		_, budget, _ := Memory()
		require.Equal(t, tt.want*mib, budget, tt)
	}
}

// BenchmarkLook measures 50 programs.
func BenchmarkLook(b *testing.B) {
	for range 50 {
		cmd := exec.CommandContext(b.Context(), "/bin/sleep", "600")
		wait, err := Start(cmd, Limits{})
		require.NoError(b, err)
		defer func() { _ = cmd.Process.Kill(); _ = wait() }()
	}
	for b.Loop() {
		all.look()
	}
}
