package main

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// filePages returns the resident pages of files, in kB.
func filePages(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(status), "RssFile:")
	n, err := strconv.Atoi(strings.Fields(after)[0])
	require.NoError(t, err)
	return n
}

// The program goes on without the pages of its start, and maps those that it needs again.
func TestReleasePages(t *testing.T) {
	before := filePages(t)
	released := releasePages()
	after := filePages(t)
	t.Logf("%d kB of %d kB released, %d kB now", released>>10, before, after)
	require.Greater(t, released, int64(1<<20))
	require.Less(t, after, before)
	require.Positive(t, releasePages())
}
