package control

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/access"
	"touchline/internal/limit"
)

// TestModeratorsAtTheRateOfPeople: five moderators with one link, each of whom gives an order a second and moves a slider now and then, are
// refused nothing in ten minutes.
func TestModeratorsAtTheRateOfPeople(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bot := &quietBot{}
		c := floodedControl(t, bot, zerolog.Nop())
		flood := limit.New[string](floodRate, floodBurst) // before admit
		attributes := Attributes(c.keys, access.Grant{Rights: access.AllInRoom, Links: []string{"0000000000000001"}})
		asked := 0
		for second := range 600 {
			for n := range 5 {
				who := caller{identity: fmt.Sprint("moderator", n), known: true, attributes: attributes}
				requests := 1
				if (second+n*7)%20 == 0 {
					requests = 5
				}
				for range requests {
					_, ok := flood.Allow(who.identity, time.Now())
					require.True(t, ok)
					require.NoError(t, ask(c, who, methodStop, ""))
					asked++
				}
			}
			time.Sleep(time.Second)
		}
		require.Len(t, bot.calls, asked)
	})
}
