package history_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/alert"
	"touchline/agent/command"
	"touchline/agent/history"
	"touchline/agent/look"
	"touchline/inference"
	"touchline/internal/rescue"
)

// stores are the kinds, each with the name of a path below a folder.
var stores = map[string]string{history.StoreFile: "records", history.StoreSQLite: "records.db"}

// config is that of a store.
func config(store, path string) history.Config {
	c := history.DefaultConfig()
	c.Store, c.Path = store, path
	return c
}

var start = time.Now().Add(-time.Hour).UTC().Truncate(time.Millisecond)

func text(i uint64) string { return fmt.Sprintf("Comment %d: \"<b>a & b</b>\"\u2028 ok.", i) }

// record is a comment of two seconds.
func record(i uint64) look.Record {
	at := start.Add(time.Duration(i) * 10 * time.Millisecond)
	return look.Record{
		Type: "cycle_end", Cycle: i, Outcome: look.OutcomeSpoken, Text: text(i), Spoken: true,
		FrameIDs: []uint64{i, i + 1}, StartedAt: at, EndedAt: at.Add(2 * time.Second), AlignmentError: 0.01,
	}
}

// open runs a log until the test's end or stop.
func open(t *testing.T, cfg history.Config) (log *history.Log, stop func()) {
	t.Helper()
	log, err := history.Open(cfg, zerolog.New(zerolog.NewTestWriter(t)))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- log.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return log, stop
}

func read(t *testing.T, path string, q history.Query) []history.Entry {
	t.Helper()
	r, err := history.OpenReader(t.Context(), path)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	var out []history.Entry
	for e, err := range r.Entries(t.Context(), q) {
		require.NoError(t, err)
		out = append(out, e)
	}
	return out
}

func cycles(entries []history.Entry) []uint64 {
	out := make([]uint64, len(entries))
	for i, e := range entries {
		out[i] = e.Record.Cycle
	}
	return out
}

func count(from, to uint64) []uint64 {
	var out []uint64
	for i := from; i <= to; i++ {
		out = append(out, i)
	}
	return out
}

// TestOthersReadNothing: records have what people said. The files of earlier versions, which others could read, become private.
func TestOthersReadNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "records.db")
	for n := range 2 {
		log, stop := open(t, config(history.StoreSQLite, path))
		log.Room("match", "bot").Record(record(1))
		require.Eventually(t, func() bool { return log.Written() == 1 }, 2*time.Minute, time.Millisecond)
		for _, p := range []string{path, path + "-wal", path + "-shm"} {
			info, err := os.Stat(p)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "%s, opened %d times", p, n+1)
		}
		stop()
		require.NoError(t, os.Chmod(path, 0o644))                  // as an earlier version
		for _, p := range []string{path + "-wal", path + "-shm"} { // of a killed process
			require.NoError(t, os.WriteFile(p, nil, 0o644))
		}
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for store, name := range stores {
		t.Run(store, func(t *testing.T) {
			cfg := config(store, filepath.Join(t.TempDir(), "below", name))
			log, stop := open(t, cfg)
			a, b := log.Room(`a "room"`, "bot"), log.Room("b", "bot")
			for i := uint64(1); i <= 10; i++ {
				r := record(i)
				a.Caption(agent.Caption{Cycle: i, Delta: text(i)[:9]})
				a.Caption(agent.Caption{Cycle: i, Delta: text(i)[9:]})
				a.Caption(agent.Caption{Cycle: i, Final: true})
				a.Record(r)
			}
			silent := look.Record{Cycle: 11, Outcome: look.OutcomeSilent, Reason: "nothing new"}
			a.Record(silent)
			b.Record(record(7))
			stop()
			require.EqualValues(t, 12, log.Written())
			require.Zero(t, log.Lost())

			all := read(t, cfg.Path, history.Query{Room: `a "room"`})
			require.Equal(t, count(1, 11), cycles(all))
			require.Equal(t, record(3), all[2].Record)
			require.Equal(t, "bot", all[2].Identity)
			require.Equal(t, text(3), all[2].Words[0].Text+all[2].Words[1].Text)
			require.Len(t, all[2].Words, 2)
			require.False(t, all[10].IsComment())
			require.WithinDuration(t, time.Now(), all[10].At, time.Minute)
			require.Equal(t, count(1, 10), cycles(read(t, cfg.Path, history.Query{Room: `a "room"`, Comments: true})))
			require.Equal(t, count(8, 10), cycles(read(t, cfg.Path, history.Query{Room: `a "room"`, Comments: true, Last: 3})))
			require.Equal(t, count(4, 6), cycles(read(t, cfg.Path, history.Query{
				Room: `a "room"`, From: record(4).StartedAt, To: record(7).StartedAt,
			})))
			require.Empty(t, read(t, cfg.Path, history.Query{Room: "nobody's"}))

			r, err := history.OpenReader(t.Context(), cfg.Path)
			require.NoError(t, err)
			defer func() { require.NoError(t, r.Close()) }()
			rooms, err := r.Rooms(t.Context())
			require.NoError(t, err)
			require.Len(t, rooms, 2)
			require.Equal(t, []any{`a "room"`, 11, 10, "b", 1}, []any{rooms[0].Room, rooms[0].Records, rooms[0].Comments, rooms[1].Room, rooms[1].Comments})
			require.WithinDuration(t, record(1).StartedAt, rooms[0].First, 0)
		})
	}
}

