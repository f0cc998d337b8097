package room_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/room"
	"touchline/agent/room/conn"
)

func TestInitializingIsShownForTenSecondsAtMost(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	b := room.NewStateAttribute(start)
	due := func(s float64) (word, detail string) { return b.Due(at(s)) }
	loading := agent.Status{State: agent.StateInitializing, Detail: "loading the model", Percent: 3, Activity: "loading"}
	b.Set(loading, start)
	word, detail := due(0)
	require.Equal(t, "initializing", word)
	require.Contains(t, detail, `"percent":3`)
	word, detail = due(1)
	require.Empty(t, word+detail, "nothing new, nothing sent")

	loading.Percent = 4
	b.Set(loading, at(9))
	word, detail = due(9)
	require.Empty(t, word, "mere detail leaves the attribute alone")
	require.Contains(t, detail, `"percent":4`)
	loading.Percent = 5
	b.Set(loading, at(9))
	word, detail = due(9.001)
	require.Empty(t, word+detail, "mere detail is spaced")
	word, detail = due(11)
	require.Equal(t, "listening", word, "front ends give up an agent that is idle or initializing for long")
	require.Contains(t, detail, "loading the model")

	b.Set(agent.Status{State: agent.StateSpeaking}, at(11))
	word, detail = due(11)
	require.Equal(t, "speaking", word, "a change of state is not spaced")
	require.Empty(t, detail, "its detail is")
	_, detail = due(12)
	require.Contains(t, detail, "speaking")
	b.Set(loading, at(20))
	word, _ = due(21)
	require.Equal(t, "initializing", word, "ten seconds for each loading")
	b.Set(agent.Status{State: "nonsense"}, at(22))
	word, _ = due(40)
	require.Equal(t, "listening", word)
	b.Set(agent.Status{State: agent.StateIdle, Activity: "waiting"}, at(41))
	word, detail = due(41)
	require.Empty(t, word, "one that waits is listening")
	require.Contains(t, detail, `"state":"idle"`)
}

func TestNewParticipantsGetTheState(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	b := room.NewStateAttribute(start)
	due := func(s float64) string { word, _ := b.Due(at(s)); return word }
	b.Set(agent.Status{State: agent.StateIdle}, start)
	require.Equal(t, "listening", due(0))
	b.Newcomer(at(100))
	require.Empty(t, due(100.5), "their front end may not be ready")
	require.Equal(t, "thinking", due(101), "a change to another word")
	require.Equal(t, "listening", due(101.1), "and back")
	require.Empty(t, due(110), "once")

	b.Newcomer(at(200))
	b.Set(agent.Status{State: agent.StateThinking}, at(200.8))
	require.Equal(t, "thinking", due(201.2), "a change without help")
	require.Empty(t, due(201.9), "is seen by all participants")

	b.Newcomer(at(300))
	b.Newcomer(at(300.7))
	require.Empty(t, due(301.1), "the last one counts")
	require.Equal(t, "listening", due(301.7))
	require.Equal(t, "thinking", due(301.8))

	b.Set(agent.Status{State: agent.StateSpeaking}, at(400))
	require.Equal(t, "speaking", due(400))
	b.Newcomer(at(400))
	require.Empty(t, due(402), "speech ends by itself")
}

// TestQuickLooksDoNotShow: looks of less than 400 ms change nothing in the room; the word and the metadata show longer ones.
func TestQuickLooksDoNotShow(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	b := room.NewStateAttribute(start)
	quiet := agent.Status{State: agent.StateListening, Activity: agent.ActivitySilent, Detail: "nothing changed"}
	thinking := agent.Status{State: agent.StateThinking, Activity: agent.ActivityThinking}
	b.Set(quiet, start)
	b.Due(start)
	for s := 1.0; s < 20; s += 0.25 {
		b.Set(thinking, at(s))
		word, detail := b.Due(at(s + 0.1))
		require.Empty(t, word+detail)
		b.Set(quiet, at(s+0.15))
		word, detail = b.Due(at(s + 0.2))
		require.Empty(t, word+detail)
	}
	b.Set(thinking, at(30))
	word, detail := b.Due(at(30.4))
	require.Equal(t, "thinking", word)
	require.Contains(t, detail, "thinking")
	b.Set(agent.Status{State: agent.StateSpeaking}, at(31))
	word, _ = b.Due(at(31))
	require.Equal(t, "speaking", word)
	b.Set(thinking, at(35))
	word, _ = b.Due(at(35))
	require.Equal(t, "listening", word, "speech has ended")
	sent := 0
	for s := 40.0; s < 50; s += 0.1 {
		quiet.Percent++
		b.Set(quiet, at(s))
		if _, detail := b.Due(at(s)); detail != "" {
			sent++
		}
	}
	require.InDelta(t, 10, sent, 1, "once a second")
}

