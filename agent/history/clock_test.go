package history_test

import (
	"crypto/rand"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/history"
	"touchline/internal/clocktest"
)

// TestClockJump: a clock that is a month fast for a while removes nothing. Removal by age goes on when the
// clock has been steady for an hour.
func TestClockJump(t *testing.T) {
	t.Parallel()
	for store, name := range stores {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			const day = 24 * time.Hour
			cfg := config(store, filepath.Join(t.TempDir(), name))
			log, stop := open(t, cfg)
			out := log.Room("match", "bot")
			for i := range uint64(300) {
				r := record(i)
				r.Instruction = noise(1000)
				out.Record(r)
			}
			require.Eventually(t, func() bool { return log.Written() == 300 }, 2*time.Minute, time.Millisecond)
			stop()
			left := func() int { return len(read(t, cfg.Path, history.Query{Room: "match"})) }

			// While it runs.
			log, err := history.Open(cfg, zerolog.Nop())
			require.NoError(t, err)
			now := time.Now()
			log.Expire(now, 0)
			log.Expire(now.Add(31*day), time.Minute)
			require.Equal(t, 300, left(), "one minute has passed, not a month")
			log.Expire(now.Add(2*time.Minute), 2*time.Minute)
			log.Expire(now.Add(2*day), 2*day)
			require.Equal(t, 300, left())
			log.Expire(now.Add(31*day), 31*day)
			require.Less(t, left(), 300, "a month has passed")
			require.NoError(t, log.Close())
		})
		t.Run(store+" from the start", func(t *testing.T) {
			t.Parallel()
			cfg := config(store, filepath.Join(t.TempDir(), name))
			cfg.MaxAge = time.Minute // the records are an hour old, as far as this clock knows
			log, stop := open(t, config(store, cfg.Path))
			for i := range uint64(300) {
				r := record(i)
				r.Instruction = noise(1000)
				log.Room("match", "bot").Record(r)
			}
			stop()
			left := func() int { return len(read(t, cfg.Path, history.Query{Room: "match"})) }

			log, err := history.Open(cfg, zerolog.Nop())
			require.NoError(t, err)
			now := time.Now().Add(time.Hour)
			log.Expire(now, 0)
			log.Expire(now.Add(30*time.Second), 30*time.Second)
			require.Equal(t, 300, left())
			log.Expire(now.Add(time.Minute), time.Minute)
			require.Less(t, left(), 300, "the clock has been steady for as long as records are kept")
			require.NoError(t, log.Close())
		})
	}
}

// noise is text that does not compress away.
func noise(n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(rand.Text())
	}
	return b.String()
}

// TestWordsAndTheWallClock: the times of a comment's words, and the end of a text of a person, do not change when the wall clock is set
// before it ends.
func TestWordsAndTheWallClock(t *testing.T) {
	t.Parallel()
	for _, step := range clocktest.Steps {
		cfg := config(history.StoreFile, filepath.Join(t.TempDir(), "match"))
		cfg.Heard = history.HeardText
		log, stop := open(t, cfg)
		out, r := log.Room("match", "bot"), record(1)
		r.StartedAt = clocktest.Step(time.Now(), step)
		out.Caption(agent.Caption{Cycle: 1, Delta: r.Text})
		out.Record(r)
		out.(agent.HeardOutput).Heard(agent.Heard{
			Final: true, Caption: true, Text: "a", Began: r.StartedAt, Ended: time.Now().Add(2 * time.Second),
		})
		stop()
		heard := read(t, cfg.Path, history.Query{Room: "match", Heard: true})
		require.Len(t, heard, 1)
		require.InDelta(t, 2, heard[0].Heard.Ended.Sub(heard[0].Heard.Began).Seconds(), 60, step)
		entries := read(t, cfg.Path, history.Query{Room: "match"})
		require.Len(t, entries, 1)
		require.Len(t, entries[0].Words, 1)
		require.InDelta(t, 0, entries[0].Words[0].At, 60, step)
		require.WithinDuration(t, r.StartedAt.Round(0), entries[0].At, time.Millisecond)
	}
}
