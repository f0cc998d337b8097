package console_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"touchline/agent/access"
	"touchline/agent/console"
)

// socket opens a live transcription socket with a token.
func (r *running) socket(path, token string) *websocket.Conn {
	r.t.Helper()
	conn, res, err := websocket.DefaultDialer.DialContext(r.t.Context(), "ws"+strings.TrimPrefix(r.url(path), "http"),
		http.Header{"Authorization": {"Bearer " + token}})
	require.NoError(r.t, err)
	require.NoError(r.t, res.Body.Close())
	r.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestTextsOfAnotherLink: the last words of a client that has disconnected are for its own link.
func TestTextsOfAnotherLink(t *testing.T) {
	t.Parallel()
	keys := access.Keys{APIKey: "key", APISecret: "a secret of thirty-two characters or more"}
	api := transcriber()
	r := open(t, console.Options{
		Keys: keys, Config: console.Config{Listen: "0.0.0.0:0"}, Transcription: api,
		Room: console.Room{Name: "final", Bot: newDesk(), Tokens: mint{}},
	}, console.Unlimited)
	const path = "/ws/transcribe?use_server_vad=0&request_id=1"
	mine, other := granted(t, keys, access.Transcribe, "final"), granted(t, keys, access.AllInRoom, "final")
	text := func(conn *websocket.Conn) (m struct {
		Text string `json:"text"`
	},
	) {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
		require.NoError(t, conn.ReadJSON(&m))
		return m
	}

	conn := r.socket(path, mine)
	text(conn)                                                                                            // connected
	require.NoError(t, conn.WriteMessage(websocket.BinaryMessage, slices.Repeat([]byte{0, 0x20}, 16000))) // the word 256
	require.NoError(t, conn.Close())
	require.Eventually(t, func() bool { return api.Health().Sessions == 0 }, time.Minute, time.Millisecond)

	conn = r.socket(path, other)
	text(conn)
	require.NoError(t, conn.WriteJSON(map[string]string{"action": "flush"}))
	require.Empty(t, text(conn).Text, "another client chose the same id")
	conn = r.socket(path, mine)
	text(conn)
	require.Equal(t, "w256", text(conn).Text)
}
