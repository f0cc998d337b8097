package state

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/internal/clocktest"
	"touchline/internal/outbox"
)

// opened opens the file of a folder until the test ends.
func opened(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(Config{Path: dir}, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// keep stores a value of a room, which is in use from then on.
func keep(t *testing.T, s *Store, room, value string) *Room {
	t.Helper()
	r := s.Room(room, "bot")
	_, err := r.Load()
	require.NoError(t, err)
	r.Keep("sheet", json.RawMessage(value))
	require.NoError(t, s.flush())
	return r
}

// has reports whether a room has values.
func has(t *testing.T, s *Store, room string) bool {
	t.Helper()
	var n int
	require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT count(*) FROM room_values WHERE room = ?", room).Scan(&n))
	return n > 0
}

// TestUnusedRooms: the state of rooms that nothing has used for a month goes, and so does its space. Rooms in use, those left a short while
// ago and the state of the process stay.
func TestUnusedRooms(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func() *Store { return opened(t, dir) }
	s, other := open(), open() // another process
	keep := func(s *Store, room, value string) *Room { return keep(t, s, room, value) }
	has := func(room string) bool { return has(t, s, room) }
	picture := `"` + strings.Repeat("x", 1<<20) + `"`
	keep(s, "", `"of the process"`)
	keep(s, "in use", `"a"`)
	keep(other, "in use there", `"a"`)
	for i := range 10 {
		keep(s, fmt.Sprint("meeting ", i), picture).Leave()
	}
	now := time.Now()
	s.last, other.last = now, now
	size := func() int64 {
		_, err := s.db.ExecContext(t.Context(), "PRAGMA wal_checkpoint(TRUNCATE)")
		require.NoError(t, err)
		info, err := os.Stat(filepath.Join(dir, fileName))
		require.NoError(t, err)
		return info.Size()
	}
	const day = 24 * time.Hour
	for i := range 29 {
		now = now.Add(day)
		require.NoError(t, s.tidy(now))
		require.NoError(t, other.tidy(now))
		if i == 1 {
			keep(s, "late", `"a"`).Leave()
		}
	}
	require.True(t, has("meeting 0"))
	require.Greater(t, size(), int64(10<<20))

	for range 3 {
		now = now.Add(day)
		require.NoError(t, other.tidy(now))
	}
	require.False(t, has("meeting 0"))
	require.Equal(t, uint64(10), other.removed.Load())
	require.Less(t, size(), int64(1<<20))
	for _, room := range []string{"", "in use", "in use there", "late"} {
		require.True(t, has(room), room)
	}
}

// TestStateAndTheWallClock: a step of the clock removes no room and no undelivered alert, whether the process sees it in its hour or as it
// ends. Their ages begin anew, and what is old by then goes as ever.
func TestStateAndTheWallClock(t *testing.T) {
	t.Parallel()
	for _, step := range append([]time.Duration{-40 * 24 * time.Hour, 40 * 24 * time.Hour}, clocktest.Steps...) {
		for _, ends := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v ends %v", step, ends), func(t *testing.T) {
				t.Parallel()
				stepClock(t, step, ends)
			})
		}
	}
}

func stepClock(t *testing.T, step time.Duration, ends bool) {
	t.Helper()
	dir, now := t.TempDir(), time.Now()
	s, other := opened(t, dir), opened(t, dir)
	s.last, other.last = now, now
	for _, room := range []string{"left", "left long ago", "in use"} {
		r := keep(t, s, room, `"a"`)
		if room != "in use" {
			r.Leave()
		}
	}
	require.NoError(t, s.tidy(now))
	_, err := s.db.ExecContext(t.Context(), noteUse, "left long ago", "bot", now.Add(-29*24*time.Hour).Unix())
	require.NoError(t, err)
	alerts := outbox.New(s.db)
	_, err = alerts.Queue("hook")
	require.NoError(t, err)
	alerts.Put(outbox.Message{Target: "hook", At: now, Body: []byte("{}")})
	alerts.Flush()
	waiting := func() int {
		t.Helper()
		o := outbox.New(s.db)
		o.Now = func() time.Time { return now }
		q, err := o.Queue("hook")
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _ = q.Next(ctx) // drops what is too old
		return q.Len()
	}

	now = clocktest.Step(now.Add(20*time.Minute), step)
	if ends {
		_, err := s.note(now)
		require.NoError(t, err)
		s, other = opened(t, dir), opened(t, dir)
		s.last, other.last = now, now
		keep(t, s, "in use", `"a"`)
	}
	for range 3 {
		now = now.Add(time.Hour)
		require.NoError(t, s.tidy(now))
		require.NoError(t, other.tidy(now.Add(time.Second)))
		for _, room := range []string{"left", "left long ago", "in use"} {
			require.True(t, has(t, s, room), room)
		}
	}
	require.Equal(t, 1, waiting())
	now = now.Add(undeliveredFor)
	require.NoError(t, s.tidy(now))
	require.Zero(t, waiting())
	require.True(t, has(t, s, "left"))
	now = now.Add(unusedFor)
	require.NoError(t, s.tidy(now))
	require.False(t, has(t, s, "left"))
	require.False(t, has(t, s, "left long ago"))
	require.True(t, has(t, s, "in use"))
}

// TestUsedAgain: a process that begins to use an old room finds its state, and so does its next start, even if another process that knows
// of no use removes old state at that moment.
func TestUsedAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func() *Store { return opened(t, dir) }
	s, other := open(), open()
	room := other.Room("meeting", "bot")
	room.Keep("sheet", json.RawMessage(`"a"`))
	require.NoError(t, other.flush())
	now := time.Now()
	_, err := s.db.ExecContext(t.Context(), noteUse, "meeting", "bot", now.Add(-unusedFor-time.Hour).Unix())
	require.NoError(t, err)
	for range 2 {
		values, err := room.Load()
		require.NoError(t, err)
		require.Contains(t, values, "sheet")
		s.last = now
		require.NoError(t, s.tidy(now))
	}
}

// TestLargeFile: a large file is not read whole at the start.
func TestLargeFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(Config{Path: dir}, zerolog.Nop())
	require.NoError(t, err)
	_, err = s.db.ExecContext(t.Context(), `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 70)
		INSERT INTO room_values SELECT 'match', 'bot', i, hex(randomblob(524288)) FROM n; PRAGMA wal_checkpoint(TRUNCATE)`)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	path := filepath.Join(dir, fileName)
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = file.WriteAt(make([]byte, 4096), 40<<20)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	s, err = Open(Config{Path: dir}, zerolog.Nop())
	require.NoError(t, err, "the damage is found where it is read")
	require.NoError(t, s.Close())
}
