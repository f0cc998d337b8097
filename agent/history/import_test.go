package history_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/history"
	"touchline/agent/look"
	"touchline/internal/contract"
)

// everything chooses all entries.
var everything = history.Query{Everything: true}

// lines are the JSON lines of records, as earlier versions wrote them.
func lines(t *testing.T, from, to uint64, size int) string {
	t.Helper()
	var out strings.Builder
	for i := from; i <= to; i++ {
		r := record(i)
		r.Instruction = noise(size)
		text, err := json.Marshal(history.Entry{At: r.StartedAt, Room: "match", Identity: "bot", Record: r})
		require.NoError(t, err)
		out.Write(append(text, '\n'))
	}
	return out.String()
}

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
}

func zipped(t *testing.T, content string) string {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write([]byte(content))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return out.String()
}

// snapshot returns the contents of the old files of a folder.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	names, err := filepath.Glob(filepath.Join(dir, "history*.jsonl*"))
	require.NoError(t, err)
	for _, path := range names {
		name := filepath.Base(path)
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		out[name] = string(text)
	}
	return out
}

// TestImport: the first start has what an earlier version left in the folder, a later one the same, and the files stay.
func TestImport(t *testing.T) {
	t.Parallel()
	cfg := config(history.StoreFile, filepath.Join(contract.Unpack(t, "../../internal/contract/testdata/9b77654.tar.gz"), "history"))
	cfg.MaxAge = 0 // the entries are from the year 2000
	before, old := read(t, cfg.Path, everything), snapshot(t, cfg.Path)
	require.Len(t, before, 48)
	require.Len(t, old, 3)
	for range 3 {
		log, stop := open(t, cfg)
		last, err := log.Last(t.Context(), "match", 2)
		require.NoError(t, err)
		require.Equal(t, "Tor für Süd!", last[1].Text)
		stop()
		require.ElementsMatch(t, before, read(t, cfg.Path, everything))
	}
	require.Equal(t, old, snapshot(t, cfg.Path))
	log, stop := open(t, cfg)
	log.Room("match", "bot").Record(record(1))
	stop()
	require.Len(t, read(t, cfg.Path, everything), 49)

	// What is deleted is gone from the history and from the old files, which keep the rest.
	n, err := history.Forget(t.Context(), cfg.Path, history.Query{Room: "match", By: "ana"})
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Empty(t, read(t, cfg.Path, history.Query{Room: "match", Heard: true, By: "ana"}))
	require.NoError(t, os.Remove(filepath.Join(cfg.Path, "history.db")))
	require.Empty(t, read(t, cfg.Path, history.Query{Room: "match", Heard: true, By: "ana"}))
	require.Len(t, read(t, cfg.Path, everything), 45)
	require.Len(t, snapshot(t, cfg.Path), 3)
}

// TestForgetInstructions: comments stay, without the instruction that was a deleted order, in the database and in old files of all forms.
func TestForgetInstructions(t *testing.T) {
	t.Parallel()
	cfg := config(history.StoreFile, t.TempDir())
	var text strings.Builder
	for i, instruction := range []string{"my secret", "my secret", "something else"} {
		r := record(uint64(i + 1))
		r.Instruction = instruction
		room := "match"
		if i == 1 {
			room = "other"
		}
		line, err := json.Marshal(history.Entry{At: r.StartedAt, Room: room, Identity: "bot", Record: r})
		require.NoError(t, err)
		text.Write(append(line, '\n'))
	}
	order := agent.Heard{
		Segment: "1", Identity: "ann", Text: "hey touchline, my secret.", Final: true, Began: start.Add(time.Second),
		Order: &agent.SpokenOrder{Text: "my secret."},
	}
	line, err := json.Marshal(history.Entry{At: order.Began, Room: "match", Identity: "bot", Heard: &order})
	require.NoError(t, err)
	text.Write(append(line, '\n'))
	put(t, cfg.Path, "history-20260101T000000.000Z.jsonl.gz", zipped(t, text.String()))
	put(t, cfg.Path, "history-20260101T000000.000Z.jsonl", text.String())
	put(t, cfg.Path, "history-20260102T000000.000Z.jsonl.gz", "no gzip")
	instructions := func() (list []string) {
		for _, e := range read(t, cfg.Path, everything) {
			list = append(list, e.Record.Instruction)
		}
		return list
	}
	_, err = history.Forget(t.Context(), cfg.Path, history.Query{Room: "match", By: "ann"})
	require.ErrorContains(t, err, "history-20260102T000000.000Z.jsonl.gz")
	require.NoError(t, os.Remove(filepath.Join(cfg.Path, "history-20260102T000000.000Z.jsonl.gz")))
	n, err := history.Forget(t.Context(), cfg.Path, history.Query{Room: "match", By: "ann"})
	require.NoError(t, err)
	require.Zero(t, n, "the first call deleted it")
	require.ElementsMatch(t, []string{"", "my secret", "something else"}, instructions(), "of the other room too")
	require.NoError(t, os.Remove(filepath.Join(cfg.Path, "history.db")))
	for range 2 { // compressed, and not
		require.ElementsMatch(t, []string{"", "my secret", "something else"}, instructions())
		_ = os.Remove(filepath.Join(cfg.Path, "history-20260101T000000.000Z.jsonl.gz"))
	}
}

