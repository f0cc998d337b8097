package voice_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/voice"
)

// engine is a model and session with a fixed answer.
type engine struct {
	chunks    []inference.Chunk
	err       error                            // after the last chunk
	before    func(ctx context.Context, i int) // runs before chunk i
	closed    bool
	seen      int // frames
	speaks    bool
	languages []string                                            // of its voice
	silent    []inference.Prompt                                  // those without speech
	voices    []string                                            // of those with speech
	speak     func(text string) iter.Seq2[inference.Chunk, error] // of Speak; nil for one that cannot
}

func (e *engine) Name() string                           { return "test" }
func (e *engine) NewSession() (inference.Session, error) { return e, nil }
func (e *engine) Close() error                           { e.closed = true; return nil }
func (e *engine) Observe(inference.Frame)                { e.seen++ }
func (e *engine) Capabilities() inference.Capabilities {
	return inference.Capabilities{Speech: e.speaks, VoiceLanguages: e.languages}
}

func (e *engine) Speak(_ context.Context, text, _, _ string) iter.Seq2[inference.Chunk, error] {
	if e.speak == nil {
		return func(yield func(inference.Chunk, error) bool) { yield(inference.Chunk{}, inference.ErrNoVoice) }
	}
	return e.speak(text)
}

func (e *engine) Status() inference.Status {
	return inference.Status{Phase: inference.PhaseReady, Percent: 100, Detail: "ready"}
}

func (e *engine) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		if !p.Speech {
			e.silent = append(e.silent, p)
		} else {
			e.voices = append(e.voices, p.Voice)
		}
		for i, c := range e.chunks {
			if e.before != nil {
				e.before(ctx, i)
			}
			if ctx.Err() != nil {
				yield(inference.Chunk{}, ctx.Err())
				return
			}
			if !yield(c, nil) {
				return
			}
		}
		if e.err != nil {
			yield(inference.Chunk{}, e.err)
		}
	}
}

// letters splits a text into chunks of n bytes.
func letters(text string, n int) []inference.Chunk {
	var chunks []inference.Chunk
	for len(text) > 0 {
		k := min(n, len(text))
		chunks = append(chunks, inference.Chunk{Text: text[:k]})
		text = text[k:]
	}
	return chunks
}

// answer is the answer of a session.
type answer struct {
	text   strings.Builder
	spoken []inference.Chunk
	ends   int           // of its text
	gap    time.Duration // how much later than its time a piece of sound came, at most
	err    error
}

func (a *answer) words() string {
	var all []string
	for _, c := range a.spoken {
		for _, w := range c.Words {
			all = append(all, w.Text)
		}
	}
	return strings.Join(all, " ")
}

func (a *answer) duration() time.Duration {
	var d time.Duration
	for _, c := range a.spoken {
		d += time.Duration(len(c.Audio)) * time.Second / time.Duration(c.AudioRate)
	}
	return d
}

func ask(tb testing.TB, m inference.Model, p inference.Prompt) *answer {
	tb.Helper()
	s, err := m.NewSession()
	require.NoError(tb, err)
	defer func() { require.NoError(tb, s.Close()) }()
	a := &answer{}
	for c, err := range s.Generate(tb.Context(), p) {
		require.NoError(tb, a.err, "an error is the last element")
		a.err = err
		a.text.WriteString(c.Text)
		if len(c.Audio) > 0 {
			a.spoken = append(a.spoken, c)
		}
	}
	return a
}

