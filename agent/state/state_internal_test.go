package state

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPendingIsBounded: while the disk refuses, values that come and go leave nothing behind. Afterwards the file has what was kept last.
func TestPendingIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := opened(t, dir)
	keep(t, s, "", `"of before"`)
	r := s.Room("", "bot")
	r.Keep("kept", json.RawMessage(`1`))
	require.NoError(t, s.flush())
	rename := func(from, to string) {
		_, err := s.db.ExecContext(t.Context(), "ALTER TABLE "+from+" RENAME TO "+to)
		require.NoError(t, err)
	}
	rename("room_values", "away")
	r.Keep("sheet", nil)
	const most = 100
	for i := range 10_000 { // as links of a room, of which the oldest goes
		r.Keep(fmt.Sprintf("%016x", i), json.RawMessage(`{}`))
		if i%500 == 0 {
			require.Error(t, s.flush())
		}
		if i >= most {
			r.Keep(fmt.Sprintf("%016x", i-most), nil)
		}
		require.LessOrEqual(t, len(s.pending), most+2)
	}
	require.Contains(t, s.pending, key{"", "bot", "sheet"}, "the file has it")
	rename("away", "room_values")
	require.NoError(t, s.flush())
	require.Empty(t, s.pending)
	r.Keep(fmt.Sprintf("%016x", 9999), nil)
	require.NoError(t, s.flush())
	values, err := opened(t, dir).Room("", "bot").Load()
	require.NoError(t, err)
	require.Len(t, values, most)
	require.Contains(t, values, "kept")
	require.Contains(t, values, fmt.Sprintf("%016x", 9998))
	require.NotContains(t, values, "sheet")
}

// TestDeletedWhileItIsWritten: a value that is deleted while a write of it is under way leaves the file again if the write succeeds, and
// memory if it fails.
func TestDeletedWhileItIsWritten(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		t.Run(fmt.Sprintf("fails=%v", fails), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := opened(t, dir)
			r := s.Room("match", "bot")
			_, err := r.Load()
			require.NoError(t, err)
			tx, err := opened(t, dir).db.BeginTx(t.Context(), nil) // the write has to wait for it
			require.NoError(t, err)
			r.Keep("sheet", json.RawMessage(`1`))
			done := make(chan error, 1)
			go func() { done <- s.flush() }()
			require.Eventually(t, func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.names[owner{"match", "bot"}]["sheet"]
			}, 2*time.Minute, time.Millisecond)
			r.Keep("sheet", nil)
			if fails {
				require.Error(t, <-done) // after the two seconds of its wait
			}
			require.NoError(t, tx.Rollback())
			if !fails && <-done == nil { // a busy machine may have spent its wait
				require.NoError(t, s.flush())
			}
			require.Empty(t, s.pending)
			require.False(t, has(t, s, "match"))
		})
	}
}
