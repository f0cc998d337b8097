package child

import "testing"

// Exit statuses of ActsProgram.
const (
	AllRefused = allRefused
	AllTried   = allTried
)

// AsNobody runs the test in this program as the user nobody.
func AsNobody(t *testing.T) {
	t.Helper()
	asNobody(t)
}

// Landlock is this kernel's version of Landlock, 0 without.
func Landlock(t *testing.T) int {
	t.Helper()
	return landlock(t)
}

// Skipped reports acts that were not tried. Where everything must be tried it fails.
func Skipped(t *testing.T, what string) {
	t.Helper()
	skipped(t, what)
}

// LimitMemory sets the memory of this process and all programs for a test.
func LimitMemory(t *testing.T, limit uint64) {
	t.Helper()
	limitMemory(t, limit, 0)
}
