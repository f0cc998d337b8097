package tts

import (
	"errors"
	"sync"
	"testing"
	"time"

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

// TestUsage: work at the same time counts once, and work that goes on counts until now.
func TestUsage(t *testing.T) {
	var u usage
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	u.begin(at(0))
	u.begin(at(1))
	u.end(at(2))
	require.Equal(t, 3*time.Second, u.sum(at(3)))
	u.end(at(4))
	u.begin(at(6))
	u.end(at(7))
	require.Equal(t, 5*time.Second, u.sum(at(9)))
}
