package state

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// opened opens the file of a folder until the test ends.
func opened(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(Config{Path: dir}, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestUnusedRooms: the state of rooms that nothing has used for a month goes, and so does its space. Rooms in use, those left a short while
// ago and the state of the process stay. A step of the clock removes nothing.
func TestUnusedRooms(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func() *Store { return opened(t, dir) }
	s, other := open(), open() // another process
	keep := func(s *Store, room, value string) *Room {
		r := s.Room(room, "bot")
		_, err := r.Load()
		require.NoError(t, err)
		r.Keep("sheet", json.RawMessage(value))
		require.NoError(t, s.flush())
		return r
	}
	has := func(room string) bool {
		t.Helper()
		var n int
		require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT count(*) FROM room_values WHERE room = ?", room).Scan(&n))
		return n > 0
	}
	picture := `"` + strings.Repeat("x", 1<<20) + `"`
	keep(s, "", `"of the process"`)
	keep(s, "in use", `"a"`)
	keep(other, "in use there", `"a"`)
	for i := range 10 {
		keep(s, fmt.Sprint("meeting ", i), picture).Leave()
	}
	now := time.Now()
	s.wall, other.wall = now, now
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
		require.NoError(t, s.tidy(now, day))
		require.NoError(t, other.tidy(now, day))
		if i == 1 {
			keep(s, "late", `"a"`).Leave()
		}
	}
	require.True(t, has("meeting 0"))
	require.Greater(t, size(), int64(10<<20))

	before := now
	for _, step := range []time.Duration{40 * 24 * time.Hour, -40 * 24 * time.Hour} {
		now = now.Add(time.Hour + step)
		require.NoError(t, s.tidy(now, time.Hour))
		require.True(t, has("meeting 0"), "%v", step)
	}
	now = before
	for range 3 {
		now = now.Add(day)
		require.NoError(t, other.tidy(now, now.Sub(other.wall)))
	}
	require.False(t, has("meeting 0"))
	require.Less(t, size(), int64(1<<20))
	for _, room := range []string{"", "in use", "in use there", "late"} {
		require.True(t, has(room), room)
	}
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
		s.wall = now
		require.NoError(t, s.tidy(now, 0))
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