// TestRestart: the next process shows the entries of the last one to late joiners, and
// appends its own.
func TestRestart(t *testing.T) {
	t.Parallel()
	for store, name := range stores {
		t.Run(store, func(t *testing.T) {
			cfg := config(store, filepath.Join(t.TempDir(), name))
			cfg.OnlyComments = true
			for run := range uint64(4) {
				log, stop := open(t, cfg)
				last, err := log.Last(t.Context(), "match", 5)
				require.NoError(t, err)
				if run > 0 {
					require.Len(t, last, 5)
					require.Equal(t, run*300, last[4].Cycle)
				}
				out := log.Room("match", "bot")
				for i := run*300 + 1; i <= run*300+300; i++ {
					out.Record(record(i))
					out.Record(look.Record{Cycle: i, Outcome: look.OutcomeSkipped, Skipped: true})
				}
				stop()
			}
			require.Equal(t, count(1, 1200), cycles(read(t, cfg.Path, history.Query{Room: "match"})))
			require.Equal(t, count(201, 1200), cycles(read(t, cfg.Path, history.Query{Room: "match", Last: 1000})))
		})
	}
}

// size returns the size of a folder, or of a file with its neighbours.
func size(t *testing.T, path string) (n int64) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(filepath.Dir(path), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			info, err := d.Info()
			if err == nil {
				n += info.Size()
			}
			return err
		}
		return err
	}))
	return n
}

// TestBounds: a store keeps to its size and age, and its newest entries stay.
func TestBounds(t *testing.T) {
	t.Parallel()
	for store, name := range stores {
		t.Run(store, func(t *testing.T) {
			cfg := config(store, filepath.Join(t.TempDir(), name))
			cfg.MaxBytes = 1 << 20
			log, stop := open(t, cfg)
			out := log.Room("match", "bot")
			const total = 600
			noise := rand.NewChaCha8([32]byte{})
			for i := uint64(1); i <= total; i++ {
				r := record(i)
				junk := make([]byte, 5000) // that does not compress away
				_, _ = noise.Read(junk)
				r.Instruction = hex.EncodeToString(junk)
				out.Record(r)
				if i%200 == 0 {
					require.Eventually(t, func() bool { return log.Written() == i }, time.Minute, time.Millisecond)
				}
			}
			stop()
			require.Zero(t, log.Lost())
			got := cycles(read(t, cfg.Path, history.Query{Room: "match"}))
			require.NotEmpty(t, got)
			require.Equal(t, count(got[0], total), got, "the newest are left, without a gap")
			require.Greater(t, got[0], uint64(total/10), "nothing was removed")
			// A WAL that is being read is beside the bound.
			require.Less(t, size(t, cfg.Path), int64(cfg.MaxBytes+6<<20))

			log, stop = open(t, cfg)
			log.Room("match", "bot").Record(look.Record{Cycle: total + 1, Outcome: look.OutcomeShown, Text: "new", StartedAt: time.Now()})
			stop()
			cfg.MaxAge = time.Minute // all others are from an hour ago
			_, stop = open(t, cfg)
			stop()
			require.Equal(t, []uint64{total + 1}, cycles(read(t, cfg.Path, history.Query{Room: "match"})))
			require.Less(t, size(t, cfg.Path), int64(200<<10), "the space was not given back")
		})
	}
}

