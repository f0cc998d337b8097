//go:build integration

// Package stockfront tests the bot with a page of unmodified LiveKit components.
// It has no code of its own: if the page does not show something, the bot needs a
// fix.
package stockfront_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/bot"
	"touchline/agent/command"
	"touchline/agent/room/conn"
	"touchline/agent/settings"
	"touchline/agent/sfu/sfutest"
	"touchline/configs"
	"touchline/internal/e2e/browser"
	"touchline/internal/e2e/stage"
	"touchline/media/codec/codectest"
)

// TestMain builds the page and the codec program.
func TestMain(m *testing.M) {
	os.Exit(codectest.OnPath(func() int {
		if out, err := exec.Command("make", "--silent", "-C", moduleRoot, "stock-front").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "make stock-front: %v: %s\n", err, out)
			return 1
		}
		return sfutest.Main(m)
	}))
}

const (
	moduleRoot = "../../.."
	// patience is the timeout of a step on a busy machine.
	patience = 5 * time.Minute
)

// spy records the displayed states and measures the sound of the audio elements.
const spy = `
window.spy = { assistant: [], agent: [] };
new MutationObserver(() => {
  for (const name of ['assistant', 'agent']) {
    const word = document.getElementById(name + '-state')?.textContent;
    if (word && spy[name].at(-1) !== word) spy[name].push(word);
  }
}).observe(document, { subtree: true, childList: true, characterData: true });
window.spy.level = () => {
  spy.sound ??= new AudioContext();
  spy.meters ??= new Map();
  let loudest = 0;
  for (const e of document.querySelectorAll('audio')) {
    if (e.paused || e.muted || !e.srcObject?.getAudioTracks().length) continue;
    let meter = spy.meters.get(e.srcObject);
    if (!meter) {
      meter = spy.sound.createAnalyser();
      spy.sound.createMediaStreamSource(e.srcObject).connect(meter);
      spy.meters.set(e.srcObject, meter);
    }
    const wave = new Float32Array(meter.fftSize);
    meter.getFloatTimeDomainData(wave);
    loudest = Math.max(loudest, Math.sqrt(wave.reduce((sum, v) => sum + v * v, 0) / wave.length));
  }
  return loudest;
};
`

// newStage returns a room with a bot with the default settings, but a scripted engine and no wait for its first comment.
func newStage(t *testing.T, noCamera bool) *stage.Stage {
	t.Helper()
	cfg := configs.Default()
	cfg.Pacing.InitialDelay = time.Second
	// It thinks for longer than it speaks, so that both states show.
	model, err := bot.WithVoice(stage.NewEngine(3, 4*time.Second, 5*time.Second), cfg.Inference.Voice, zerolog.Nop())
	require.NoError(t, err)
	s, err := stage.New(t.Context(), stage.Options{
		Config: &cfg, Model: model, FPS: 15, Seed: 3, Crowd: true, NoCamera: noCamera, Log: zerolog.Nop(),
	})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// open opens the page as a viewer of the stage; more is added to its address.
func open(t *testing.T, s *stage.Stage, more ...string) *browser.Browser {
	t.Helper()
	server := httptest.NewServer(http.FileServer(http.Dir(filepath.Join("web", "dist"))))
	t.Cleanup(server.Close)
	token, err := conn.ViewerToken(s.Keys, conn.Person{Room: stage.RoomName, Identity: "vera" + strings.Join(more, ""), Speaks: true})
	require.NoError(t, err)
	b, err := browser.Open(t.Context(), browser.Options{Width: 1000, Height: 1100, Dark: true, Script: spy})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			shoot(t, b, "stock-front-end-failed")
			t.Logf("console: %q", b.Problems())
			states, err := browser.Eval[string](b, patience, "JSON.stringify(spy) + document.body.innerText")
			t.Logf("states: %s, %v", states, err)
		}
		b.Close()
	})
	address := url.Values{"url": {s.Server.URL()}, "token": {token}}.Encode()
	require.NoError(t, b.Navigate(server.URL+"/#"+strings.Join(append([]string{address}, more...), "&")))
	return b
}

// shoot saves a screenshot in the folder TOUCHLINE_SCREENSHOTS, if set.
func shoot(t *testing.T, b *browser.Browser, name string) {
	t.Helper()
	dir := os.Getenv("TOUCHLINE_SCREENSHOTS")
	if dir == "" {
		return
	}
	png, err := b.Screenshot()
	if assert.NoError(t, err) {
		assert.NoError(t, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644))
	}
}

// problems returns the console's errors, without one of the client's own: if its old socket closes while it resumes on a busy machine, it
// takes the server's answer for an error, and joins again.
func problems(b *browser.Browser) []string {
	return slices.DeleteFunc(b.Problems(), func(p string) bool { return strings.Contains(p, "ConnectionError: Unexpected first message") })
}

func until(t *testing.T, b *browser.Browser, what, js string) {
	t.Helper()
	require.NoError(t, b.Until(patience, js), what)
}

