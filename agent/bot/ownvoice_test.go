//go:build integration

package bot_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"iter"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/bot"
	"touchline/agent/command"
	"touchline/agent/look"
	"touchline/agent/room/conn"
	"touchline/agent/settings"
	"touchline/agent/speech"
	"touchline/configs"
	"touchline/inference"
	"touchline/inference/conformance/bundles"
	"touchline/inference/engine"
	"touchline/inference/minicpmo"
	"touchline/inference/tokenizer"
	"touchline/internal/e2e/stage"
	"touchline/models"
)

// choir is a model with a voice of its own that keeps what it says, and whose faults a test switches on.
type choir struct {
	*minicpmo.Engine

	fails atomic.Value // the sentence whose reading fails
	slow  atomic.Bool  // sound comes slower than it is heard

	mu    sync.Mutex
	sound map[string][]int16 // by text
}

func (c *choir) NewSession() (inference.Session, error) {
	s, err := c.Engine.NewSession()
	if err != nil {
		return nil, err
	}
	return &singer{Session: s, c: c}, nil
}

type singer struct {
	inference.Session

	c *choir
}

var errTorn = errors.New("a torn string")

func (s *singer) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return s.heard(s.Session.Generate(ctx, p))
}

func (s *singer) Speak(ctx context.Context, text, voice, language string) iter.Seq2[inference.Chunk, error] {
	if text == s.c.fails.Load() {
		return func(yield func(inference.Chunk, error) bool) {
			yield(inference.Chunk{Text: text, VoiceFailed: &inference.VoiceFailure{Err: errTorn}}, nil)
		}
	}
	return s.heard(s.Session.(inference.Speaker).Speak(ctx, text, voice, language)) //nolint:forcetypeassert // it is one
}

// heard keeps the sound by its text.
func (s *singer) heard(said iter.Seq2[inference.Chunk, error]) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		var text string
		var sound []int16
		for c, err := range said {
			if s.c.slow.Load() {
				time.Sleep(time.Duration(len(c.Audio))*time.Second/24000 + 200*time.Millisecond)
			}
			text += c.Text
			sound = append(sound, c.Audio...)
			s.c.mu.Lock()
			s.c.sound[strings.TrimSpace(text)] = sound
			s.c.mu.Unlock()
			if !yield(c, err) {
				return
			}
		}
	}
}

// said returns the model's sound of a text.
func (c *choir) said(text string) []int16 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sound[text]
}

// stall is a room with a bot of the choir and a viewer.
type stall struct {
	*bot.Bot

	t       *testing.T
	records *stage.Reader
	viewer  *stage.Viewer
}

// next returns the first record since n that is right.
func (s stall) next(n int, what string, right func(look.Record) bool) (found look.Record) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		all := s.records.Records()
		i := slices.IndexFunc(all[min(n, len(all)):], right)
		if i >= 0 {
			found = all[n+i]
		}
		return i >= 0
	}, 4*patience, 200*time.Millisecond, what)
	return found
}

// says lets a text be said and returns its record.
func (s stall) says(a speech.Notice) look.Record {
	s.t.Helper()
	n := len(s.records.Records())
	require.NoError(s.t, s.Session.Say(a, "ana"))
	return s.next(n, a.Text, func(r look.Record) bool {
		return r.Announced != "" && strings.HasPrefix(a.Text, strings.TrimSpace(r.Text))
	})
}

// quiet waits until nothing is heard.
func (s stall) quiet() {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		talks := s.viewer.Seen().Talks
		return s.Snapshot().Status.Activity != "speaking" && (len(talks) == 0 || time.Since(talks[len(talks)-1].To) > time.Second)
	}, patience, 20*time.Millisecond)
}

// spoken is a comment that was heard whole.
func spoken(r look.Record) bool { return r.Outcome == look.OutcomeSpoken && r.Announced == "" }