// TestReadWhileWritten reads a store that is written to.
func TestReadWhileWritten(t *testing.T) {
	t.Parallel()
	for store, name := range stores {
		t.Run(store, func(t *testing.T) {
			cfg := config(store, filepath.Join(t.TempDir(), name))
			log, stop := open(t, cfg)
			out := log.Room("match", "bot")
			reads := 0
			for i := uint64(1); i <= 3000; i++ {
				out.Record(record(i))
				if i%300 == 0 {
					// Half of the queue at most, or some would be lost.
					require.Eventually(t, func() bool { return i-log.Written() < 2000 }, time.Minute, time.Millisecond)
					want := log.Written()
					got := cycles(read(t, cfg.Path, history.Query{Room: "match"}))
					require.GreaterOrEqual(t, uint64(len(got)), want)
					require.Equal(t, append([]uint64{}, count(1, uint64(len(got)))...), got)
					reads++
				}
			}
			stop()
			require.Positive(t, reads)
		})
	}
}

// TestFigureThatIsNone does not hold up the others.
func TestFigureThatIsNone(t *testing.T) {
	t.Parallel()
	cfg := config(history.StoreFile, t.TempDir())
	log, stop := open(t, cfg)
	out := log.Room("match", "bot")
	bad := record(1)
	bad.SceneDiff = math.NaN()
	out.Record(bad)
	out.Record(record(2))
	stop()
	require.EqualValues(t, 1, log.Lost())
	require.Equal(t, count(2, 2), cycles(read(t, cfg.Path, history.Query{Room: "match"})))
}

// TestTwoWriters: a store has any number of writers.
func TestTwoWriters(t *testing.T) {
	t.Parallel()
	for store, name := range stores {
		t.Run(store, func(t *testing.T) {
			cfg := config(store, filepath.Join(t.TempDir(), name))
			var all []func()
			for i := range uint64(3) {
				log, stop := open(t, cfg)
				log.Room("match", "bot").Record(record(i))
				all = append(all, stop)
			}
			for _, stop := range all {
				stop()
			}
			require.Equal(t, count(0, 2), cycles(read(t, cfg.Path, history.Query{Room: "match"})))
		})
	}
}

// TestCrash: a panic of the history's code ends no room. It is logged once, with
// the stack, and later entries count as lost.
func TestCrash(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"add", "Entries"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			var said bytes.Buffer
			log, err := history.Open(config(history.StoreFile, filepath.Join(t.TempDir(), "records")), zerolog.New(zerolog.SyncWriter(&said)))
			require.NoError(t, err)
			log.Break(where)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- log.Run(ctx) }()
			out := log.Room("match", "bot")
			out.Record(record(1))
			out.Record(record(2))
			if where == "Entries" { // in the room's own goroutine
				_, err := log.Last(t.Context(), "match", 5)
				_, crash := rescue.Of(err)
				require.True(t, crash, "%v", err)
				require.Eventually(t, func() bool { return log.Written() == 2 }, 2*time.Minute, time.Millisecond, "it goes on writing")
			} else {
				require.Eventually(t, func() bool { return log.Lost() == 2 }, 2*time.Minute, time.Millisecond)
				require.True(t, log.Off())
				out.Caption(agent.Caption{Cycle: 3, Delta: text(3)})
				out.Record(record(3))
				require.EqualValues(t, 3, log.Lost())
				require.Empty(t, done, "it waits for the end of the program")
				metrics := prometheus.NewPedanticRegistry()
				require.NoError(t, metrics.Register(log.Collector()))
				families, err := metrics.Gather()
				require.NoError(t, err)
				require.Equal(t, "touchline_history_off", families[1].GetName())
				require.InDelta(t, 1, families[1].GetMetric()[0].GetGauge().GetValue(), 0)
			}
			cancel()
			require.NoError(t, <-done)
			if where == "add" {
				require.Equal(t, 1, strings.Count(said.String(), "history panicked"))
				require.Contains(t, said.String(), "broken.add", "the stack")
			}
		})
	}
}

