//go:build !integration

package main

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"touchline/internal/child"
)

// TestHidden: after hide, the figures of the process and the launcher still work, also for a user other than root.
func TestHidden(t *testing.T) {
	if os.Getuid() == 0 {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.v", "-test.run", "^TestHidden$")
		cmd.Env, cmd.Dir = []string{"TMPDIR=/tmp"}, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: TestHidden")
		return
	}
	hide()
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	require.NoError(t, err)
	require.Zero(t, dumpable)

	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	found, err := reg.Gather()
	require.NoError(t, err)
	names := map[string]float64{}
	for _, f := range found {
		m := f.GetMetric()[0]
		names[f.GetName()] = max(m.GetGauge().GetValue(), m.GetCounter().GetValue())
	}
	for _, name := range []string{"process_resident_memory_bytes", "process_virtual_memory_bytes", "process_open_fds", "process_start_time_seconds"} {
		require.Positive(t, names[name], name)
	}

	_, log, err := child.Run(exec.CommandContext(t.Context(), "/bin/true"), child.Limits{}, 0)
	require.NoError(t, err, log)
}
