package tts

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEnded: a turn that another goroutine sees ended keeps the error that it ended with.
func TestEnded(t *testing.T) {
	lost := errors.New("lost")
	for range 2000 {
		turn := NewTurn("", nil)
		var other sync.WaitGroup
		other.Go(func() {
			for !turn.ended.Load() {
			}
			turn.end(ErrCancelled)
		})
		turn.end(lost)
		other.Wait()
		_, _, ended, err := turn.Take()
		require.True(t, ended)
		require.ErrorIs(t, err, lost)
	}
}