// programs returns the sentences that speech programs have spoken.
func programs(e *bot.Engine) (n uint64) {
	for _, some := range e.VoiceStats().Spoken {
		n += some
	}
	return n
}

// briefly lets a model say two or three words, which are some seconds of its sound.
func briefly(cfg configs.Config) configs.Config {
	cfg.Inference.MaxTokens, cfg.Inference.Voice.MaxTokens = 6, 6
	return cfg
}

// speakingBundle opens the small model that speaks.
func speakingBundle(t *testing.T) *models.Bundle {
	t.Helper()
	require.NoError(t, convertSpeaking())
	bundle, err := models.OpenBundle(filepath.Join(shared, "speaking"))
	require.NoError(t, err)
	return bundle
}

var convertSpeaking = sync.OnceValue(func() error {
	return bundles.Speaking(context.Background(), moduleRoot, shared, filepath.Join(shared, "speaking"))
})

// TestOwnVoiceKeepsSilent: answers of dots are silent looks of a room, and nothing is heard. The model can answer nothing else.
func TestOwnVoiceKeepsSilent(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	bundle := speakingBundle(t)
	cfg := withModel(bundle.Dir)
	text, err := os.ReadFile(bundle.Path("tokenizer.json"))
	require.NoError(t, err)
	words, err := tokenizer.Parse(text)
	require.NoError(t, err)
	dots := words.EncodeLiteral(inference.Silence)
	require.Equal(t, slices.Repeat(dots[:1], len(inference.Silence)), dots)
	cfg.Inference.Voice.MaxTokens, cfg.Inference.MiniCPM.SuppressTokens = len(dots), nil
	for id := range bundle.Manifest.Dims.Decoder.Vocab {
		if id != int(dots[0]) {
			cfg.Inference.MiniCPM.SuppressTokens = append(cfg.Inference.MiniCPM.SuppressTokens, id)
		}
	}
	engine, err := bot.NewEngine(cfg.Bot(), zerolog.Nop())
	require.NoError(t, err)
	h.run("engine", engine.Run)
	b, records := h.bot(cfg, "dots", engine)
	h.run("bot", b.Run)
	s := stall{b, t, records, h.listener("dots")}
	h.camera("dots", "")
	for n := range 3 {
		r := s.next(n, "a silent look", func(r look.Record) bool { return r.Announced == "" })
		require.Equal(t, look.OutcomeSilent, r.Outcome, r.Reason)
		require.Zero(t, r.AudioSec)
	}
	require.True(t, engine.Capabilities().OwnVoice)
	require.Zero(t, programs(engine))
	require.Empty(t, s.viewer.Seen().Talks)
}

// newChoir loads the small model that speaks. The engine runs until the test ends.
func newChoir(h *fixture) (*choir, *bot.Engine) {
	h.t.Helper()
	bundle := speakingBundle(h.t)
	cfg := briefly(withModel(bundle.Dir))
	own := cfg.Bot()
	own.Engine.Voice.Program = inference.VoiceModel
	unused, err := bot.NewEngine(own, zerolog.Nop())
	require.NoError(h.t, err, "its voice is known before it is loaded")
	require.NoError(h.t, unused.Close())
	settings := minicpmo.Settings{Config: cfg.Inference.Config, MiniCPM: cfg.Inference.MiniCPM}
	opened := make(chan *choir, 1)
	engine, err := bot.NewLocalEngine(func(ctx context.Context, progress engine.Progress) (inference.Model, error) {
		e, err := minicpmo.Open(ctx, bundle, minicpmo.Options{Config: settings, Progress: progress, Threads: 1})
		if err != nil {
			return nil, err
		}
		c := &choir{Engine: e, sound: map[string][]int16{}}
		opened <- c
		return c, nil
	}, settings)
	require.NoError(h.t, err)
	h.run("engine", engine.Run)
	select {
	case c := <-opened:
		require.True(h.t, c.Capabilities().Speech)
		return c, engine
	case <-time.After(patience):
		require.FailNow(h.t, "the model is not loaded")
	}
	return nil, nil
}

