//go:build integration && !nodemo

package main

import (
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/livekit/protocol/auth"
	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"touchline/agent/access"
	"touchline/agent/look"
	"touchline/agent/room/conn"
	"touchline/agent/room/control"
	"touchline/agent/worker"
	"touchline/internal/e2e/stage"
	"touchline/internal/resample"
	"touchline/internal/wav"
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
	var words atomic.Value
	h.env = append(h.env, "TOUCHLINE_AGENT_HEARING_MODE=orders", "TOUCHLINE_AGENT_HEARING_CONFIRM=false",
		"TOUCHLINE_INFERENCE_RECOGNIZER_PROGRAM=remote", "TOUCHLINE_INFERENCE_RECOGNIZER_URL="+transcribes(t, &words))
	p := h.start("--console", "127.0.0.1:0")
	h.ask(agentRoom, "")
	token, err := conn.ViewerToken(h.keys, conn.Person{Room: agentRoom, Identity: "viewer"})
	require.NoError(t, err)
	v, err := stage.NewViewer(stage.ViewerOptions{URL: h.url, Token: token, Log: zerolog.Nop()})
	require.NoError(t, err)
	keepRunning(t, v.Run)
	boss := h.boss()
	records := func() []look.Record {
		records, err := stage.ParseRecords(v.Seen().Records)
		require.NoError(t, err)
		return records
	}
	spoken := func(since time.Time) (out []look.Record) {
		for _, r := range records() {
			if r.Outcome == look.OutcomeSpoken && r.StartedAt.After(since) {
				out = append(out, r)
			}
		}
		return out
	}
	programs, desks := []*agentProgram{p}, []*desk{p.console(t)}
	instruction := func() (out string) { // in every process that serves the room
		for _, d := range desks {
			if d.room(agentRoom) != nil {
				code, state := d.ask(http.MethodGet, "/api/rooms/"+agentRoom+"/status", "")
				require.Equal(t, http.StatusOK, code)
				out += state
			}
		}
		return out
	}
	// The bot obeys the boss, by all three ways.
	speech := sentence(t)
	obeyed := func(command string) bool {
		return slices.ContainsFunc(programs, func(p *agentProgram) bool {
			return slices.ContainsFunc(p.lines(), func(l string) bool {
				return strings.Contains(l, `"spoken order"`) && strings.Contains(l, `"command":"`+command+`"`)
			})
		})
	}
	obeys := func(command string) {
		t.Helper()
		words.Store("Hey Touchline, " + command + ".")
		require.Eventually(t, func() bool { return boss.Say(t.Context(), speech) == nil && obeyed(command) }, startWait, time.Second)
	}
	obeys("softer")
	post := func(text string) (code int, retry string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, desks[0].url+"/api/rooms/"+agentRoom+"/instruction",
			strings.NewReader(`{"instruction": "`+text+`"}`))
		if err != nil {
			return 0, err.Error()
		}
		res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer res.Body.Close()
		return res.StatusCode, res.Header.Get("Retry-After")
	}
	code, _ := post("Look at the goal.")
	require.Equal(t, http.StatusOK, code)
	order := func(text string) error {
		_, err := boss.Room.LocalParticipant.PerformRpc(lksdk.PerformRpcParams{
			DestinationIdentity: worker.Identity(agentWord, ""), Method: control.RPCPrefix + "set_instruction", Payload: `{"instruction": "` + text + `"}`,
		})
		return err
	}
	require.Eventually(t, func() bool { return order("Follow the ball.") == nil }, startWait, 100*time.Millisecond)
	if successor {
		other := h.start("--console", "127.0.0.1:0")
		programs, desks = append(programs, other), append(desks, other.console(t))
	}
	usual := time.Now()
	require.Eventually(t, func() bool { return len(spoken(usual)) >= 3 }, startWait, 100*time.Millisecond)
	usually := 0.1 // s, or as before on a busy machine
	for _, r := range spoken(usual) {
		usually = max(usually, math.Abs(r.AlignmentError))
	}
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
	sids := h.bots()
	require.Len(t, sids, 1)
	watch := func() {
		t.Helper()
		now := h.bots()
		require.LessOrEqual(t, len(now), 1)
		if len(now) > 0 && now[0] != sids[len(sids)-1] {
			sids = append(sids, now[0])
		}
		require.LessOrEqual(t, len(sids), 2, "the bot joined once at most: %v", sids)
	}

	family := family(p.cmd.Process.Pid)
	signal := func(s syscall.Signal) {
		for _, pid := range family {
			_ = syscall.Kill(pid, s) // some end when they wake
		}
	}
	words.Store("Hey Touchline, louder.")
	signal(syscall.SIGSTOP)
	defer signal(syscall.SIGCONT)
	for _, pid := range family { // a busy machine stops a process a moment later
		require.Eventually(t, func() bool {
			stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
			_, state, _ := strings.Cut(string(stat), ") ")
			return err != nil || state != "" && strings.ContainsAny(state[:1], "TZX") // one that has ended waits for its parent, which stands still
		}, startWait, 10*time.Millisecond)
	}
	var old errgroup.Group
	old.Go(func() error { return boss.Say(t.Context(), speech) })
	old.Go(func() error {
		if code, retry := post("The old posted order."); code != http.StatusServiceUnavailable || retry == "" {
			return fmt.Errorf("the old request was answered %d, %q", code, retry)
		}
		return nil
	})
	stopped := time.Now()
	require.Error(t, order("The old order."), "the bot stands still")
	for time.Since(stopped) < stillFor {
		watch()
		<-time.After(200 * time.Millisecond)
	}
	signal(syscall.SIGCONT)
	woke := time.Now()
	require.NoError(t, old.Wait())
	require.Eventually(t, func() bool {
		watch()
		return len(spoken(woke)) >= 4
	}, 2*startWait, 200*time.Millisecond)

	require.NotEmpty(t, shown(woke))
	for _, at := range shown(woke) {
		require.Less(t, at.Sub(before), stillFor, "a picture from before")
	}
	for i, r := range spoken(woke) {
		require.Less(t, r.StartedAt.Sub(r.NewestFrameAt), stillFor, "a comment from before")
		if i >= 2 {
			require.InDelta(t, 0, r.AlignmentError, usually, "comment %d", i+1)
		}
	}
	var fresh []look.Record // comments that were heard after that
	require.Eventually(t, func() bool {
		fresh = slices.DeleteFunc(records(), func(r look.Record) bool { return r.StartedAt.Before(stopped) || r.EndedAt.Before(woke) })
		for _, c := range v.Seen().Closed {
			if slices.ContainsFunc(v.Seen().Words, func(w stage.Word) bool { return w.Segment == c.Segment && w.At.After(woke) }) &&
				!slices.ContainsFunc(fresh, func(r look.Record) bool { return strings.HasPrefix(r.Text, strings.TrimSpace(c.Text)) }) {
				return false
			}
		}
		return true
	}, startWait, 200*time.Millisecond, "a caption from before")
	began := slices.MinFunc(fresh, func(a, b look.Record) int { return a.StartedAt.Compare(b.StartedAt) }).StartedAt
	for _, s := range v.Seen().Talks {
		if s.To.After(woke) {
			// The viewer dates sound by its packet, which is up to 27 ms before the onset in it.
			require.False(t, s.From.Before(began.Add(-50*time.Millisecond)), "sound from before: %v after the wake, a comment %v", s.From.Sub(woke), began.Sub(woke))
		}
	}
	serving := slices.DeleteFunc(slices.Clone(desks), func(d *desk) bool { return d.room(agentRoom) == nil })
	require.Len(t, serving, 1)
	require.Contains(t, instruction(), "Follow the ball.")
	require.NotRegexp(t, "(?i)the old", instruction())
	require.False(t, obeyed("louder"))
	obeys("longer")
	watch()
	require.Len(t, h.bots(), 1)
}

