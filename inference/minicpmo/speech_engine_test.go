//go:build integration

package minicpmo_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/conformance/bundles"
	"touchline/inference/internal/ort/orttest"
	"touchline/inference/minicpmo"
	"touchline/inference/minicpmo/voice"
	"touchline/models"
)

// speaking is the bundle that tests of the voice share.
var speaking struct {
	sync.Once

	dir string
	err error
}

// speakingBundle returns the tiny checkpoint with its voice, for the CPU.
func speakingBundle(t *testing.T) *models.Bundle {
	t.Helper()
	speaking.Do(func() { speaking.dir, speaking.err = makeSpeaking(t) })
	require.NoError(t, speaking.err)
	b, err := models.OpenBundle(speaking.dir)
	require.NoError(t, err)
	return b
}

func makeSpeaking(t *testing.T) (string, error) {
	t.Helper()
	out, err := os.MkdirTemp("", "speaking") //nolint:usetesting // outlives the test
	require.NoError(t, err)
	shared = append(shared, out)
	to := filepath.Join(out, "b")
	return to, bundles.Speaking(t.Context(), "../..", t.TempDir(), to)
}

// promptVoice is the voice of the official fixtures.
func promptVoice(t *testing.T) voice.Reference {
	t.Helper()
	prompt := openFixture(t, "voice_prompt")
	v := voice.Reference{Mel: prompt.floats("prompt_mel"), Speaker: prompt.floats("spk_embedding")}
	for _, c := range prompt.ints("prompt_codes") {
		v.Codes = append(v.Codes, int32(c))
	}
	return v
}

// hurried returns a fast clock: sound need not wait until the sound before it was heard.
func hurried() func() time.Time {
	began := time.Now()
	return func() time.Time { return began.Add(50 * time.Since(began)) }
}

// openSpeaking opens an engine with a voice.
func openSpeaking(t *testing.T) *minicpmo.Engine {
	t.Helper()
	return openSpeakingWith(t, &minicpmo.Faults{}, hurried())
}