// TestHearingComesWithTheWord: LiveKit's hooks take the attributes that change for all there are.
func TestHearingComesWithTheWord(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	b := room.NewStateAttribute(start)
	due := func(s float64) map[string]string {
		return b.DueAttributes(start.Add(time.Duration(s * float64(time.Second))))
	}
	set := func(state, hearing string) { b.Set(agent.Status{State: state, Hearing: hearing}, start) }
	word := func(w string) map[string]string { return map[string]string{"lk.agent.state": w} }
	both := func(w, hearing string) map[string]string {
		return map[string]string{"lk.agent.state": w, "touchline.hearing": hearing}
	}
	set(agent.StateIdle, "")
	require.Equal(t, both("listening", ""), due(0), "what an earlier connection left is removed")
	require.Empty(t, due(1))

	set(agent.StateIdle, "orders")
	require.Equal(t, both("thinking", "orders"), due(2), "with another word")
	require.Equal(t, word("listening"), due(2.1), "and back")
	require.Empty(t, due(3))

	set(agent.StateThinking, "all")
	require.Equal(t, both("thinking", "all"), due(4.5), "the word changes anyway")
	require.Empty(t, due(5))

	set(agent.StateSpeaking, "all")
	require.Equal(t, word("speaking"), due(6))
	set(agent.StateSpeaking, "")
	require.Empty(t, due(7), "speech ends by itself")
	set(agent.StateListening, "")
	require.Equal(t, both("listening", ""), due(8))
	require.Empty(t, due(9))
}

func TestTokens(t *testing.T) {
	t.Parallel()
	keys := conn.Keys{APIKey: "key", APISecret: "a secret of thirty-two characters or more"}
	who := conn.Person{Room: "match", Identity: "x"}
	bot, err := conn.AgentToken(keys, who)
	require.NoError(t, err)
	got, err := conn.ReadToken(bot)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(time.Hour), got.Expires, time.Minute)
	got.Expires = time.Time{}
	require.Equal(t, conn.ReadyToken{
		Identity: "x", Room: "match", OwnAttributes: true, Watch: true, Voice: true, Picture: true, Sound: true, Agent: true,
	}, got)

	camera, err := conn.CameraToken(keys, who)
	require.NoError(t, err)
	got, err = conn.ReadToken(camera)
	require.NoError(t, err)
	require.False(t, got.Watch)
	require.True(t, got.Picture)
	require.False(t, got.OwnAttributes)
	require.Len(t, got.Lost, 4)

	for _, speaks := range []bool{false, true} {
		viewer, err := conn.ViewerToken(keys, conn.Person{Room: "match", Identity: "x", Speaks: speaks})
		require.NoError(t, err)
		got, err = conn.ReadToken(viewer)
		require.NoError(t, err)
		require.True(t, got.Watch)
		require.Equal(t, speaks, got.Voice)
		require.False(t, got.Picture || got.Sound || got.OwnAttributes, "nothing but a microphone")
		_, err = conn.VerifySender(keys, viewer, "match")
		require.ErrorIs(t, err, conn.ErrNoRight)
	}

	claims := base64.RawURLEncoding.EncodeToString([]byte(`{"exp": 1764380000.25, "video": {"roomJoin": true, "room": "match"}}`))
	got, err = conn.ReadToken("eyJhbGciOiJIUzI1NiJ9." + claims + "." + bot[strings.LastIndex(bot, ".")+1:])
	require.NoError(t, err)
	require.Equal(t, time.Unix(1764380000, 0), got.Expires, "a fraction of a second")

	for _, bad := range []string{"", "a.b", "a.b.c", bot[:20], "eyJhbGciOiJIUzI1NiJ9.e30.x"} {
		_, err := conn.ReadToken(bad)
		require.Error(t, err, "%q", bad)
	}
	_, err = conn.AgentToken(conn.Keys{}, who)
	require.ErrorContains(t, err, "key and secret")
	_, err = conn.ViewerToken(keys, conn.Person{Identity: "x"})
	require.ErrorContains(t, err, "room")
}

func FuzzReadToken(f *testing.F) {
	token, err := conn.AgentToken(conn.Keys{APIKey: "k", APISecret: "s"}, conn.Person{Room: "r", Identity: "i"})
	require.NoError(f, err)
	f.Add(token)
	f.Add("eyJhbGciOiJIUzI1NiJ9.eyJ2aWRlbyI6bnVsbH0.")
	f.Add("..")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := conn.ReadToken(s)
		if err == nil && got.Room == "" {
			t.Fatal("a token without a room was taken")
		}
	})
}