// TestOwnVoiceIsTried: "Try it" on the page is heard in the model's own voice, by the person who tries it and not in the room, which goes on
// with another voice or with the model's.
func TestOwnVoiceIsTried(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	c, engine := newChoir(h)
	cfg := briefly(withModel(""))
	cfg.Inference.Voice.Program = "flite"
	b, records := h.bot(cfg, "tried", engine)
	h.run("bot", b.Run)
	s := stall{b, t, records, h.listener("tried")}
	page := strings.TrimSuffix(h.page(b, cfg), "/")
	h.camera("tried", "")
	_, known := get(t, page+"/api/engines")
	require.Contains(t, known, `{"id":"model"`, "it can be selected")

	const text = "A goal for the reds!" // what the page says in English
	for _, own := range []bool{false, true} {
		if own {
			_, err := s.Change(command.Change{Settings: settings.Settings{Voice: new(inference.VoiceModel)}}, "ana")
			require.NoError(t, err)
		}
		n := len(records.Records())
		s.next(n, "a comment", spoken)
		began := time.Now()
		sound := tried(t, page, `{"input":"`+text+`","voice":"model","language":"en","response_format":"pcm"}`)
		t.Logf("%.1f s of sound in %.1f s", float64(len(sound))/24000, time.Since(began).Seconds())
		require.Greater(t, len(sound), 24000/4, "a quarter of a second at least")
		require.Less(t, len(sound), 60*24000)
		var sum float64
		for _, v := range sound {
			sum += float64(v) * float64(v)
		}
		require.Greater(t, math.Sqrt(sum/float64(len(sound))), 100.0, "it is no silence")
		require.Equal(t, c.said(text), sound, "all of the model's sound")
		s.next(len(records.Records()), "a comment after it", spoken)
	}
	require.False(t, slices.ContainsFunc(records.Records(), func(r look.Record) bool { return strings.Contains(r.Text, text) }))
	require.Empty(t, b.Snapshot().VoiceProblem)
}

// tried posts what "Try it" posts, and returns the sound. It tries again while live rooms need the voice, as a person does.
func tried(t *testing.T, page, body string) (sound []int16) {
	t.Helper()
	for range 10 {
		res, err := http.Post(page+"/v1/audio/speech", "application/json", strings.NewReader(body))
		require.NoError(t, err)
		pcm, err := io.ReadAll(res.Body)
		require.NoError(t, errors.Join(err, res.Body.Close()))
		http.DefaultClient.CloseIdleConnections()
		if res.StatusCode == http.StatusTooManyRequests {
			t.Logf("%s", pcm)
			time.Sleep(time.Second)
			continue
		}
		require.Equal(t, http.StatusOK, res.StatusCode, "%s", pcm)
		for ; len(pcm) > 1; pcm = pcm[2:] {
			sound = append(sound, int16(binary.LittleEndian.Uint16(pcm)))
		}
		return sound
	}
	require.FailNow(t, "live rooms have all of the voice")
	return nil
}

