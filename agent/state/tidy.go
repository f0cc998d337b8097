package state

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// tidyEvery is the interval of the removal of old state. An hour after the start, the machine's clock is set.
	tidyEvery = time.Hour
	// unusedFor is the age at which the state of an unused room is removed.
	unusedFor = 30 * 24 * time.Hour
	// undeliveredFor is the age of alerts that are not delivered at which no output takes them any more.
	undeliveredFor = 2 * 24 * time.Hour
	// maxTidied bounds the rooms that are removed at once, maxFreed the pages of the file that are given back.
	maxTidied, maxFreed = 200, "10000"
	// maxJump is the largest step of the wall clock between two removals.
	maxJump = time.Minute
)

// owner is a commentator in a room.
type owner struct{ room, identity string }

// Leave ends the use that Load began.
func (r *Room) Leave() {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	r.store.uses[owner{r.room, r.identity}]--
}

const noteUse = "INSERT INTO room_uses (room, identity, used) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET used = excluded.used"

// slept returns how long the machine has slept since it started: Go's clock stands still meanwhile, and the wall clock does not.
func slept() time.Duration {
	var boot, awake unix.Timespec
	if errors.Join(unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot), unix.ClockGettime(unix.CLOCK_MONOTONIC, &awake)) != nil {
		return 0
	}
	return time.Duration(boot.Nano() - awake.Nano())
}

// note records the time of the last use of rooms. After a step of the wall clock, which it reports, the ages of all rooms and of all
// undelivered alerts begin anew: by the new time they may seem old. Several processes may do so, one after the other.
func (s *Store) note(now time.Time) (stepped bool, err error) {
	ctx := context.Background()
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	s.mu.Lock()
	var left, used []owner
	for o, n := range s.uses {
		if used = append(used, o); n <= 0 {
			left = append(left, o)
		}
	}
	s.mu.Unlock()
	for _, o := range used {
		if _, err := tx.ExecContext(ctx, noteUse, o.room, o.identity, now.Unix()); err != nil {
			return false, err
		}
	}
	asleep := slept()
	jump := now.Round(0).Sub(s.last.Round(0)) - now.Sub(s.last) - (asleep - s.slept)
	if stepped = jump.Abs() > maxJump; stepped {
		if _, err := tx.ExecContext(ctx, "UPDATE room_uses SET used = ?", now.Unix()); err != nil {
			return false, err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE outbox SET at = ?", now.UnixMicro()); err != nil {
			return false, err
		}
	}
	if err := tx.Commit(); err != nil {
		return false, err
	}
	if s.last, s.slept = now, asleep; stepped {
		s.log.Warn().Float64("jump_s", jump.Seconds()).Msg("clock stepped; the ages of stored state begin anew")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range left {
		if s.uses[o] <= 0 { // not used again since
			delete(s.uses, o)
			delete(s.names, o)
		}
	}
	return stepped, nil
}

// tidy removes the state of rooms that nothing has used for unusedFor, and gives their space back. After a step of the clock it waits for
// the next call: the other processes that share the file note their rooms by the new time first.
func (s *Store) tidy(now time.Time) error {
	stepped, err := s.note(now)
	if err != nil {
		return err
	}
	ctx := context.Background()
	_, err = s.db.ExecContext(ctx, "INSERT OR IGNORE INTO room_uses SELECT DISTINCT room, identity, ? FROM room_values", now.Unix())
	if err != nil || stepped {
		return err
	}
	before := now.Add(-unusedFor)
	old, err := s.unused(ctx, before)
	if err != nil {
		return err
	}
	for _, o := range old { // one by one, as others wait for the file: a room may have megabytes of pictures
		// Another process may use the room again since.
		_, err = s.db.ExecContext(ctx, "DELETE FROM room_values WHERE room = ?1 AND identity = ?2 "+
			"AND EXISTS (SELECT 1 FROM room_uses WHERE room = ?1 AND identity = ?2 AND used < ?3); "+
			"DELETE FROM room_uses WHERE room = ?1 AND identity = ?2 AND used < ?3", o.room, o.identity, before.Unix())
		if err != nil {
			return err
		}
	}
	_, err = s.db.ExecContext(ctx, "DELETE FROM outbox WHERE at < ?", now.Add(-undeliveredFor).UnixMicro())
	if err == nil {
		_, err = s.db.ExecContext(ctx, "PRAGMA incremental_vacuum("+maxFreed+")")
	}
	s.removed.Add(uint64(len(old)))
	if len(old) > 0 {
		s.log.Info().Int("rooms", len(old)).Msg("state of unused rooms removed")
	}
	return err
}

// unused returns rooms that were last used before a time. The state of the process has no room, and stays.
func (s *Store) unused(ctx context.Context, before time.Time) (out []owner, err error) {
	rows, err := s.db.QueryContext(ctx, "SELECT room, identity FROM room_uses WHERE used < ? AND room <> '' LIMIT ?", before.Unix(), maxTidied)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var o owner
		if err := rows.Scan(&o.room, &o.identity); err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, rows.Err()
}
