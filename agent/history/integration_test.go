//go:build integration

package history_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/agent"
	"touchline/agent/history"
)

// writerVariable turns the test program into a writer that is to be killed.
const writerVariable = "HISTORY_TEST_WRITER"

// importing is the value of writerVariable for a process that imports a folder and ends.
const importing = "import"

func TestMain(m *testing.M) {
	if store := os.Getenv(writerVariable); store != "" {
		run := write
		if store == importing {
			run = takeFolder
		}
		if err := run(store, os.Args[len(os.Args)-1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// write puts numbered records into a store as fast as they are taken, and says
// how many are written, until it is killed.
func write(store, path string) error {
	log, err := history.Open(config(store, path), zerolog.New(os.Stderr))
	if err != nil {
		return err
	}
	go func() { _ = log.Run(context.Background()) }()
	out := log.Room("match", "bot")
	tick := time.NewTicker(200 * time.Microsecond)
	for i := uint64(1); ; i++ {
		<-tick.C
		out.Caption(agent.Caption{Cycle: i, Delta: text(i)})
		out.Record(record(i))
		if i%50 == 0 {
			fmt.Println(log.Written(), i)
		}
	}
}

// takeFolder imports a folder.
func takeFolder(_, path string) error {
	log, err := history.Open(config(history.StoreFile, path), zerolog.New(os.Stderr))
	if err != nil {
		return err
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return log.Run(ended)
}

// TestKilledImport kills the import of a folder again and again: then it has each entry once, and until then the folder is
// read as it was.
func TestKilledImport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const files, each = 20, 500
	for i := range uint64(files) {
		put(t, dir, fmt.Sprintf("history-20260101T0000%02d.000Z.jsonl.gz", i), zipped(t, lines(t, i*each+1, i*each+each, 50)))
	}
	kills, ended := 0, false
	for delay := 50 * time.Millisecond; !ended; delay += delay / 2 {
		ctx, cancel := context.WithTimeout(t.Context(), delay)
		child := exec.CommandContext(ctx, os.Args[0], dir)
		child.Env = append(os.Environ(), writerVariable+"="+importing)
		child.Stderr = os.Stderr
		err := child.Run()
		ended = err == nil
		if !ended {
			require.Error(t, ctx.Err(), "%v", err)
			kills++
		}
		cancel()
		require.Equal(t, count(1, files*each), cycles(read(t, dir, history.Query{Room: "match"})))
	}
	t.Logf("%d kills", kills)
	require.Positive(t, kills)
}

// TestKilledWriter kills a writer again and again: each entry that it reported as written is
// stored once, in order.
func TestKilledWriter(t *testing.T) {
	t.Parallel()
	for store, name := range stores {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), name)
			had := 0
			for round := range 6 {
				child := exec.Command(os.Args[0], path)
				child.Env = append(os.Environ(), writerVariable+"="+store)
				child.Stderr = os.Stderr
				out, err := child.StdoutPipe()
				require.NoError(t, err)
				require.NoError(t, child.Start())
				var written, given int
				enough := 150 + round*211
				for lines := bufio.NewScanner(out); lines.Scan(); {
					_, err := fmt.Sscan(lines.Text(), &written, &given)
					require.NoError(t, err, lines.Text())
					if written >= enough {
						break
					}
				}
				require.NoError(t, child.Process.Kill())
				_ = child.Wait()
				require.GreaterOrEqual(t, written, enough)

				got := cycles(read(t, path, history.Query{Room: "match"}))
				// The records of each round are numbered from 1; those before are as they were.
				seen := map[uint64]int{} // in order of their times, which are the same in each round
				for _, c := range got {
					seen[c]++
				}
				require.Equal(t, round+1, seen[1])
				require.GreaterOrEqual(t, len(got), had+written)
				had = len(got)
			}
		})
	}
}

// TestDiskBusy: outputs never wait for a store that takes nothing; what does
// not fit the queue is lost and counted, the rest is written afterwards.
func TestDiskBusy(t *testing.T) {
	t.Parallel()
	cfg := config(history.StoreSQLite, filepath.Join(t.TempDir(), "records.db"))
	log, stop := open(t, cfg)
	db, err := sql.Open("sqlite", cfg.Path)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	_, err = conn.ExecContext(t.Context(), "BEGIN EXCLUSIVE")
	require.NoError(t, err)

	out := log.Room("match", "bot")
	const given = 5000
	for i := uint64(1); i <= given; i++ {
		out.Record(record(i))
	}
	require.Positive(t, log.Lost())
	require.Zero(t, log.Written())
	metrics := prometheus.NewPedanticRegistry()
	require.NoError(t, metrics.Register(log.Collector()))
	families, err := metrics.Gather()
	require.NoError(t, err)
	require.Len(t, families, 3)
	require.Equal(t, "touchline_history_lost_total", families[0].GetName())
	require.Equal(t, float64(log.Lost()), families[0].GetMetric()[0].GetCounter().GetValue())

	// Longer than an attempt waits, so that one fails and is made again.
	select {
	case <-time.After(2500 * time.Millisecond):
	case <-t.Context().Done():
	}
	_, err = conn.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.Eventually(t, func() bool { return log.Written()+log.Lost() == given }, 2*time.Minute, 10*time.Millisecond)
	stop()
	require.Len(t, read(t, cfg.Path, history.Query{Room: "match"}), int(log.Written()))
}

// TestFFmpegReadsSubtitles: ffmpeg finds the same cues with the same words.
func TestFFmpegReadsSubtitles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, write := range map[string]func(*bytes.Buffer) error{
		"a.srt": func(b *bytes.Buffer) error { return history.WriteSRT(b, entries(match()...), kickOff) },
		"a.vtt": func(b *bytes.Buffer) error { return history.WriteVTT(b, entries(match()...), kickOff) },
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			require.NoError(t, write(&b))
			path := filepath.Join(dir, name)
			require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
			probe, err := exec.CommandContext(t.Context(), "ffprobe", "-v", "error", "-show_entries", "packet=pts_time,duration_time",
				"-of", "json", path).Output()
			require.NoError(t, err)
			var packets struct {
				Packets []struct {
					PTS      string `json:"pts_time"`
					Duration string `json:"duration_time"`
				} `json:"packets"`
			}
			require.NoError(t, json.Unmarshal(probe, &packets))
			require.Len(t, packets.Packets, 7)
			require.Equal(t, "2.000000", packets.Packets[0].PTS)
			require.Equal(t, "5.000000", packets.Packets[1].Duration)

			// Decoded and written again without its markup.
			out, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-i", path, "-c:s", "text", "-f", "srt", "-").CombinedOutput()
			require.NoError(t, err, string(out))
			text := strings.NewReplacer("\u2060", "", "\r", "").Replace(string(out))
			for _, want := range []string{
				"Kick-off.", "The striker turns and shoots from the edge\nof the penalty area, but the goalkeeper", "holds the ball.",
				"<b>Tom</b> & ", "Jerry --> goal", "42 minutes gone",
			} {
				require.Contains(t, text, want)
			}
			if name == "a.srt" { // from WebVTT, where braces mean nothing, this ffmpeg takes them away
				require.Contains(t, text, `{\an8}Jerry`)
			}
		})
	}
}
