package main

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/internal/contract"
)

func TestParseMoment(t *testing.T) {
	zone := time.FixedZone("", 2*3600)
	now := time.Date(2026, 5, 1, 21, 0, 0, 0, zone)
	tests := []struct {
		text string
		want time.Time
	}{
		{"", time.Time{}},
		{"2026-05-01T20:15:00Z", time.Date(2026, 5, 1, 20, 15, 0, 0, time.UTC)},
		{"2026-05-01T20:15:00.5+02:00", time.Date(2026, 5, 1, 20, 15, 0, 5e8, zone)},
		{"2026-05-01 20:15", time.Date(2026, 5, 1, 20, 15, 0, 0, zone)},
		{"2026-05-01T20:15:07", time.Date(2026, 5, 1, 20, 15, 7, 0, zone)},
		{"2026-05-01", time.Date(2026, 5, 1, 0, 0, 0, 0, zone)},
		{"20:15", time.Date(2026, 5, 1, 20, 15, 0, 0, zone)},
		{"20:15:07", time.Date(2026, 5, 1, 20, 15, 7, 0, zone)},
		{"90m", time.Date(2026, 5, 1, 19, 30, 0, 0, zone)},
	}
	for _, tt := range tests {
		got, err := parseMoment(tt.text, now)
		require.NoError(t, err, tt.text)
		require.True(t, got.Equal(tt.want), "%q: %v", tt.text, got)
	}
	for _, bad := range []string{"yesterday", "-2h", "25:00", "2026-13-01"} {
		_, err := parseMoment(bad, now)
		require.ErrorContains(t, err, "expected a time such as")
	}
}

// TestHistoryRefuses: each error names the remedy.
func TestHistoryRefuses(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for _, tt := range []struct {
		name string
		cmd  historyCmd
		want string
	}{
		{"no path", historyCmd{Room: "match"}, "--store"},
		{"no store", historyCmd{Room: "match", Store: none}, none},
		{"negative number", historyCmd{Room: "match", Store: none, Last: -1}, "--last"},
		{"deletes comments", historyCmd{Room: "match", Store: none, Delete: true}, "--heard"},
		{"deletes in every room", historyCmd{Store: none, Heard: true, Delete: true}, "a room"},
		{"nothing to delete from", historyCmd{Room: "match", Store: none, Heard: true, Delete: true}, none},
		{"no time", historyCmd{Room: "match", Store: none, From: "yesterday"}, "--from: expected a time"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.ErrorContains(t, tt.cmd.Run(t.Context(), &app{}), tt.want)
			_, err := os.Stat(none)
			require.ErrorIs(t, err, os.ErrNotExist, "looking makes none")
		})
	}
}

// TestHistoryLines: without a room, jsonl has the lines that an earlier version wrote, read from its folder, from the
// database that it is imported into, and from its database.
func TestHistoryLines(t *testing.T) {
	t.Parallel()
	dir := contract.Unpack(t, moduleRoot+"/internal/contract/testdata/9b77654.tar.gz")
	folder := filepath.Join(dir, "history")
	var want []string
	for _, name := range []string{"history-20000102T060031.200Z.jsonl.gz", "history-20000103T120059.200Z.jsonl", "history.jsonl"} {
		var text io.Reader
		f, err := os.Open(filepath.Join(folder, name))
		require.NoError(t, err)
		if text = f; strings.HasSuffix(name, ".gz") {
			text, err = gzip.NewReader(f)
			require.NoError(t, err)
		}
		all, err := io.ReadAll(text)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		lines := strings.Split(string(all), "\n")
		want = append(want, lines[:len(lines)-1]...) // without a torn last one
	}
	lines := func(store string) []string {
		stdout, stderr, code := touchline(t, "history", "--store", filepath.Join(dir, store), "-f", "jsonl")
		require.Zero(t, code, stderr)
		return strings.Split(strings.TrimSpace(stdout), "\n")
	}
	require.Equal(t, want, lines("history"))
	require.ElementsMatch(t, want, lines("history.db"))
	_, stderr, code := touchline(t, "history", "--store", folder, "-f", "jsonl", "--follow")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "start the bot first")

	for _, format := range []string{"srt", "vtt"} {
		_, stderr, code = touchline(t, "history", "nowhere", "--store", folder, "-f", format)
		require.Equal(t, 1, code)
		require.Contains(t, stderr, `room "nowhere" is not in the history of `+folder+`, which has "`)
	}

	stdout, stderr, code := touchline(t, "history", "match", "--store", folder, "--heard", "--by", "ana", "--delete")
	require.Zero(t, code, stderr)
	require.Equal(t, "deleted: 3\n", stdout)
	require.Len(t, lines("history"), len(want)-3)
	_, stderr, code = touchline(t, "history", "match", "--store", folder, "--follow")
	require.NotZero(t, code)
	require.Contains(t, stderr, "--follow goes with --format jsonl")
}
