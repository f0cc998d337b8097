package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/internal/clocktest"
)

// TestSilenceIsMonotonic: a step of the wall clock neither ends a connection nor hides that it is dead.
func TestSilenceIsMonotonic(t *testing.T) {
	t.Parallel()
	for _, step := range clocktest.Steps {
		l := &link{}
		l.received()
		require.False(t, l.silent(clocktest.Step(time.Now(), step)), step)
		require.True(t, l.silent(clocktest.Step(time.Now().Add(silentFor+time.Second), step)), step)
	}
}
