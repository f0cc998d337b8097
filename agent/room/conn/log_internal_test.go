package conn

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
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
	require.JSONEq(t, `{"level":"warn","component":"livekit","a":1,"b":2,"error":"timeout","message":"no answer"}`, out.String())
	out.Reset()
	ses.SetReconnecting(true)
	log.Errorw("no answer", errors.New("timeout"))
	require.Empty(t, out.String(), "it reconnects")
	require.WithinDuration(t, time.Now(), ses.reconnectingSince, time.Minute)
}