// TestOwnVoiceInRooms lets a model comment in two rooms with its own voice, and disturbs it there.
func TestOwnVoiceInRooms(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	c, engine := newChoir(h)
	var rooms []stall
	for _, name := range []string{"one", "two"} {
		cfg := briefly(withModel(""))
		b, records := h.bot(cfg, name, engine)
		h.run("bot of "+name, b.Run)
		rooms = append(rooms, stall{b, t, records, h.listener(name)})
		h.camera(name, "")
	}
	t.Run("both rooms hear it", func(t *testing.T) {
		for _, s := range rooms {
			s.t = t
			// Not all of one comment: a busy machine may spoil some.
			s.next(1, "a comment in the model's voice", func(r look.Record) bool { return spoken(r) && r.AudioSec > 1 && s.hears(r, c) })
			s.next(1, "a comment with its words", func(r look.Record) bool { return spoken(r) && s.reads(r) })
			r := s.next(1, "a comment beside its picture", func(r look.Record) bool { return spoken(r) && r.Aligned })
			t.Logf("%q: %.1f s, %.0f ms beside its picture, ready after %.2f s", r.Text, r.AudioSec, 1000*r.AlignmentError, r.ReadySec)
		}
		if programs(engine) > 0 { // on a busy machine the model may be too slow
			require.Contains(t, rooms[0].Snapshot().VoiceProblem+rooms[1].Snapshot().VoiceProblem, tooSlow)
		}
	})
	s := rooms[0]
	t.Run("an instruction cuts it", func(t *testing.T) {
		s.t = t
		about := "Look at the keeper."
		s.cuts(func() error { _, err := s.Change(command.Change{Instruction: &about}, "ana"); return err })
	})
	t.Run("an announcement cuts it", func(t *testing.T) {
		s.t = t
		s.cuts(func() error { return s.Session.Say(speech.Notice{Text: "A goal!", Interrupt: true}, "ana") })
	})
	stop := ""
	for _, s := range rooms {
		_, err := s.Change(command.Change{Instruction: &stop}, "ana")
		require.NoError(t, err)
		s.quiet()
	}
	require.Eventually(t, func() bool { return c.Stats().VoiceSlots == 0 }, patience, 10*time.Millisecond, "all slots are free")
	t.Run("the voice changes live", func(t *testing.T) {
		s.t = t
		tries := 5
		for _, id := range []string{"flite:slt", inference.VoiceModel} {
			before := programs(engine)
			s.choose(id)
			r := s.says(speech.Notice{Text: "A goal!", Interrupt: true})
			require.Equal(t, look.OutcomeSpoken, r.Outcome)
			if id == inference.VoiceModel {
				for s.quiet(); tries > 0 && !s.hears(r, c); tries-- { // a busy machine may spoil some
					r = s.says(speech.Notice{Text: "A goal!", Interrupt: true})
					s.quiet()
				}
				require.True(t, s.hears(r, c), "it is the model's sound")
			} else {
				require.Greater(t, programs(engine), before)
			}
		}
	})
	const story = "A dog runs over there. It has a stick. A man waits for it. He has a ball. They play in the yard. All is well."
	t.Run("another voice is chosen while it speaks", func(t *testing.T) {
		s.t = t
		said := uint64(0)
		for tries := 5; tries > 0 && (said == 0 || said == 6); tries-- { // where the model is too slow, the program has spoken from the beginning
			s.well()
			before, n := programs(engine), len(s.records.Records())
			require.NoError(t, s.Session.Say(speech.Notice{Text: story, Interrupt: true}, "ana"))
			require.Eventually(t, func() bool { return s.Snapshot().Status.Activity == "speaking" }, patience, time.Millisecond)
			s.choose("flite:slt")
			r := s.next(n, "the whole text", func(r look.Record) bool { return r.Announced != "" })
			require.Equal(t, look.OutcomeSpoken, r.Outcome)
			require.Equal(t, story, r.Text)
			said = programs(engine) - before
			t.Logf("%d sentences of another voice, %.0f ms of gaps", said, 1000*(r.EndedAt.Sub(r.StartedAt).Seconds()-r.AudioSec))
			s.choose(inference.VoiceModel)
		}
		require.True(t, said > 0 && said < 6, "%d sentences of the chosen voice", said)
	})
	t.Run("it is chosen while another voice speaks", func(t *testing.T) {
		s.t = t
		s.takesOver(c, engine)
	})
	t.Run("another voice goes on where it is too slow, in one room", func(t *testing.T) {
		s.t = t
		for _, s := range rooms {
			s.t = t
			s.well()
		}
		c.slow.Store(true)
		defer c.slow.Store(false)
		before := programs(engine)
		for tries := 3; tries > 0 && programs(engine) == before; tries-- { // short sentences may share a piece of sound
			r := s.says(speech.Notice{Text: story, Interrupt: true})
			require.Equal(t, look.OutcomeSpoken, r.Outcome)
			require.Equal(t, story, r.Text)
		}
		require.Greater(t, programs(engine), before)
		require.Contains(t, s.Snapshot().VoiceProblem, tooSlow)
		require.Empty(t, rooms[1].Snapshot().VoiceProblem)
	})
	s = rooms[1]
	t.Run("another voice goes on where it fails", func(t *testing.T) {
		s.t = t
		c.fails.Store("It has a stick.")
		const text = "A dog. It has a stick."
		before := programs(engine)
		r := s.says(speech.Notice{Text: text, Interrupt: true})
		c.fails.Store("")
		require.Equal(t, look.OutcomeSpoken, r.Outcome)
		require.Equal(t, text, r.Text)
		require.Equal(t, before+1, programs(engine), "the second sentence")
		require.Contains(t, s.Snapshot().VoiceProblem, errTorn.Error())
		s.next(0, "its words are shown once", func(r look.Record) bool { return r.Text == text && s.reads(r) })
		require.Equal(t, look.OutcomeSpoken, s.says(speech.Notice{Text: "Yes!"}).Outcome)
		require.Empty(t, s.Snapshot().VoiceProblem)
	})
}