func TestSplit(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
	}{
		{"sentences", "A goal! The red team leads. Is it over?", []string{"A goal!", "The red team leads.", "Is it over?"}},
		{"numbers", "It is 2.5 to 1,000 now. It was 3.1 before.", []string{"It is 2.5 to 1,000 now.", "It was 3.1 before."}},
		{"abbreviations", "Dr. Smith vs. Mr. Jones, e.g. today. Yes.", []string{"Dr. Smith vs. Mr. Jones,", "e.g. today.", "Yes."}},
		{"initials", "J. R. Smith scores. The U.S. team waits.", []string{"J. R. Smith scores.", "The U.S. team waits."}},
		{"list", "1. The red team.\n2. The blue team.\n", []string{"1. The red team.", "2. The blue team."}},
		{
			"first clause comes early", "The red team moves to the left, and then on, and on to the end of the pitch where nobody is waiting, it seems.",
			[]string{
				"The red team moves to the left,",
				"and then on, and on to the end of the pitch where nobody is waiting,", "it seems.",
			},
		},
		{"silence", "...", nil},
		{"silence with a space", " ... \n", nil},
		{"silence in one sign", "…", nil},
		{"short", "Goal!", []string{"Goal!"}},
		{"dots in front", "... and a goal for red.", []string{"... and a goal for red."}},
		{"quotes", `He says "Go on!" and runs. So.`, []string{`He says "Go on!"`, "and runs.", "So."}},
		{"emoji alone", "Goal! 🎉🎉\nYes.", []string{"Goal!", "🎉🎉 Yes."}},
		{"chinese", "红队进球了。蓝队没有机会！", []string{"红队进球了。", "蓝队没有机会！"}},
		{"address", "See https://a.example/x.y?z. Done.", []string{"See https://a.example/x.y?z.", "Done."}},
		{"no end", strings.Repeat("word ", 60), []string{
			strings.TrimSpace(strings.Repeat("word ", 36)), strings.TrimSpace(strings.Repeat("word ", 24)),
		}},
		{"no space", strings.Repeat("a", 200), []string{strings.Repeat("a", 180), strings.Repeat("a", 20)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, n := range []int{1, 7, len(tt.text)} {
				var deltas []string
				for _, c := range letters(tt.text, n) {
					deltas = append(deltas, c.Text)
				}
				require.Equal(t, tt.want, voice.Split(deltas...), "in bits of %d bytes", n)
			}
		})
	}
}

func FuzzSplit(f *testing.F) {
	f.Add("A goal! It is 2.5 to 1. Dr. Smith...", uint8(3))
	f.Add("...", uint8(1))
	f.Add("红队进球了。\xff\xfe 1. a", uint8(2))
	f.Fuzz(func(t *testing.T, text string, n uint8) {
		var deltas []string
		for _, c := range letters(text, int(n)+1) {
			deltas = append(deltas, c.Text)
		}
		pieces := voice.Split(deltas...)
		if inference.ClassifyAnswer(text, true) != inference.HasWords {
			require.Empty(t, pieces, "nothing of a silent answer is spoken")
			return
		}
		for _, p := range pieces {
			require.NotEmpty(t, voice.Script(p))
		}
		if !utf8.ValidString(text) || len(text) > 500 {
			return
		}
		// The pieces equal the text, except for an unspeakable end.
		whole, kept := solid(text), solid(strings.Join(pieces, ""))
		require.True(t, strings.HasPrefix(whole, kept), "%q, %q", whole, kept)
		require.Empty(t, voice.Script(whole[len(kept):]))
	})
}

// solid returns the text without spaces.
func solid(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, text)
}

func TestWrapSpeaksTheWholeText(t *testing.T) {
	text := "**What a goal!** The red team leads by 2.5 points, says Dr. Smith. 🎉 See https://a.example/x. That is all"
	for _, n := range []int{1, 9, len(text)} {
		m := wrap(&engine{chunks: letters(text, n)}, synth(t, "auto"))
		a := ask(t, m, inference.Prompt{Speech: true})
		require.NoError(t, a.err)
		require.Equal(t, text, a.text.String(), "the text passes unchanged")
		require.Equal(t, text, a.words())
		require.GreaterOrEqual(t, len(a.spoken), 4)
		require.Greater(t, a.duration(), 4*time.Second)
		for _, c := range a.spoken {
			total := time.Duration(len(c.Audio)) * time.Second / time.Duration(c.AudioRate)
			require.Less(t, c.Words[0].Start, 40*time.Millisecond, "silence in front is cut off")
			last := c.Words[len(c.Words)-1]
			require.Less(t, total-last.End, 250*time.Millisecond, "and behind")
			for i, w := range c.Words {
				require.LessOrEqual(t, w.Start, w.End)
				require.LessOrEqual(t, w.End, total)
				if i > 0 {
					require.GreaterOrEqual(t, w.Start, c.Words[i-1].End)
				}
			}
		}
	}
}