// sentence returns a spoken sentence as packets.
func sentence(t *testing.T) [][]byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "order.wav")
	_, stderr, code := touchline(t, "say", "--voice", "slt", "Please look at something else from now on", file)
	require.Zero(t, code, stderr)
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	said, rate, err := wav.Parse(b)
	require.NoError(t, err)
	said, err = resample.All(said, rate, 48000)
	require.NoError(t, err)
	pcm := make([]int16, len(said), len(said)+48000)
	for i, s := range said {
		pcm[i] = int16(s * math.MaxInt16)
	}
	packets, err := stage.Opus(append(pcm, make([]int16, 48000)...)) // a second of silence ends it
	require.NoError(t, err)
	return packets
}

// boss joins the room with all rights and a microphone.
func (h *agentHouse) boss() *stage.Speaker {
	h.t.Helper()
	token, err := auth.NewAccessToken(h.keys.APIKey, h.keys.APISecret).SetIdentity("boss").
		SetVideoGrant(&auth.VideoGrant{RoomJoin: true, RoomAdmin: true, Room: agentRoom}).
		SetAttributes(control.Attributes(h.keys, access.Grant{Rights: access.AllInRoom})).ToJWT()
	require.NoError(h.t, err)
	boss, leave, err := stage.NewSpeaker(h.t.Context(), h.url, "boss", token)
	require.NoError(h.t, err)
	h.t.Cleanup(leave)
	return boss
}

// bots returns the SIDs of the agents in the room.
func (h *agentHouse) bots() (sids []string) {
	h.t.Helper()
	list, err := h.rooms.ListParticipants(h.t.Context(), &livekit.ListParticipantsRequest{Room: agentRoom})
	require.NoError(h.t, err)
	for _, p := range list.GetParticipants() {
		if p.GetKind() == livekit.ParticipantInfo_AGENT && strings.HasPrefix(p.GetIdentity(), worker.Identity(agentWord, "")) {
			sids = append(sids, p.GetSid())
		}
	}
	return sids
}