// cuts disturbs the room while a comment is heard: it is cut, and the next one is whole.
func (s stall) cuts(disturb func() error) {
	s.t.Helper()
	for range 5 { // a comment may end in the same moment
		n := len(s.records.Records())
		require.Eventually(s.t, func() bool { return s.Snapshot().Status.Activity == "speaking" }, 2*patience, time.Millisecond)
		require.NoError(s.t, disturb())
		r := s.next(n, "the comment that was heard", func(r look.Record) bool { return r.Announced == "" })
		s.next(n, "a comment behind it", spoken)
		if r.Outcome == look.OutcomeCut {
			return
		}
	}
	require.FailNow(s.t, "no comment was cut")
}

// choose sets the voice.
func (s stall) choose(id string) {
	s.t.Helper()
	_, err := s.Change(command.Change{Settings: settings.Settings{Voice: &id}}, "ana")
	require.NoError(s.t, err)
}

// tooSlow is a part of the problem of a room whose model's voice rests.
const tooSlow = "slower than real time"

// well waits until the model's voice does not rest in the room: a busy machine may be too slow for it.
func (s stall) well() {
	s.t.Helper()
	for tries := 20; s.Snapshot().VoiceProblem != ""; tries-- {
		require.Positive(s.t, tries, s.Snapshot().VoiceProblem)
		s.says(speech.Notice{Text: "Yes! Now it is the turn of the others."})
	}
}