func TestWrapSpeaksWhileTheTextStreams(t *testing.T) {
	heard := make(chan struct{})
	e := &engine{chunks: []inference.Chunk{{Text: "What a goal! "}, {Text: "And more."}}}
	e.before = func(ctx context.Context, i int) {
		if i == 1 { // the engine waits until the first sentence has been spoken
			select {
			case <-heard:
			case <-ctx.Done():
			}
		}
	}
	s, err := wrap(e, synth(t, "flite")).NewSession()
	require.NoError(t, err)
	var order []string
	for c, err := range s.Generate(t.Context(), inference.Prompt{Speech: true}) {
		require.NoError(t, err)
		if c.Text != "" {
			order = append(order, c.Text)
		}
		if len(c.Audio) > 0 {
			if len(order) == 1 {
				close(heard)
			}
			order = append(order, "sound of "+c.Words[0].Text)
		}
	}
	require.Equal(t, []string{"What a goal! ", "sound of What", "And more.", "sound of And"}, order)
}

func TestWrapKeepsSilence(t *testing.T) {
	for _, text := range []string{"...", " ...", "…", ".", ""} {
		a := ask(t, wrap(&engine{chunks: letters(text, 1)}, synth(t, "flite")), inference.Prompt{Speech: true})
		require.NoError(t, a.err)
		require.Equal(t, text, a.text.String())
		require.Empty(t, a.spoken)
	}
}

// modelRate is the rate of the model's voice; no program has it.
const modelRate = 24000

// sound is a chunk of a model's voice.
func sound(samples ...int16) inference.Chunk {
	return inference.Chunk{Audio: samples, AudioRate: modelRate}
}

// TestLanguagesOfTheModelsVoice: "auto" takes another voice for a language that the model's does not speak; "model" does not.
func TestLanguagesOfTheModelsVoice(t *testing.T) {
	own := []inference.Chunk{{Text: "Hallo."}, sound(1, 2, 3)}
	for _, tt := range []struct {
		voice, language string
		rate            int
	}{
		{"auto", "en-GB", modelRate}, {"auto", "zh", modelRate}, {"auto", "", modelRate}, {"auto", "nl", 22050}, {"model", "nl", modelRate},
	} {
		m := wrap(&engine{chunks: own, speaks: true, languages: []string{"en", "zh"}}, synth(t, "auto"))
		a := ask(t, m, inference.Prompt{Speech: true, Voice: tt.voice, Language: tt.language})
		require.NoError(t, a.err)
		require.NotEmpty(t, a.spoken)
		require.Equal(t, tt.rate, a.spoken[0].AudioRate, "%s in %q", tt.voice, tt.language)
	}
	t.Setenv("PATH", "") // no program speaks it either
	m := wrap(&engine{chunks: own, speaks: true, languages: []string{"en", "zh"}}, synth(t, "auto"))
	require.Equal(t, modelRate, ask(t, m, inference.Prompt{Speech: true, Language: "nl"}).spoken[0].AudioRate)
}

