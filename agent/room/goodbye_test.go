//go:build integration

package room_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/stretchr/testify/require"

	"touchline/agent/room"
)

// TestGoodbyeIsHeard: a bot that leaves is out of the room at once, not when
// the server has missed it for 20 s. The library closes its connection right
// behind its goodbye, which the server may then never read.
func TestGoodbyeIsHeard(t *testing.T) {
	const (
		rounds = 6
		bots   = 10 // at once, which is when it happens
	)
	s := startServer(t)
	api := lksdk.NewRoomServiceClient(s.URL(), s.APIKey(), s.APISecret())
	var slowest time.Duration
	for round := range rounds {
		name := fmt.Sprintf("round-%d", round)
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan error, bots)
		var sups []*room.Supervisor
		for i := range bots {
			sup, err := room.New(room.Options{
				URL: s.URL(), Keys: s.keys(), Room: name, Identity: fmt.Sprintf("bot-%d", i), LoopbackOnly: true, Log: testLog(t),
			})
			require.NoError(t, err)
			sups = append(sups, sup)
			go func() { ended <- sup.Run(ctx) }()
		}
		for _, sup := range sups {
			require.Eventually(t, func() bool { return sup.VoiceSID() != "" }, patience, 5*time.Millisecond)
		}
		began := time.Now()
		leave()
		for range bots {
			require.NoError(t, <-ended)
		}
		slowest = max(slowest, time.Since(began))
		// A participant that the server has only missed stays for 20 s.
		require.Eventually(t, func() bool {
			in, err := api.ListParticipants(t.Context(), &livekit.ListParticipantsRequest{Room: name})
			return err != nil || len(in.GetParticipants()) == 0
		}, 2*time.Minute, 20*time.Millisecond, "round %d", round)
	}
	t.Logf("the slowest round of leaves took %v", slowest)
}
