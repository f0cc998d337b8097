package conn

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// TestLogWhileTheServerIsAway: of each attempt one line of ours at warning level, with units, and those of the
// client library at debug level.
func TestLogWhileTheServerIsAway(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := zerolog.New(zerolog.SyncWriter(&out))
	outages, err := joinAt(t, "ws://127.0.0.1:7401", log)
	require.NoError(t, err)
	own, library := 0, 0
	for line := range bytes.Lines(out.Bytes()) {
		var entry map[string]any
		require.NoError(t, json.Unmarshal(line, &entry))
		if entry["component"] == "livekit" {
			library++
			require.Contains(t, []any{"debug", "trace"}, entry["level"], string(line))
			continue
		}
		own++
		require.Equal(t, "reconnecting to the room", entry["message"])
		require.Contains(t, entry, "retry_in_ms")
	}
	require.Equal(t, outages, own)
	require.NotZero(t, library)
}

// TestLibraryErrorsInARoom: nothing of ours reports these, so they are warnings.
func TestLibraryErrorsInARoom(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	ses := NewSession(nil)
	log := libraryLogger(zerolog.New(&out).Level(zerolog.InfoLevel), ses.quiet).WithValues("a", 1)
	log.Errorw("no answer", errors.New("timeout"), "b", 2)
	require.Empty(t, out.String(), "it joins")
	ses.in.Store(true)
	log.Infow("some detail")
	log.Errorw("no answer", errors.New("timeout"), "b", 2)
	require.JSONEq(t, `{"level":"warn","component":"livekit","a":1,"b":2,"error":"timeout","so_far":1,"message":"no answer"}`, out.String())
	out.Reset()
	ses.SetReconnecting(true)
	log.Errorw("no answer", errors.New("timeout"))
	require.Empty(t, out.String(), "it reconnects")
	require.WithinDuration(t, time.Now(), ses.reconnectingSince, time.Minute)
}

// TestLibraryFlood: participants cause warnings of the library at any rate, with any text. One in ten seconds is logged, with the count.
func TestLibraryFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := libraryLogger(zerolog.New(&out).Level(zerolog.InfoLevel), func() bool { return false })
		long := strings.Repeat("\u00fc", 5000)
		for range 2 {
			for range 100 {
				log.WithValues("a", long).Errorw("no such request", errors.New(long), "id", long, "cause", errors.New(long))
				time.Sleep(libraryWarnEvery / 1000)
			}
			time.Sleep(libraryWarnEvery)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		require.Len(t, lines, 2)
		require.Contains(t, lines[1], `"so_far":101,`)
		for _, line := range lines {
			require.Contains(t, line, "no such request")
			require.Less(t, len(line), 6*maxField)
		}
	})
}