// takesOver chooses the model's voice while a program speaks a text, and the program's again: the model reads whole sentences within
// it, and the words are shown once.
func (s stall) takesOver(c *choir, engine *bot.Engine) {
	s.t.Helper()
	speaks := func() bool { return s.Snapshot().Status.Activity == "speaking" }
	var lines []string
	for _, who := range []string{"man", "woman", "child", "farmer", "driver", "keeper"} { // short ones, as the small model speaks slowly
		lines = append(lines, "The "+who+" comes.", "There he waits for the "+who+".")
	}
	text := strings.Join(lines, " ")
	read := func() (read []string) {
		for _, line := range lines {
			if len(c.said(line)) > 0 {
				read = append(read, line)
			}
		}
		return read
	}
	for tries := 5; tries > 0 && len(read()) == 0; tries-- { // a model that is too slow does not get its turn
		s.well()
		s.choose("flite:slt")
		before, n := programs(engine), len(s.records.Records())
		require.NoError(s.t, s.Session.Say(speech.Notice{Text: text, Interrupt: true}, "ana"))
		require.Eventually(s.t, speaks, patience, time.Millisecond)
		s.choose(inference.VoiceModel)
		require.Eventually(s.t, func() bool { return len(read()) > 0 || len(s.records.Records()) > n }, 2*patience, time.Millisecond)
		s.choose("flite:slt")
		r := s.next(n, "the whole text", func(r look.Record) bool { return r.Announced != "" })
		s.choose(inference.VoiceModel)
		require.Equal(s.t, look.OutcomeSpoken, r.Outcome)
		require.Equal(s.t, text, r.Text)
		require.Equal(s.t, uint64(len(lines)), programs(engine)-before+uint64(len(read())), "each sentence is spoken once, by one of them")
		s.t.Logf("%d of %d sentences read by the model, %.1f s, %.0f ms of gaps", len(read()), len(lines), r.AudioSec,
			1000*(r.EndedAt.Sub(r.StartedAt).Seconds()-r.AudioSec))
	}
	require.NotEmpty(s.t, read())
	s.next(0, "its words are shown once", func(r look.Record) bool { return r.Text == text && s.reads(r) })
}

// listener watches a room and keeps the levels of the voice.
func (h *fixture) listener(roomName string) *stage.Viewer {
	h.t.Helper()
	token, err := conn.ViewerToken(h.keys, conn.Person{Room: roomName, Identity: "listener"})
	require.NoError(h.t, err)
	v, err := stage.NewViewer(stage.ViewerOptions{URL: h.url, Token: token, Levels: true, Log: zerolog.Nop()})
	require.NoError(h.t, err)
	h.run("listener of "+roomName, v.Run)
	return v
}

// hears reports whether the viewer heard a record in the model's voice: its level rises and falls as the model's does.
func (s stall) hears(r look.Record, c *choir) bool {
	const block = 240 // 10 ms
	sound := c.said(strings.TrimSpace(r.Text))
	if math.Abs(float64(len(sound))/24000-r.AudioSec) > 0.1 { // another sound of equal words
		return false
	}
	var made, heard []float64
	for i := 0; i+block <= len(sound) && len(made) < 120; i += block { // a packet may be lost later on
		var sum float64
		for _, v := range sound[i : i+block] {
			sum += float64(v) * float64(v)
		}
		made = append(made, math.Sqrt(sum/block))
	}
	for _, l := range s.viewer.Seen().Levels {
		if l.At.After(r.StartedAt.Add(-time.Second)) && l.At.Before(r.EndedAt.Add(2*time.Second)) {
			heard = append(heard, l.RMS)
		}
	}
	best := 0.0
	for at := 0; at+len(made) <= len(heard); at++ {
		best = max(best, alike(made, heard[at:at+len(made)]))
	}
	return best > 0.7
}

// alike returns the correlation of two rows.
func alike(a, b []float64) float64 {
	var sa, sb, aa, bb, ab float64
	n := float64(len(a))
	for i := range a {
		sa, sb, aa, bb, ab = sa+a[i], sb+b[i], aa+a[i]*a[i], bb+b[i]*b[i], ab+a[i]*b[i]
	}
	return (n*ab - sa*sb) / math.Sqrt(max((n*aa-sa*sa)*(n*bb-sb*sb), 1))
}

// reads reports whether the words of a record came to the viewer once and in order, not before the voice.
func (s stall) reads(r look.Record) bool {
	seen := s.viewer.Seen()
	want := strings.Fields(r.Text)
	for _, closed := range slices.Backward(seen.Closed) {
		if !slices.Equal(strings.Fields(closed.Text), want) || closed.At.Before(r.StartedAt) {
			continue
		}
		words := slices.DeleteFunc(seen.Words, func(w stage.Word) bool { return w.Segment != closed.Segment })
		return len(words) == len(want) && words[0].At.Sub(r.StartedAt) > -50*time.Millisecond
	}
	return false
}