// TestRefused: files that are no history are not changed.
func TestRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sqlite := func(name, statement string) string {
		path := filepath.Join(dir, name)
		db, err := sql.Open("sqlite", path)
		require.NoError(t, err)
		_, err = db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
		require.NoError(t, db.Close())
		return path
	}
	other := sqlite("other.db", "CREATE TABLE people (name)")
	newer := filepath.Join(dir, "newer.db")
	_, stop := open(t, config(history.StoreSQLite, newer))
	stop()
	sqlite("newer.db", "PRAGMA user_version = 3")
	words := filepath.Join(dir, "words.txt")
	require.NoError(t, os.WriteFile(words, []byte("these are no records at all"), 0o600))
	tests := []struct{ name, path, writer, reader string }{
		{"another program's", other, "not a touchline history", "another program's database"},
		{"newer", newer, "history of version 3, this program reads version 2", "version 3"},
		{"a text", words, "not a database", "expected a SQLite database or a folder with history.db"},
		{"nothing", filepath.Join(dir, "none"), "", "no such file"},
		{"an empty folder", t.TempDir(), "is a directory", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := history.OpenReader(t.Context(), tt.path)
			if tt.reader != "" {
				require.ErrorContains(t, err, tt.reader)
			} else {
				require.NoError(t, err)
				for _, err := range r.Entries(t.Context(), history.Query{Room: "x"}) {
					require.ErrorContains(t, err, "it has no history.db")
				}
				require.NoError(t, r.Close())
			}
			if tt.writer != "" {
				_, err = history.Open(config(history.StoreSQLite, tt.path), zerolog.Nop())
				require.Error(t, err)
			}
		})
	}
	_, err := history.Open(history.Config{Store: "disk"}, zerolog.Nop())
	require.ErrorContains(t, err, `file or sqlite, is "disk"`)
}

// FuzzFolder reads any bytes as a file of a history.
func FuzzFolder(f *testing.F) {
	line, err := json.Marshal(history.Entry{At: start, Room: "match", Record: record(1), Words: []history.Word{{At: 1, Text: "x"}}})
	require.NoError(f, err)
	f.Add(append(line, '\n'))
	f.Add([]byte("{\"at\":\"2026-01-01T00:00:00Z\",\"room\":\"match\",\"words\":[{\"at\":1e300,\"text\":\"a b\"},{\"at\":-5,\"text\":\"\"}]," +
		"\"record\":{\"outcome\":\"spoken\",\"text\":\"a b\",\"started_at\":\"0001-01-01T00:00:01Z\",\"ended_at\":\"9999-01-01T00:00:00Z\"}}\n"))
	f.Add([]byte("\n\n{\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "history.jsonl"), content, 0o600))
		r, err := history.OpenReader(t.Context(), dir)
		require.NoError(t, err)
		var out bytes.Buffer
		q := history.Query{Room: "match"}
		require.NoError(t, history.WriteVTT(&out, r.Entries(t.Context(), q), time.Time{}))
		require.NoError(t, history.WriteSRT(&out, r.Entries(t.Context(), q), start))
		require.NoError(t, history.WriteText(&out, r.Entries(t.Context(), q), time.UTC))
		require.NoError(t, history.WriteJSON(&out, r.Entries(t.Context(), q)))
		require.NoError(t, r.Close())
	})
}

// TestHeard: what people say is kept where that is set, spoken orders always, apart from comments, and can be deleted.
func TestHeard(t *testing.T) {
	t.Parallel()
	said := func(segment, who, text string, after time.Duration) agent.Heard {
		return agent.Heard{
			Segment: segment, Identity: who, Name: strings.ToUpper(who), Text: text, Final: true, Caption: true,
			Began: start.Add(after), Ended: start.Add(after + time.Second),
		}
	}
	for store, name := range stores {
		for _, kept := range []string{history.HeardOff, history.HeardText} {
			t.Run(store+" "+kept, func(t *testing.T) {
				cfg := config(store, filepath.Join(t.TempDir(), name))
				cfg.Heard = kept
				log, stop := open(t, cfg)
				o := log.Room("a", "bot")
				hears, ok := o.(agent.HeardOutput)
				require.True(t, ok)
				interim := said("1", "ann", "who", 0)
				interim.Final = false
				hears.Heard(interim)
				hears.Heard(said("1", "ann", "who has the ball?", 0))
				order := said("2", "ben", "hey touchline, be quiet", time.Second)
				order.Caption, order.Order = false, &agent.SpokenOrder{Text: "be quiet", Command: command.Stop, Effect: "Commenting has stopped."}
				hears.Heard(order)
				vain := said("3", "ben", "hey touchline", 2*time.Second)
				vain.Caption = false
				hears.Heard(vain)
				o.Record(record(1))
				hears.Heard(said("4", "ann", "reds", 3*time.Second))
				stop()
				want := []string{"hey touchline, be quiet"}
				if kept == history.HeardText {
					want = []string{"who has the ball?", "hey touchline, be quiet", "reds"}
				}
				require.Equal(t, want, texts(read(t, cfg.Path, history.Query{Room: "a", Heard: true})))
				require.Equal(t, []uint64{1}, cycles(read(t, cfg.Path, history.Query{Room: "a"})), "not among the records")
				require.Equal(t, order.Order, read(t, cfg.Path, history.Query{Room: "a", Heard: true, By: "ben"})[0].Heard.Order)

				n, err := history.Forget(t.Context(), cfg.Path, history.Query{Room: "a", By: "ann", To: start.Add(time.Second)})
				require.NoError(t, err)
				require.Equal(t, len(want)/2, n)
				n, err = history.Forget(t.Context(), cfg.Path, history.Query{Room: "b"})
				require.NoError(t, err)
				require.Zero(t, n)
				n, err = history.Forget(t.Context(), cfg.Path, history.Query{Room: "a"})
				require.NoError(t, err)
				require.Equal(t, len(want)-len(want)/2, n)
				require.Empty(t, read(t, cfg.Path, history.Query{Room: "a", Heard: true}))
				require.Equal(t, []uint64{1}, cycles(read(t, cfg.Path, history.Query{Room: "a"})), "the comment stays")
				for _, file := range files(cfg.Path) {
					text, _ := os.ReadFile(file) // those that the store has
					require.NotContains(t, string(text), "be quiet")
				}
				open(t, cfg) // a writer takes it as it is
			})
		}
	}
}