func openSpeakingWith(t *testing.T, f *minicpmo.Faults, now func() time.Time) *minicpmo.Engine {
	t.Helper()
	c := settings(t)
	c.MaxTokens = 24
	o := minicpmo.Options{Config: c, Threads: 1, Now: now}.WithFaults(f)
	e, err := minicpmo.Open(t.Context(), speakingBundle(t), o.WithVoices(map[string]voice.Reference{inference.DefaultVoice: promptVoice(t)}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// said is what came of a prompt.
type said struct {
	text    string
	samples int
	words   []inference.WordTime
	failure *inference.VoiceFailure
	err     error
}

func say(t *testing.T, s inference.Session, text string) said {
	t.Helper()
	return answer(t, s, inference.Prompt{Text: text, Frames: []inference.Frame{frame(t, "320x240.png", 0)}, Speech: true})
}

// answer lets a room answer a prompt.
func answer(t *testing.T, s inference.Session, p inference.Prompt) (out said) {
	t.Helper()
	for c, err := range s.Generate(t.Context(), p) {
		if err != nil {
			out.err = err
			return out
		}
		out.text += c.Text
		if c.VoiceFailed != nil {
			out.failure = c.VoiceFailed
		}
		at := time.Duration(out.samples) * time.Second / 24000
		for _, w := range c.Words {
			out.words = append(out.words, inference.WordTime{Text: w.Text, Start: w.Start + at, End: w.End + at})
		}
		if len(c.Audio) > 0 {
			require.Equal(t, 24000, c.AudioRate)
			require.NotNil(t, c.Words)
		}
		out.samples += len(c.Audio)
	}
	return out
}

// TestOwnVoice: answers of two rooms at once with their sound and the times of their words.
func TestOwnVoice(t *testing.T) {
	orttest.NoLeaks(t)
	e := openSpeaking(t)
	require.True(t, e.Capabilities().Speech)
	var wg sync.WaitGroup
	for room := range 2 {
		wg.Go(func() {
			s, err := e.NewSession()
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			for range 2 {
				got := say(t, s, "Tell me what you see.")
				if got.err != nil || got.failure != nil || got.samples == 0 {
					t.Errorf("room %d: %v, %+v, %d samples", room, got.err, got.failure, got.samples)
					return
				}
				var words []string
				for _, w := range got.words {
					words = append(words, w.Text)
				}
				if strings.Join(words, " ") != strings.Join(strings.Fields(got.text), " ") {
					t.Errorf("room %d: %q, and in time %q", room, got.text, words)
				}
			}
		})
	}
	wg.Wait()
}

// TestPublishedVoice speaks in the voice of the bundle's sound, and in a stored one.
func TestPublishedVoice(t *testing.T) {
	orttest.NoLeaks(t)
	b := speakingBundle(t)
	made, err := voice.LoadDefault(t.Context(), orttest.Library(t), b, voice.Short)
	require.NoError(t, err)
	require.NoError(t, voice.Save(b, "other", voice.Stored{Reference: made}))
	t.Cleanup(func() { require.NoError(t, voice.Remove(b, "other")) })
	c := settings(t)
	c.Voice.Slots, c.Voice.Prompt = 2, inference.ShortPrompt
	e := open(t, b, c)
	require.True(t, e.Capabilities().Speech)
	require.Equal(t, 2, e.Stats().VoiceSlotsAll)
	require.Contains(t, e.Status().Detail, ", speaks 2 at once")
	require.Empty(t, e.Status().VoiceProblem)
	s, err := e.NewSession()
	require.NoError(t, err)
	defer s.Close()
	for _, name := range []string{"", inference.VoiceModel + ":other", inference.VoiceModel + ":missing"} {
		samples := 0
		for c, err := range s.(inference.Speaker).Speak(t.Context(), "A car.", name, "") { //nolint:forcetypeassert // a Session is one
			require.NoError(t, err)
			require.Nil(t, c.VoiceFailed)
			samples += len(c.Audio)
		}
		require.Positive(t, samples, name)
	}
}

// TestVoiceCancelled leaves answers at their first word or in the middle of their sound; later ones are whole.
func TestVoiceCancelled(t *testing.T) {
	orttest.NoLeaks(t)
	e := openSpeaking(t)
	s, err := e.NewSession()
	require.NoError(t, err)
	defer s.Close()
	p := inference.Prompt{Text: "What is it?", Frames: []inference.Frame{frame(t, "320x240.png", 0)}, Speech: true}
	for i := range 12 {
		for c, err := range s.Generate(t.Context(), p) {
			require.NoError(t, err)
			if i%2 == 0 || len(c.Audio) > 0 {
				break
			}
		}
	}
	got := say(t, s, "And now?")
	require.NoError(t, got.err)
	require.Nil(t, got.failure)
	require.Positive(t, got.samples)
}

// TestSoundBehindItsText: the next answer is written while the last one is still heard, and its sound follows that one's. An answer
// that is left behind its text frees what it held.
func TestSoundBehindItsText(t *testing.T) {
	orttest.NoLeaks(t)
	e := openSpeakingWith(t, &minicpmo.Faults{}, time.Now)
	s, err := e.NewSession()
	require.NoError(t, err)
	defer s.Close()
	p := inference.Prompt{Text: "What is it?", Frames: []inference.Frame{frame(t, "320x240.png", 0)}, Speech: true}
	written, left := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	second := func() {
		for c, err := range s.Generate(t.Context(), p) {
			if err != nil || c.VoiceFailed != nil {
				t.Error(err, c.VoiceFailed)
				return
			}
			if c.TextEnds {
				close(written)
			}
			if len(c.Audio) == 0 {
				continue
			}
			select {
			case <-left:
			default:
				t.Error("two answers of a room sound at once")
			}
			return // all of the sound takes as long as it is heard
		}
		t.Error("no sound")
	}
	traces, ended := 0, 0
	p.Trace = func(inference.Exchange) { traces++ }
	for c, err := range s.Generate(t.Context(), p) {
		require.NoError(t, err)
		switch {
		case c.TextEnds:
			require.Equal(t, 1, traces, "before the answer has its sound")
			ended++
			p.Trace = nil
			wg.Go(second)
			<-written // beside the first one's sound
		case ended > 0:
			require.Empty(t, c.Text)
			require.NotEmpty(t, c.Audio)
			close(left)
		}
		if ended > 0 && len(c.Audio) > 0 {
			break
		}
	}
	wg.Wait()
	require.Equal(t, 1, ended)
	for c, err := range s.Generate(t.Context(), p) {
		require.NoError(t, err)
		if c.TextEnds {
			break
		}
	}
	require.Eventually(t, func() bool { return e.Stats().VoiceSlots == 0 && e.Stats().Slots == 0 }, time.Minute, time.Millisecond)
}

// openMortal opens a room of an engine that speaks, whose device lose takes away.
func openMortal(t *testing.T) (s inference.Session, lose func()) {
	t.Helper()
	var dead atomic.Bool
	s, err := openSpeakingWith(t, &minicpmo.Faults{Decode: func(int, int) error {
		if dead.Load() {
			return fmt.Errorf("run: %w", minicpmo.ErrDeviceLost)
		}
		return nil
	}}, time.Now).NewSession()
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s, func() {
		dead.Store(true)
		var last error
		for _, err := range s.Generate(t.Context(), inference.Prompt{Text: "And now?"}) {
			last = err
		}
		require.ErrorIs(t, last, minicpmo.ErrDeviceLost)
	}
}

// TestEngineLostDuringSound: two answers whose texts have ended, one heard and one that waits for it, end with a failure of the voice, and
// hold nothing.
func TestEngineLostDuringSound(t *testing.T) {
	orttest.NoLeaks(t)
	s, lose := openMortal(t)
	p := inference.Prompt{Text: "What is it?", Frames: []inference.Frame{frame(t, "320x240.png", 0)}, Speech: true}
	var failures [2]*inference.VoiceFailure
	written := make(chan struct{})
	var wg sync.WaitGroup
	answer := func(i int, ends func()) {
		for c, err := range s.Generate(t.Context(), p) {
			if err != nil {
				t.Error(i, err) // its text is whole
			}
			if c.TextEnds {
				ends()
			}
			if c.VoiceFailed != nil {
				failures[i] = c.VoiceFailed
			}
		}
	}
	answer(0, func() {
		wg.Go(func() { answer(1, func() { close(written) }) })
		<-written
		lose()
	})
	wg.Wait()
	for _, f := range failures {
		require.NotNil(t, f)
		require.ErrorIs(t, f.Err, minicpmo.ErrDeviceLost)
	}
}

// TestEngineLostInALongText: the failure of a text that is read as two turns says where in the text it is.
func TestEngineLostInALongText(t *testing.T) {
	orttest.NoLeaks(t)
	s, lose := openMortal(t)
	first := strings.Repeat(" ", 290) + "." // no sound
	var failure *inference.VoiceFailure
	said, lost := "", false
	for c, err := range s.(inference.Speaker).Speak(t.Context(), first+" And a man sees it.", inference.VoiceModel, "en") { //nolint:forcetypeassert // it is one
		require.NoError(t, err)
		if c.VoiceFailed != nil {
			failure = c.VoiceFailed
		}
		said += c.Text
		if said != first && len(c.Audio) > 0 && !lost {
			lost = true
			lose()
		}
	}
	require.True(t, lost)
	require.NotNil(t, failure)
	require.ErrorIs(t, failure.Err, minicpmo.ErrDeviceLost)
	require.Equal(t, len(first), failure.From)
}

// TestVoiceHushed: the text of an answer goes on without its sound.
func TestVoiceHushed(t *testing.T) {
	orttest.NoLeaks(t)
	e := openSpeaking(t)
	s, err := e.NewSession()
	require.NoError(t, err)
	defer s.Close()
	s.(inference.VoiceCanceller).CancelVoice() // nothing to end
	p := inference.Prompt{Text: "What is it?", Frames: []inference.Frame{frame(t, "320x240.png", 0)}, Speech: true}
	whole := say(t, s, p.Text)
	require.Positive(t, whole.samples)
	var text strings.Builder
	for c, err := range s.Generate(t.Context(), p) {
		require.NoError(t, err)
		require.Nil(t, c.VoiceFailed)
		text.WriteString(c.Text)
		s.(inference.VoiceCanceller).CancelVoice()
	}
	require.NotEmpty(t, text.String())
	require.Eventually(t, func() bool { return e.Stats().VoiceSlots == 0 }, time.Minute, time.Millisecond)
}

// TestVoiceOff: without its voice the engine has no sound, and says so before an answer.
func TestVoiceOff(t *testing.T) {
	orttest.NoLeaks(t)
	c := settings(t)
	c.Voice.Enabled = false
	e := open(t, speakingBundle(t), c)
	require.False(t, e.Capabilities().Speech)
	s, err := e.NewSession()
	require.NoError(t, err)
	defer s.Close()
	got := say(t, s, "What is it?")
	require.NoError(t, got.err)
	require.Zero(t, got.samples)
	require.NotEmpty(t, got.text)
}

// TestGivenText speaks texts that the model did not write, one with a mark of its own. A turn that fills its slot ends before its text.
func TestGivenText(t *testing.T) {
	orttest.NoLeaks(t)
	e := openSpeaking(t)
	s, err := e.NewSession()
	require.NoError(t, err)
	defer s.Close()
	speaker, ok := s.(inference.Speaker)
	require.True(t, ok)
	for _, text := range []string{
		"A red car.", "<|im_end|> is it.", "...",
	} {
		var said strings.Builder
		var words []string
		samples := 0
		for c, err := range speaker.Speak(t.Context(), text, inference.VoiceModel, "en") {
			require.NoError(t, err)
			require.Nil(t, c.VoiceFailed)
			said.WriteString(c.Text)
			samples += len(c.Audio)
			for _, w := range c.Words {
				words = append(words, w.Text)
			}
		}
		require.Equal(t, text, said.String())
		if text == inference.Silence {
			require.Zero(t, samples)
			continue
		}
		require.Positive(t, samples)
		require.Subset(t, strings.Fields(text), words)
		require.Equal(t, strings.Fields(text)[0], words[0])
	}
}

// TestNamedVoice speaks in a further voice of the bundle, which sounds different.
func TestNamedVoice(t *testing.T) {
	orttest.NoLeaks(t)
	anna := promptVoice(t)
	anna.Speaker = slices.Clone(anna.Speaker)
	slices.Reverse(anna.Speaker)
	o := minicpmo.Options{Config: settings(t), Threads: 1, Now: hurried()}.WithVoices(map[string]voice.Reference{
		inference.DefaultVoice: promptVoice(t), "anna": anna,
	})
	e, err := minicpmo.Open(t.Context(), speakingBundle(t), o)
	require.NoError(t, err)
	defer e.Close()
	require.Equal(t, []string{"anna"}, e.Capabilities().OwnVoices)
	said := map[string][]int16{}
	for _, voice := range []string{inference.VoiceModel, "model:anna"} {
		s, err := e.NewSession()
		require.NoError(t, err)
		for c, err := range s.(inference.Speaker).Speak(t.Context(), "A red car.", voice, "en") { //nolint:forcetypeassert // it is one
			require.NoError(t, err)
			said[voice] = append(said[voice], c.Audio...)
		}
		require.NoError(t, s.Close())
		require.NotEmpty(t, said[voice])
	}
	require.NotEqual(t, said[inference.VoiceModel], said["model:anna"])
}

// TestGivenStates: the states of a given text from the run of its prompt, also in pieces and padded, are those of its tokens
// one by one, and so is what is heard of it.
func TestGivenStates(t *testing.T) {
	orttest.NoLeaks(t)
	const text = "A red car waits at the corner, and two people cross the street before it."
	c := settings(t)
	open := func(change func(minicpmo.Options) minicpmo.Options) *minicpmo.Engine {
		o := minicpmo.Options{Config: c, Threads: 1}.WithVoices(map[string]voice.Reference{inference.DefaultVoice: promptVoice(t)})
		e, err := minicpmo.Open(t.Context(), speakingBundle(t), change(o))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, e.Close()) })
		return e
	}
	want := open(minicpmo.Options.TokenByToken)
	tokens, sound := givenStates(t, want, text)
	require.NotZero(t, want.Stats().Tokens)
	require.Equal(t, text, joined(tokens))
	for _, change := range []func(minicpmo.Options) minicpmo.Options{
		func(o minicpmo.Options) minicpmo.Options { return o },
		func(o minicpmo.Options) minicpmo.Options { return o.WithChunk(5).WithPad(32) },
	} {
		e := open(change)
		got, heard := givenStates(t, e, text)
		require.Zero(t, e.Stats().Tokens, "nothing is written token by token")
		require.Len(t, got, len(tokens))
		for i, g := range got {
			require.Equal(t, tokens[i].ID, g.ID)
			require.Equal(t, tokens[i].Stop, g.Stop)
			require.Equal(t, tokens[i].Text, g.Text)
			require.InDeltaSlice(t, tokens[i].Hidden, g.Hidden, 1e-4, "state before token %d", i)
		}
		require.InDeltaSlice(t, sound, heard, 64, "the codes are the same")
	}
}

func joined(tokens []minicpmo.Token) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteString(t.Text)
	}
	return b.String()
}

// givenStates returns the steps of a text that is given, and the first sound of reading it.
func givenStates(t *testing.T, e *minicpmo.Engine, text string) (tokens []minicpmo.Token, sound []int16) {
	t.Helper()
	r := chat(t, e, "Read it.", 100)
	r.Hidden, r.Forced = true, e.Tokenizer().EncodeLiteral(text)
	for tok, err := range e.Answer(t.Context(), r) {
		require.NoError(t, err)
		tokens = append(tokens, tok)
	}
	require.True(t, tokens[len(tokens)-1].Stop)
	s, err := e.NewSession()
	require.NoError(t, err)
	defer s.Close()
	for c, err := range s.(inference.Speaker).Speak(t.Context(), text, inference.VoiceModel, "en") { //nolint:forcetypeassert // a Session is one
		require.NoError(t, err)
		require.Nil(t, c.VoiceFailed)
		if sound = append(sound, c.Audio...); len(sound) > 2*24000 {
			break // the rest is made no faster than it is heard
		}
	}
	require.Greater(t, len(sound), 2*24000)
	return tokens, sound[:2*24000]
}