// TestForgetImports: what people said is deleted also where no program of this version has run yet.
func TestForgetImports(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(contract.Unpack(t, "../../internal/contract/testdata/9b77654.tar.gz"), "history")
	n, err := history.Forget(t.Context(), dir, history.Query{Room: "match"})
	require.NoError(t, err)
	require.Equal(t, 6, n)
	require.Empty(t, read(t, dir, history.Query{Room: "match", Heard: true}))
	require.Len(t, read(t, dir, everything), 42)
}

// TestFolder: what is no entry is skipped, a damaged file hides no other, and of a file in two forms each entry comes
// once; read from the folder, and imported.
func TestFolder(t *testing.T) {
	t.Parallel()
	cfg := config(history.StoreFile, t.TempDir())
	a, b, c := lines(t, 1, 3, 10), lines(t, 4, 6, 10), lines(t, 7, 9, 10)
	put(t, cfg.Path, "history-20260101T000000.000Z.jsonl.gz", zipped(t, a))
	put(t, cfg.Path, "history-20260101T000000.000Z.jsonl", a) // its compression was interrupted before the end
	put(t, cfg.Path, "history-20260102T000000.000Z.jsonl", b)
	put(t, cfg.Path, "history-20260102T000000.000Z.jsonl.gz.tmp", "half")
	torn := "null\n[]\n{\"room\":\"match\"}\n\n" + strings.Repeat("y", 2<<20) + "\n" + c + c[:len(c)/4]
	put(t, cfg.Path, "history.jsonl", torn)
	require.Equal(t, count(1, 9), cycles(read(t, cfg.Path, history.Query{Room: "match"})))
	require.Equal(t, count(6, 9), cycles(read(t, cfg.Path, history.Query{Room: "match", Last: 4})))
	put(t, cfg.Path, "history-20260103T000000.000Z.jsonl.gz", "no gzip")
	r, err := history.OpenReader(t.Context(), cfg.Path)
	require.NoError(t, err)
	good, bad := 0, 0
	for _, err := range r.Entries(t.Context(), everything) {
		if good++; err != nil {
			require.ErrorContains(t, err, "history-20260103T000000.000Z.jsonl.gz")
			bad++
		}
	}
	require.Equal(t, []int{10, 1}, []int{good, bad})
	require.NoError(t, r.Close())
	_, stop := open(t, cfg)
	stop()
	require.Equal(t, count(1, 9), cycles(read(t, cfg.Path, history.Query{Room: "match"})))
}

// TestImportBounds: of a folder larger than max_bytes the newest entries are imported.
func TestImportBounds(t *testing.T) {
	t.Parallel()
	cfg := config(history.StoreFile, t.TempDir())
	cfg.MaxBytes = 1 << 20
	for i := range uint64(10) {
		put(t, cfg.Path, fmt.Sprintf("history-202601%02dT000000.000Z.jsonl", i+1), lines(t, i*50+1, i*50+50, 5000))
	}
	for range 2 {
		_, stop := open(t, cfg)
		stop()
		got := cycles(read(t, cfg.Path, history.Query{Room: "match"}))
		require.Equal(t, count(got[0], 500), got)
		require.Greater(t, got[0], uint64(200))
		require.Less(t, got[0], uint64(450))
	}
}

// TestFollow: entries come as they are written, of all rooms, and each once.
func TestFollow(t *testing.T) {
	t.Parallel()
	cfg := config(history.StoreFile, filepath.Join(t.TempDir(), "records"))
	log, stop := open(t, cfg)
	log.Room("match", "bot").Record(record(1))
	require.Eventually(t, func() bool { return log.Written() == 1 }, time.Minute, time.Millisecond)
	for _, past := range []bool{false, true} {
		r, err := history.OpenReader(t.Context(), cfg.Path)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var out bytes.Buffer
		ended := make(chan error, 1)
		go func() {
			follow := r.(history.Follower).Follow(ctx, everything, past)
			ended <- history.WriteLines(writer(func(p []byte) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				return out.Write(p)
			}), follow)
		}()
		has := func(words string) func() bool {
			return func() bool {
				mu.Lock()
				defer mu.Unlock()
				return strings.Contains(out.String(), words)
			}
		}
		n := uint64(100)
		require.Eventually(t, func() bool { // it may begin late
			n++
			log.Room("yard", "bot").Record(look.Record{Cycle: n, Outcome: look.OutcomeShown, Text: "it has begun", StartedAt: time.Now()})
			return has("it has begun")()
		}, time.Minute, 20*time.Millisecond)
		log.Room("match", "bot").Record(look.Record{Cycle: 7, Outcome: look.OutcomeSilent, Reason: "nothing new"})
		require.Eventually(t, has("nothing new"), time.Minute, time.Millisecond)
		require.Equal(t, past, has(`"cycle":1,`)())
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, r.Close())
		seen := map[string]int{}
		for line := range strings.Lines(out.String()) {
			seen[line]++
			require.Equal(t, 1, seen[line], line)
			require.True(t, json.Valid([]byte(line)))
		}
	}
	stop()
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// TestFollowFolder: only a database can be followed.
func TestFollowFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "history.jsonl", lines(t, 1, 1, 10))
	r, err := history.OpenReader(t.Context(), dir)
	require.NoError(t, err)
	_, ok := r.(history.Follower)
	require.False(t, ok)
	require.NoError(t, r.Close())
}