// TestAlert: each phase of an alert is an entry with the box of the thing, among the comments unless they are left out.
func TestAlert(t *testing.T) {
	t.Parallel()
	for store, name := range stores {
		t.Run(store, func(t *testing.T) {
			cfg := config(store, filepath.Join(t.TempDir(), name))
			log, stop := open(t, cfg)
			o := log.Room("a", "bot")
			o.Record(record(1))
			out, ok := o.(agent.AlertOutput)
			require.True(t, ok)
			raised := alert.Alert{
				Type: "alert", ID: "r1-1", Phase: alert.PhaseNew, At: start.Add(time.Second), Rule: "r1", Name: "yard", Level: alert.LevelWarning,
				Reason: "A person comes in.", FrameID: 7, Agreed: 1, Looks: 1, Box: &inference.Box{X0: 0.125, Y0: 0.25, X1: 0.5, Y1: 1},
			}
			out.Alert(raised, nil)
			cleared := raised
			cleared.Phase, cleared.At, cleared.Box = alert.PhaseCleared, start.Add(9*time.Second), nil
			out.Alert(cleared, nil)
			stop()
			got := read(t, cfg.Path, history.Query{Room: "a", Alerts: true})
			require.Len(t, got, 2)
			require.Equal(t, []*alert.Alert{&raised, &cleared}, []*alert.Alert{got[0].Alert, got[1].Alert})
			require.Equal(t, []uint64{1}, cycles(read(t, cfg.Path, history.Query{Room: "a", Comments: true})))
			require.Len(t, read(t, cfg.Path, history.Query{Room: "a"}), 3)
		})
	}
}

// files lists the files of a store.
func files(path string) []string {
	db := filepath.Join(path, "history.db")
	return []string{path, path + "-wal", db, db + "-wal"}
}

// texts returns what people said.
func texts(list []history.Entry) (out []string) {
	for _, e := range list {
		out = append(out, e.Heard.Text)
	}
	return out
}

// TestForgetWhileWriting: the writer deletes, of one person or of all, and goes on.
func TestForgetWhileWriting(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{history.StoreFile, history.StoreSQLite} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cfg := config(kind, filepath.Join(t.TempDir(), "records"))
			cfg.Heard = history.HeardText
			log, stop := open(t, cfg)
			o := log.Room("a", "bot")
			say := func(by, text string) {
				o.(agent.HeardOutput).Heard(agent.Heard{Segment: text, Identity: by, Text: text, Final: true, Caption: true, Began: start})
			}
			o.Record(record(1))
			say("ann", "my number is secret")
			say("ben", "so is mine")
			n, err := log.Forget(t.Context(), history.Query{Room: "a", By: "ann"})
			require.NoError(t, err)
			require.Equal(t, 1, n, "what was said just now too")
			require.Equal(t, []string{"so is mine"}, texts(read(t, cfg.Path, history.Query{Room: "a", Heard: true})))
			o.Record(record(2))
			say("ann", "who has the ball?")
			n, err = log.Forget(t.Context(), history.Query{Room: "a"})
			require.NoError(t, err)
			require.Equal(t, 2, n)
			say("ben", "goal")
			stop()
			require.Equal(t, []string{"goal"}, texts(read(t, cfg.Path, history.Query{Room: "a", Heard: true})))
			require.Equal(t, []uint64{1, 2}, cycles(read(t, cfg.Path, history.Query{Room: "a"})))
			for _, file := range files(cfg.Path) {
				text, _ := os.ReadFile(file) // those that the store has
				require.NotContains(t, string(text), "secret")
			}
		})
	}
}