func TestWrapPassesTheModelsVoice(t *testing.T) {
	own := []inference.Chunk{
		{Text: "What a goal! "}, sound(1, 2, 3), {Text: "And more. And more.", Audio: []int16{4, 5}, AudioRate: modelRate},
	}
	e := &engine{chunks: own, speaks: true}
	m := wrap(e, synth(t, "auto"))
	require.True(t, m.Capabilities().OwnVoice)
	for _, name := range []string{"", "auto", "model"} {
		a := ask(t, m, inference.Prompt{Speech: true, Voice: name})
		require.NoError(t, a.err)
		require.Equal(t, "What a goal! And more. And more.", a.text.String())
		require.Equal(t, []inference.Chunk{sound(1, 2, 3), sound(4, 5)}, a.spoken)
	}
	require.Empty(t, e.silent)

	named, err := voice.New(inference.VoiceConfig{Program: "model", Name: "anna", Language: "en"}, zerolog.Nop())
	require.NoError(t, err)
	e.voices = nil
	for _, name := range []string{"", "model", "model:bob", "auto"} {
		require.NoError(t, ask(t, wrap(e, named), inference.Prompt{Speech: true, Voice: name}).err)
	}
	require.Equal(t, []string{"model:anna", "model", "model:bob", "auto"}, e.voices)

	a := ask(t, m, inference.Prompt{Speech: true, Voice: "flite:slt"})
	require.Len(t, e.silent, 1, "the model makes no sound for nothing")
	require.Equal(t, "What a goal! And more. And more.", a.words())
	for _, c := range a.spoken {
		require.Equal(t, 16000, c.AudioRate)
	}

	a = ask(t, wrap(&engine{chunks: letters("What a goal!", 3)}, synth(t, "flite")), inference.Prompt{})
	require.Equal(t, "What a goal!", a.text.String())
	require.Empty(t, a.spoken)
}

// TestWrapSpeaksOnWhereTheModelsVoiceFails: no word is lost or said twice, wherever the voice fails.
func TestWrapSpeaksOnWhereTheModelsVoiceFails(t *testing.T) {
	const text = "What a goal! The keeper é cried. And so it ends"
	broken := errors.New("the vocoder has no memory")
	for _, tt := range []struct {
		name   string
		chunks []inference.Chunk
		own    int // chunks of the model
		want   string
	}{
		{"at once", []inference.Chunk{{VoiceFailed: &inference.VoiceFailure{Err: broken}}, {Text: text}}, 0, text},
		{"after the first sentence", []inference.Chunk{
			{Text: text[:20]},
			sound(1),
			{Text: text[20:30], VoiceFailed: &inference.VoiceFailure{From: 13, Err: broken}},
			sound(9),
			{Text: text[30:]},
		}, 1, text[13:]},
		{"beyond the text so far", []inference.Chunk{
			{Text: text[:10]}, sound(1), {VoiceFailed: &inference.VoiceFailure{From: 13, Err: broken}}, {Text: text[10:]},
		}, 1, text[13:]},
		{"within a character", []inference.Chunk{
			{Text: text}, sound(1), {VoiceFailed: &inference.VoiceFailure{From: 25, Err: broken}},
		}, 1, text[24:]},
		{"at the end", []inference.Chunk{
			{Text: text}, sound(1), {VoiceFailed: &inference.VoiceFailure{From: len(text), Err: broken}},
		}, 1, ""},
		{"without a word", []inference.Chunk{{Text: text}}, 0, text},
		{"before it is no silence", []inference.Chunk{
			{Text: "Wha"}, sound(1), {VoiceFailed: &inference.VoiceFailure{From: 13, Err: broken}}, {Text: text[3:]},
		}, 1, text[13:]},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := wrap(&engine{chunks: tt.chunks, speaks: true}, synth(t, "auto"))
			a := ask(t, m, inference.Prompt{Speech: true})
			require.NoError(t, a.err)
			require.Equal(t, text, a.text.String())
			require.Equal(t, tt.want, a.words())
			for i, c := range a.spoken {
				require.Equal(t, i < tt.own, c.AudioRate == modelRate, "chunk %d", i)
			}
			require.Contains(t, m.Status().VoiceProblem, "the model's voice failed: ")
		})
	}
}

// TestWrapKeepsTheModelsSilence: sound for an answer that says nothing is not passed on.
func TestWrapKeepsTheModelsSilence(t *testing.T) {
	for _, text := range []string{"...", "…", " . ", ""} {
		m := wrap(&engine{chunks: []inference.Chunk{sound(1), {Text: text}, sound(2)}, speaks: true}, synth(t, "flite"))
		a := ask(t, m, inference.Prompt{Speech: true})
		require.NoError(t, a.err)
		require.Equal(t, text, a.text.String())
		require.Empty(t, a.spoken)
	}
}

