package control

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/access"
	"touchline/agent/room/conn"
	"touchline/internal/clocktest"
)

// TestRequestsFromBeforeAStandstill are refused.
func TestRequestsFromBeforeAStandstill(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := &Control{}
	c.still.Check(now)
	require.ErrorIs(t, c.admit(&caller{identity: "a"}, nil, now.Add(time.Minute)), errBusy)
}

// TestMessagesThatWaitedInAStandstill are not carried out, also if the bot has a new connection meanwhile. Those that came afterwards are.
func TestMessagesThatWaitedInAStandstill(t *testing.T) {
	t.Parallel()
	for _, joins := range []bool{false, true} {
		t.Run(fmt.Sprintf("joins=%v", joins), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				bot := &quietBot{}
				c := floodedControl(t, bot, zerolog.Nop())
				say := func(who caller, message string) {
					c.enqueue(inbound{room: lksdk.NewRoom(nil), who: who}, []byte(message), time.Now())
				}
				boss := caller{identity: "boss", known: true}
				c.still.Check(time.Now())
				say(boss, `{"method":"stop"}`)
				say(caller{identity: "ann", known: true, subscribes: true}, `{"method":"history"}`)
				time.Sleep(time.Minute) // the process stands still
				if joins {
					c.Register(lksdk.NewRoom(nil))
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- c.Run(ctx) }()
				time.Sleep(time.Hour) // the library waits for a connection before each answer
				c.still.Check(time.Now())
				time.Sleep(3 * time.Second)
				require.Empty(t, bot.calls)
				require.EqualValues(t, 2, c.Refused().Stale)
				say(boss, `{"method":"stop"}`)
				time.Sleep(time.Hour)
				cancel()
				require.ErrorIs(t, <-ended, context.Canceled)
				require.Equal(t, []string{"stop by room: boss"}, bot.calls)
			})
		})
	}
}

// TestRightsAndTheWallClock: rights end at a time of the wall clock, whichever way it is set.
func TestRightsAndTheWallClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	who := caller{identity: "a", known: true, attributes: Attributes(conn.Keys{}, access.Grant{Rights: access.AllInRoom, Expires: now.Add(30 * time.Minute)})}
	for step, over := range map[time.Duration]bool{0: false, -time.Hour: false, time.Hour: true, 31 * 24 * time.Hour: true} {
		require.Equal(t, over, (&Control{}).ended(who, clocktest.Step(now, step)) != nil, step)
	}
}
