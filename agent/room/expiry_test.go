//go:build integration

package room_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/stretchr/testify/require"

	"touchline/agent/access"
	"touchline/agent/agenttest"
	"touchline/agent/room"
	"touchline/agent/room/conn"
	"touchline/agent/room/control"
	"touchline/internal/clocktest"
)

// TestRightsEnd: a participant whose rights end is removed, and may not come back; others stay.
func TestRightsEnd(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	asked := control.New(control.Config{}, s.keys(), &agenttest.Steered{}, nil, nil, testLog(t))
	bot := startBot(t, s, func(o *room.Options) { o.Control = asked })
	run(t, func(ctx context.Context) error { _ = asked.Run(ctx); return nil })
	join := func(identity string, until time.Time) (token string) {
		token, err := conn.ViewerToken(s.keys(), conn.Person{
			Room: "match", Identity: identity, Attributes: control.Attributes(s.keys(), access.Grant{Rights: access.AllInRoom, Expires: until}), Until: until,
		})
		require.NoError(t, err)
		guest, err := lksdk.ConnectToRoomWithToken(s.URL(), token, nil)
		require.NoError(t, err)
		t.Cleanup(guest.Disconnect)
		return token
	}
	join("stays", time.Now().Add(time.Hour))
	token := join("ends", time.Now().Add(20*time.Second))
	eventually(t, func() bool { return slices.Contains(bot.Instructors(bot.CurrentRoom()), "stays") }, "it instructs")

	api := lksdk.NewRoomServiceClient(s.URL(), s.APIKey(), s.APISecret())
	there := func() (out []string) {
		in, err := api.ListParticipants(t.Context(), &livekit.ListParticipantsRequest{Room: "match"})
		if err != nil {
			return nil
		}
		for _, p := range in.GetParticipants() {
			out = append(out, p.GetIdentity())
		}
		slices.Sort(out)
		return out
	}
	eventually(t, func() bool { return slices.Equal(there(), []string{"bot", "stays"}) }, "removed")
	require.Equal(t, []string{"stays"}, bot.Instructors(bot.CurrentRoom()))

	// The server accepts a token for a minute longer.
	again, err := lksdk.ConnectToRoomWithToken(s.URL(), token, nil)
	if err == nil {
		t.Cleanup(again.Disconnect)
	}
	require.Equal(t, []string{"stays"}, bot.Instructors(bot.CurrentRoom()), "without rights")
	eventually(t, func() bool { return slices.Equal(there(), []string{"bot", "stays"}) }, "removed again")
}

// TestRevokedInTheRoom: a participant whose link is revoked is removed, and another commentator of the room, in a process of its own, takes
// over the revocation, both within five seconds of each try. As long as a busy machine wakes this process late, so may they be.
func TestRevokedInTheRoom(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	commentator := func(identity string) access.Keys {
		keys := s.keys()
		keys.Links = access.NewLinks(nil, func(string, json.RawMessage) {}, time.Now())
		asked := control.New(control.Config{}, keys, &agenttest.Steered{}, nil, nil, testLog(t))
		startBot(t, s, func(o *room.Options) { o.Control, o.Keys, o.Identity = asked, keys, identity })
		run(t, func(ctx context.Context) error { _ = asked.Run(ctx); return nil })
		return keys
	}
	one, other := commentator("one"), commentator("other")
	const most = 5 * time.Second
	late := clocktest.Late(t)
	for try := range 5 {
		id := fmt.Sprintf("%016x", try+1)
		guest := access.Grant{Rights: access.AllInRoom, Expires: time.Now().Add(time.Hour), Links: []string{id}}
		token, err := conn.ViewerToken(one, conn.Person{Room: "match", Identity: "guest " + id, Attributes: control.Attributes(one, guest)})
		require.NoError(t, err)
		over := make(chan struct{})
		in, err := lksdk.ConnectToRoomWithToken(s.URL(), token, &lksdk.RoomCallback{OnDisconnected: sync.OnceFunc(func() { close(over) })})
		require.NoError(t, err)
		t.Cleanup(in.Disconnect)
		began, busy := time.Now(), late()
		require.NoError(t, one.Links.Revoke("match", id, "", began))
		eventually(t, func() bool { return other.Links.Revoked([]string{id}) }, "the other commentator knows")
		select {
		case <-over:
		case <-time.After(time.Minute):
			t.Fatal("the guest stays")
		}
		took, busy := time.Since(began), late()-busy
		t.Logf("after %v; the machine was late by %v", took, busy)
		require.LessOrEqual(t, took, most+busy)
	}
}