// TestNoVoice: the model's voice is asked for, and there is none.
func TestNoVoice(t *testing.T) {
	m := wrap(&engine{chunks: letters("What a goal!", 3)}, synth(t, "model"))
	require.False(t, m.Capabilities().OwnVoice)
	a := ask(t, m, inference.Prompt{Speech: true})
	require.Equal(t, "What a goal!", a.text.String())
	require.Empty(t, a.spoken)
	require.Equal(t, inference.ErrNoVoice.Error(), m.Status().VoiceProblem)
}

func TestWrapSpeaksThePromptsLanguage(t *testing.T) {
	m := wrap(&engine{chunks: letters("Tor für Rot!", 4)}, synth(t, "auto"))
	a := ask(t, m, inference.Prompt{Speech: true, Language: "de-DE"})
	require.NoError(t, a.err)
	require.Len(t, a.spoken, 1)
	require.Equal(t, 22050, a.spoken[0].AudioRate, "espeak-ng's rate")
}

// TestPronunciations: the voice reads a word as it is pronounced; the words and their times stay those of the text.
func TestPronunciations(t *testing.T) {
	says := map[string]string{"ruiz": "roo eeth, the *great*", "nguyen": "win", "psg": "🎉", "d'or": "door"}
	for text, want := range map[string]string{
		"Ruiz passes to Nguyen.":       "roo eeth, the great passes to win.",
		"\"RUIZ's\" shot, (Nguyen)!":   "roo eeth, the great's shot, (win)!",
		"PSG wins the Ballon d’Or":     "PSG wins the Ballon door",
		"Ruizito and Ruiz-Nguyen wait": "Ruizito and Ruiz Nguyen wait",
	} {
		require.Equal(t, want, voice.ScriptWith(text, says), "%q", text)
	}

	long := inference.Prompt{Speech: true, Pronunciations: map[string]string{"xi": "a very much longer name than the one that is written"}}
	m := wrap(&engine{chunks: letters("Then Xi scores!", 4)}, synth(t, "auto"))
	a, plain := ask(t, m, long), ask(t, m, inference.Prompt{Speech: true})
	require.Equal(t, "Then Xi scores!", a.text.String())
	require.Equal(t, "Then Xi scores!", a.words())
	require.Greater(t, a.duration(), plain.duration()+time.Second)
	xi, scores := a.spoken[0].Words[1], a.spoken[0].Words[2]
	require.Greater(t, xi.End-xi.Start, time.Second, "the word lasts as long as it is spoken")
	require.GreaterOrEqual(t, scores.Start, xi.End)
}

// TestSpeak: a text that is no answer is spoken by whoever has the voice.
func TestSpeak(t *testing.T) {
	const text = "Somebody enters by the left door."
	own := func(chunks ...inference.Chunk) func(string) iter.Seq2[inference.Chunk, error] {
		return func(string) iter.Seq2[inference.Chunk, error] {
			return func(yield func(inference.Chunk, error) bool) {
				for _, c := range chunks {
					if !yield(c, nil) {
						return
					}
				}
				yield(inference.Chunk{}, errors.New("the voice broke"))
			}
		}
	}
	for _, tt := range []struct {
		name, voice string
		e           *engine
		rates       []int
	}{
		{"a program", "", &engine{err: errors.New("asked")}, []int{16000}},
		{"a named voice", "espeak-ng:en", &engine{}, []int{22050}},
		{"a model that speaks answers only", "model", &engine{speaks: true}, []int{16000}},
		{"a model that fails", "", &engine{speaks: true, speak: own(inference.Chunk{Text: text[:9]})}, []int{16000}},
		{"a model that fails late", "", &engine{speaks: true, speak: own(inference.Chunk{Text: text}, sound(1))}, []int{modelRate, 16000}},
		{"not the model", "flite:slt", &engine{speaks: true, speak: own(inference.Chunk{Text: text}, sound(1))}, []int{16000}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := wrap(tt.e, synth(t, "auto")).NewSession()
			require.NoError(t, err)
			var said strings.Builder
			var rates []int
			for c, err := range s.(inference.Speaker).Speak(t.Context(), text, tt.voice, "en") {
				require.NoError(t, err)
				said.WriteString(c.Text)
				if len(c.Audio) > 0 {
					rates = append(rates, c.AudioRate)
				}
			}
			require.Equal(t, text, said.String())
			require.Equal(t, tt.rates, rates)
		})
	}
}

