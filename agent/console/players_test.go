package console_test

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/access"
	"touchline/agent/console"
	"touchline/agent/whep"
	"touchline/internal/metrics"
	"touchline/media/signaling"
)

// door is a WHEP endpoint that answers with 204 to admitted requests.
type door struct{}

func (door) ServeWHEP(w http.ResponseWriter, _ *http.Request, a signaling.Admission) {
	if a.Admitted {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.WriteHeader(http.StatusUnauthorized)
}

func (door) Metrics() prometheus.Collector { return metrics.Bundle{} }

func (door) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// TestPlayersOfOtherRooms: a token for a room admits no player to a room whose name begins with that of the first and a slash, or
// with a slash.
func TestPlayersOfOtherRooms(t *testing.T) {
	t.Parallel()
	keys := access.Keys{APIKey: "key", APISecret: "a secret of thirty-two characters or more"}
	r := open(t, console.Options{
		Keys: keys, WHEP: door{}, Config: console.Config{Listen: "0.0.0.0:0"},
		Room: console.Room{Name: "club", Bot: newDesk(), Tokens: mint{}},
	}, console.Unlimited)
	header := []string{"Authorization", "Bearer " + granted(t, keys, access.Watch, "club", "a/b")}
	for path, status := range map[string]int{
		"club": http.StatusNoContent, "club/session": http.StatusNoContent, "a%2Fb": http.StatusNoContent, "a%2fb/session": http.StatusNoContent,
		"club%2Fboard": http.StatusUnauthorized, "%2Fboard": http.StatusUnauthorized, "%2F": http.StatusUnauthorized,
		"": http.StatusUnauthorized, "a": http.StatusUnauthorized, "a/b/c": http.StatusUnauthorized, "other": http.StatusUnauthorized,
	} {
		require.Equal(t, status, r.ask("POST", "/whep/"+path, "", header...).status, path)
	}
}

// TestPlayersThatGuess: wrong tokens and cookies of players are limited and logged as wrong cookies are. Right ones are not limited.
func TestPlayersThatGuess(t *testing.T) {
	t.Parallel()
	players, err := whep.New(whep.Options{
		Now: time.Now, Bounds: signaling.Bounds{PerMinute: -1}, PortOptions: signaling.PortOptions{LoopbackOnly: true},
		Verify: func(token, _ string) (_ string, _ signaling.Right, err error) {
			if token != "livekit" {
				err = signaling.ErrNoToken
			}
			return "", nil, err
		},
	})
	require.NoError(t, err)
	const token = "correct-horse-battery"
	var log bytes.Buffer
	r := open(t, console.Options{
		WHEP: players, Config: console.Config{Token: token}, Log: zerolog.New(zerolog.SyncWriter(&log)),
		Room: console.Room{Name: "club", Bot: newDesk(), Tokens: mint{}},
	})
	ask := func(method string, header ...string) int { return r.ask(method, "/whep/club", "", header...).status }
	for range 100 {
		require.Equal(t, http.StatusUnsupportedMediaType, ask("POST", "Authorization", "Bearer livekit", "Cookie", "touchline_token=old"))
		require.Equal(t, http.StatusUnauthorized, ask("POST"))
	}
	statuses := map[int]int{}
	for i := range 300 {
		statuses[ask("POST", "Authorization", "Bearer wrong"+strconv.Itoa(i))]++
		statuses[ask("POST", "Cookie", "touchline_token=wrong"+strconv.Itoa(i))]++
	}
	require.Greater(t, statuses[http.StatusTooManyRequests], 300, "%v", statuses)
	require.Equal(t, http.StatusUnsupportedMediaType, ask("POST", "Authorization", "Bearer "+token))
	r.close()
	require.Contains(t, log.String(), "login refused")
	require.NotContains(t, log.String(), "wrong")
}
