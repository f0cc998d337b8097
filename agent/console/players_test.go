package console_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/access"
	"touchline/agent/console"
)

// door is a WHEP endpoint that answers with 204 to admitted requests.
type door struct{}

func (door) ServeWHEP(w http.ResponseWriter, _ *http.Request, admitted bool, _ time.Time) {
	if admitted {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.WriteHeader(http.StatusUnauthorized)
}

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