func TestWrapTextGoesOnWithoutAVoice(t *testing.T) {
	program := t.TempDir()
	t.Setenv("PATH", program)
	var logged bytes.Buffer
	s, err := voice.New(inference.VoiceConfig{}, zerolog.New(zerolog.SyncWriter(&logged)))
	require.NoError(t, err)
	m := wrap(&engine{chunks: letters("One goal here. Two goals there. Three goals.", 5)}, s)
	for range 2 {
		a := ask(t, m, inference.Prompt{Speech: true})
		require.NoError(t, a.err)
		require.Equal(t, "One goal here. Two goals there. Three goals.", a.text.String())
		require.Empty(t, a.spoken)
	}
	require.Equal(t, 1, strings.Count(logged.String(), "apt-get install flite"), "said once")
	require.Equal(t, inference.PhaseReady, m.Status().Phase)
	require.Contains(t, m.Status().VoiceProblem, "apt-get install flite")
}

func TestWrapTellsTheEnginesErrorLast(t *testing.T) {
	broken := errors.New("the server hung up")
	m := wrap(&engine{chunks: letters("What a goal! And then the", 6), err: broken}, synth(t, "flite"))
	a := ask(t, m, inference.Prompt{Speech: true})
	require.ErrorIs(t, a.err, broken)
	require.Equal(t, "What a goal! And then the", a.text.String())
	require.Len(t, a.spoken, 1, "the sentence that was complete is spoken")
}

func TestWrapEndsWithItsContextAndWithTheLoop(t *testing.T) {
	e := &engine{chunks: letters("What a goal! And more.", 3)}
	e.before = func(ctx context.Context, i int) {
		if i == 5 {
			<-ctx.Done()
		}
	}
	s, err := wrap(e, synth(t, "flite")).NewSession()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for c, err := range s.Generate(ctx, inference.Prompt{Speech: true}) {
		last = err
		if len(c.Audio) > 0 {
			cancel()
		}
	}
	require.ErrorIs(t, last, context.Canceled)

	for _, err := range s.Generate(t.Context(), inference.Prompt{Speech: true}) {
		require.NoError(t, err)
		break // goleak checks for goroutines
	}
}

func TestWrapBoundsALongAnswer(t *testing.T) {
	// The program hangs while the engine continues.
	program(t, "flite", "exec sleep 300")
	e := &engine{chunks: letters(strings.Repeat("Goal again. ", 3000), 600)}
	s, err := wrap(e, synth(t, "flite")).NewSession()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	text := 0
	for c, err := range s.Generate(ctx, inference.Prompt{Speech: true}) {
		if err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
		text += len(c.Text)
		if text == 36000 {
			cancel()
		}
	}
	require.Equal(t, 36000, text, "the text does not wait for the voice")
}

func TestWrapPassesFramesOn(t *testing.T) {
	e := &engine{}
	s, err := wrap(e, synth(t, "flite")).NewSession()
	require.NoError(t, err)
	s.Observe(inference.Frame{})
	require.Equal(t, 1, e.seen)
}

// BenchmarkFirstSound measures the time from the last letter of a sentence to its sound.
func BenchmarkFirstSound(b *testing.B) {
	s, err := wrap(&engine{chunks: letters("The red team scores. And then it goes on.", 4)}, synth(b, "flite")).NewSession()
	require.NoError(b, err)
	for b.Loop() {
		for c, err := range s.Generate(b.Context(), inference.Prompt{Speech: true}) {
			require.NoError(b, err)
			if len(c.Audio) > 0 {
				break
			}
		}
	}
}
