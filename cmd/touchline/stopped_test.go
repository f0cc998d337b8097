//go:build integration && !nodemo

package main

import (
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/livekit/protocol/auth"
	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/access"
	"touchline/agent/look"
	"touchline/agent/room/conn"
	"touchline/agent/room/control"
	"touchline/agent/worker"
	"touchline/internal/e2e/stage"
)

// TestAgentThatStoodStill: a worker that is stopped for a minute, as in a frozen container, speaks, shows and does nothing from before, is
// the only bot of its room, and its comments fit the picture again from the third on.
func TestAgentThatStoodStill(t *testing.T) {
	t.Parallel()
	for name, successor := range map[string]bool{"alone": false, "with a successor": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stoodStill(t, successor)
		})
	}
}

const stillFor = time.Minute

func stoodStill(t *testing.T, successor bool) {
	t.Helper()
	h := newAgentHouse(t)
	p := h.start("--console", "127.0.0.1:0")
	h.ask(agentRoom, "")
	token, err := conn.ViewerToken(h.keys, conn.Person{Room: agentRoom, Identity: "viewer"})
	require.NoError(t, err)
	v, err := stage.NewViewer(stage.ViewerOptions{URL: h.url, Token: token, Log: zerolog.Nop()})
	require.NoError(t, err)
	keepRunning(t, v.Run)
	boss := h.boss()
	spoken := func(since time.Time) (out []look.Record) {
		records, err := stage.ParseRecords(v.Seen().Records)
		require.NoError(t, err)
		for _, r := range records {
			if r.Outcome == look.OutcomeSpoken && r.StartedAt.After(since) {
				out = append(out, r)
			}
		}
		return out
	}
	require.Eventually(t, func() bool { return len(spoken(time.Time{})) >= 2 }, startWait, 100*time.Millisecond)
	// zero is when the camera's first picture was shown, or would have been.
	zero := func(s stage.Picture) time.Time { return s.At.Add(-time.Duration(s.Counter) * time.Second / 15) }
	shown := func(since time.Time) (out []time.Time) {
		for _, s := range v.Seen().Pictures {
			if s.Read && s.At.After(since) {
				out = append(out, zero(s))
			}
		}
		return out
	}
	before := slices.MinFunc(shown(time.Time{}), time.Time.Compare)
	desks := []*desk{p.console(t)}
	if successor {
		desks = append(desks, h.start("--console", "127.0.0.1:0").console(t))
	}
	order := func(text string) error {
		_, err := boss.LocalParticipant.PerformRpc(lksdk.PerformRpcParams{
			DestinationIdentity: worker.Identity(agentWord, ""), Method: control.RPCPrefix + "set_instruction", Payload: `{"instruction": "` + text + `"}`,
		})
		return err
	}
	require.Eventually(t, func() bool { return order("Follow the ball.") == nil }, startWait, 100*time.Millisecond)

	family := family(p.cmd.Process.Pid)
	signal := func(s syscall.Signal) {
		for _, pid := range family {
			_ = syscall.Kill(pid, s) // some end when they wake
		}
	}
	signal(syscall.SIGSTOP)
	defer signal(syscall.SIGCONT)
	for _, pid := range family { // a busy machine stops a process a moment later
		require.Eventually(t, func() bool {
			stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
			_, state, _ := strings.Cut(string(stat), ") ")
			return err != nil || state != "" && strings.ContainsAny(state[:1], "TZX") // one that has ended waits for its parent, which stands still
		}, startWait, 10*time.Millisecond)
	}
	require.Error(t, order("The old order."), "the bot stands still")
	<-time.After(stillFor)
	signal(syscall.SIGCONT)
	woke := time.Now()
	require.Eventually(t, func() bool {
		require.LessOrEqual(t, h.bots(), 1)
		return len(spoken(woke)) >= 4
	}, 2*startWait, 200*time.Millisecond)

	for _, at := range shown(woke) {
		require.Less(t, at.Sub(before), stillFor, "a picture from before")
	}
	for i, r := range spoken(woke) {
		require.Less(t, r.StartedAt.Sub(r.NewestFrameAt), stillFor, "a comment from before")
		if i >= 2 {
			require.InDelta(t, 0, r.AlignmentError, 0.5, "comment %d", i+1)
		}
	}
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(spoken(woke)[2:], func(r look.Record) bool { return math.Abs(r.AlignmentError) < 0.1 })
	}, startWait, 200*time.Millisecond, "a busy machine may be late with one")
	require.Equal(t, 1, h.bots())
	serving := 0
	for _, d := range desks {
		if d.room(agentRoom) == nil {
			continue
		}
		serving++
		code, state := d.ask(http.MethodGet, "/api/rooms/"+agentRoom+"/status", "")
		require.Equal(t, http.StatusOK, code)
		require.Contains(t, state, "Follow the ball.")
		require.NotContains(t, state, "The old order.")
	}
	require.Equal(t, 1, serving)
}

// boss joins the room with all rights.
func (h *agentHouse) boss() *lksdk.Room {
	h.t.Helper()
	token, err := auth.NewAccessToken(h.keys.APIKey, h.keys.APISecret).SetIdentity("boss").
		SetVideoGrant(&auth.VideoGrant{RoomJoin: true, RoomAdmin: true, Room: agentRoom}).
		SetAttributes(control.Attributes(h.keys, access.Grant{Rights: access.AllInRoom})).ToJWT()
	require.NoError(h.t, err)
	room := lksdk.NewRoom(lksdk.NewRoomCallback())
	require.NoError(h.t, room.JoinWithToken(h.url, token, lksdk.WithAutoSubscribe(false)))
	h.t.Cleanup(room.Disconnect)
	return room
}

// bots counts the agents in the room.
func (h *agentHouse) bots() (n int) {
	h.t.Helper()
	list, err := h.rooms.ListParticipants(h.t.Context(), &livekit.ListParticipantsRequest{Room: agentRoom})
	require.NoError(h.t, err)
	for _, p := range list.GetParticipants() {
		if p.GetKind() == livekit.ParticipantInfo_AGENT && strings.HasPrefix(p.GetIdentity(), worker.Identity(agentWord, "")) {
			n++
		}
	}
	return n
}
