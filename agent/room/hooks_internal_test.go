package room

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/room/conn"
)

// TestHooks: each connection calls each hook once, also those of the Control, and those before the join.
func TestHooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls []string
		rooms := map[*lksdk.Room]bool{}
		note := func(what string) func(*lksdk.Room) {
			return func(room *lksdk.Room) {
				rooms[room] = true
				calls = append(calls, what)
			}
		}
		s, err := New(Options{
			URL: "ws://livekit.invalid", Keys: conn.Keys{APIKey: "key", APISecret: "secret"}, Room: "match", Identity: "bot", Log: zerolog.Nop(),
			Hooks: []Hooks{{Created: note("created"), Joined: note("joined"), Left: note("left")}, {Joined: note("joined second")}},
		})
		require.NoError(t, err)
		s.may = conn.ReadyToken{} // nothing is published
		joins := 0
		var session *conn.Session
		s.conn.Enter = func(_ context.Context, ses *conn.Session, _ string) error {
			session = ses
			if joins++; joins == 2 {
				return errors.New("by the script")
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		time.Sleep(time.Second)
		synctest.Wait()
		session.End()
		time.Sleep(time.Minute)
		synctest.Wait()
		cancel()
		require.NoError(t, <-ended)
		once := []string{"created", "joined", "joined second", "left"}
		require.Equal(t, append(append(once, "created", "left"), once...), calls)
		require.Len(t, rooms, 3)
		time.Sleep(time.Second) // the library releases its rooms
	})
}