// words returns the states displayed by a hook so far.
func words(t *testing.T, b *browser.Browser, hook string) []string {
	t.Helper()
	list, err := browser.Eval[[]string](b, patience, "spy."+hook)
	require.NoError(t, err)
	return list
}

func text(t *testing.T, b *browser.Browser, id string) string {
	t.Helper()
	s, err := browser.Eval[string](b, patience, "document.getElementById('"+id+"').textContent")
	require.NoError(t, err)
	return s
}

func TestStockFrontEnd(t *testing.T) {
	t.Parallel()
	s := newStage(t, false)
	b := open(t, s)

	until(t, b, "both hooks find the agent", `document.getElementById('assistant-agent').textContent !== '' &&
		document.getElementById('agent-connected').textContent === 'true'`)
	require.Equal(t, s.Bot.Room.Identity(), text(t, b, "assistant-agent"))
	until(t, b, "useAgent finds picture and voice", `document.getElementById('agent-tracks').textContent === 'camera microphone'`)

	until(t, b, "VideoTrack plays", `document.getElementById('picture').getVideoPlaybackQuality().totalVideoFrames > 20`)
	before, err := browser.Eval[int](b, patience, `document.getElementById('picture').getVideoPlaybackQuality().totalVideoFrames`)
	require.NoError(t, err)

	until(t, b, "useTranscriptions shows words of the voice's track", `document.getElementById('caption').textContent.length > 0`)
	until(t, b, "they grow", `(() => { const now = document.getElementById('caption').textContent;
		const grew = spy.was && now.length > spy.was.length && now.startsWith(spy.was); spy.was = now; return grew })()`)
	until(t, b, "RoomAudioRenderer is heard", "spy.level() > 0.005")
	until(t, b, "useSessionMessages lists comments", `document.querySelectorAll('#messages li').length >= 3`)
	until(t, b, "the state goes round", `['assistant', 'agent'].every((h) => ['thinking', 'speaking'].every((w) => spy[h].includes(w)))`)
	shoot(t, b, "stock-front-end")

	messages, err := browser.Eval[[]string](b, patience,
		`[...document.querySelectorAll('#messages li')].map((e) => e.dataset.type + ' ' + e.textContent)`)
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, m := range messages[:len(messages)-1] { // the last may be incomplete
		require.False(t, seen[m], "shown twice: %s", m)
		seen[m] = true
		said, ok := strings.CutPrefix(m, "agentTranscript ")
		require.True(t, ok, m)
		require.Contains(t, text(t, b, "assistant-text"), said, "useVoiceAssistant has the same words")
	}
	after, err := browser.Eval[int](b, patience, `document.getElementById('picture').getVideoPlaybackQuality().totalVideoFrames`)
	require.NoError(t, err)
	require.Greater(t, after, before)
	for _, hook := range []string{"assistant", "agent"} {
		list := words(t, b, hook)
		t.Logf("%s: %q", hook, list)
		first := slices.IndexFunc(list, func(w string) bool { return slices.Contains([]string{"listening", "thinking", "speaking"}, w) })
		require.NotContains(t, list[first:], "connecting", "the %s hook lost the state", hook)
	}
	require.Empty(t, text(t, b, "agent-failures"))
	require.Empty(t, problems(b))
}

func TestCameraComesLate(t *testing.T) {
	t.Parallel()
	s := newStage(t, true)
	b := open(t, s)
	until(t, b, "the agent is found", `document.getElementById('assistant-agent').textContent !== ''`)
	// useAgent fails if the agent is not connected within 20 s. A busy machine may take as long to start the page: it gets three tries.
	const ended = `['listening', 'failed'].includes(document.getElementById('agent-state')?.textContent)`
	for range 2 {
		until(t, b, "useAgent decides", ended)
		if text(t, b, "agent-state") == "listening" {
			break
		}
		t.Logf("tried again after %q", words(t, b, "agent"))
		require.NoError(t, b.Reload())
	}
	until(t, b, "time passes", "performance.now() > 25000")
	for _, hook := range []string{"assistant", "agent"} {
		t.Logf("%s: %q", hook, words(t, b, hook))
		until(t, b, "the state is listening", `document.getElementById('`+hook+`-state').textContent === 'listening'`)
	}
	require.Equal(t, "true", text(t, b, "agent-connected"))
	require.Empty(t, text(t, b, "agent-failures"))
	_, err := s.AddCamera("camera", 4)
	require.NoError(t, err)
	until(t, b, "it works then", `document.getElementById('agent-connected').textContent === 'true' && spy.agent.includes('speaking')`)
	until(t, b, "VideoTrack plays", `document.getElementById('picture').getVideoPlaybackQuality().totalVideoFrames > 20`)
	require.Empty(t, text(t, b, "agent-failures"))
	require.Empty(t, problems(b))
}

// TestTracksComeAndGo: captions reach a page with LiveKit's client while the agent loses the right to publish and gets it back, its voice is
// off, and the camera goes and comes.
func TestTracksComeAndGo(t *testing.T) {
	t.Parallel()
	s := newStage(t, true)
	stop, err := s.AddCamera("camera", 4)
	require.NoError(t, err)
	b := open(t, s)
	rooms := lksdk.NewRoomServiceClient(s.Server.URL(), s.Keys.APIKey, s.Keys.APISecret)
	may := func(publish bool) {
		_, err := rooms.UpdateParticipant(t.Context(), &livekit.UpdateParticipantRequest{
			Room: stage.RoomName, Identity: s.Bot.Room.Identity(), Permission: &livekit.ParticipantPermission{
				CanSubscribe: true, CanPublish: publish, CanPublishData: true, CanUpdateMetadata: true,
			},
		})
		require.NoError(t, err)
	}
	speak := func(on bool) {
		_, err := s.Bot.Change(command.Change{Settings: settings.Settings{Speech: &on}}, "the test")
		require.NoError(t, err)
	}
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"all tracks", func() {}},
		{"the right is taken", func() { may(false) }},
		{"the right is back", func() { may(true) }},
		{"no voice", func() { speak(false) }},
		{"the voice is back", func() { speak(true) }},
		{"another camera", func() {
			stop()
			_, err := s.AddCamera("second", 5)
			require.NoError(t, err)
		}},
	} {
		step.do()
		until(t, b, step.name, `(() => { const n = document.querySelectorAll('#captions li').length;
			if (spy.step !== "`+step.name+`") { spy.step = "`+step.name+`"; spy.from = n; }
			return n > spy.from + 1 })()`)
	}
	until(t, b, "VideoTrack plays", `document.getElementById('picture').getVideoPlaybackQuality().totalVideoFrames > 20`)
	require.Empty(t, problems(b))
}

// A page that subscribes to the agent only plays each sound once; with all subscriptions it also plays the
// camera's original.
func TestPlaysTheAgentAlone(t *testing.T) {
	t.Parallel()
	s := newStage(t, false)
	all, agent := open(t, s), open(t, s, "only=agent")
	const playing = `[...document.querySelectorAll('audio')].filter((e) => e.srcObject?.getAudioTracks().length).length`
	for _, b := range []*browser.Browser{all, agent} {
		until(t, b, "VideoTrack plays", `document.getElementById('picture').getVideoPlaybackQuality().totalVideoFrames > 20`)
		until(t, b, "RoomAudioRenderer is heard", "spy.level() > 0.005")
	}
	until(t, all, "the camera's microphone, the voice, the sound", playing+" === 3")
	until(t, agent, "the voice, the sound", playing+" === 2")
	require.Empty(t, problems(agent))
}

// TestUsersWords: what a user says shows as that user's words, with the user and with the others; whether people are heard
// costs the hooks no state.
func TestUsersWords(t *testing.T) {
	t.Parallel()
	s := newStage(t, false)
	user, other := open(t, s, "microphone=on"), open(t, s)
	const identity = "veramicrophone=on"
	for _, b := range []*browser.Browser{user, other} {
		until(t, b, "the agent is found", `document.getElementById('agent-connected').textContent === 'true' && spy.assistant.includes('speaking')`)
	}
	until(t, user, "the microphone is on", `document.getElementById('microphone').textContent !== ''`)
	track := text(t, user, "microphone")
	say := func(text string, final bool) {
		s.Bot.Hear(agent.Heard{Segment: "SG_1", Identity: identity, Track: track, Text: text, Final: final, Caption: true})
	}
	shown := func(want string) string {
		return `(() => { const mine = [...document.querySelectorAll('#captions li')].filter((e) => e.dataset.from === '` + identity + `');
			return mine.length === 1 && mine[0].textContent === '` + want + `' })()`
	}
	for _, words := range []string{"What a", "What a goal!"} {
		say(words, words == "What a goal!")
		until(t, user, "the user sees "+words, shown(words))
		until(t, other, "the other sees "+words, shown(words))
	}
	until(t, user, "useSessionMessages has the words as the user's", `[...document.querySelectorAll('#messages li')].some(
		(e) => e.dataset.type === 'userTranscript' && e.textContent === 'What a goal!')`)
	until(t, user, "the agent's words are its own", `[...document.querySelectorAll('#captions li')].some(
		(e) => e.dataset.from === '`+s.Bot.Room.Identity()+`')`)

	s.Bot.Room.SetState(agent.Status{State: agent.StateListening, Hearing: settings.HearingAll}) // until the next state of the session
	for _, b := range []*browser.Browser{user, other} {
		until(t, b, "the state goes on", `(spy.had ??= [spy.assistant.length, spy.agent.length],
			spy.assistant.length > spy.had[0] + 4 && spy.agent.length > spy.had[1] + 4)`)
		for _, hook := range []string{"assistant", "agent"} {
			list := words(t, b, hook)
			first := slices.Index(list, "speaking")
			for _, word := range list[first:] {
				require.Contains(t, []string{"listening", "thinking", "speaking"}, word, "the %s hook lost the state: %q", hook, list)
			}
		}
		require.Empty(t, text(t, b, "agent-failures"))
		require.Empty(t, problems(b))
	}
	shoot(t, user, "stock-front-end-words")
}
