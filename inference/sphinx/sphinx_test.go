package sphinx_test

import (
	"context"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"touchline/inference"
	"touchline/inference/sphinx"
	"touchline/inference/voice"
	"touchline/internal/resample"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var orders = []string{"undo that", "turn it down", "stop", "stop talking", "be quiet", "go on", "louder", "What's the score?", "who has the ball", "tell me the score every minute"}

// open returns a recognizer; the test is skipped where the programs are not installed.
func open(t *testing.T) *sphinx.Recognizer {
	t.Helper()
	for _, p := range []string{"pocketsphinx_batch", "flite", "espeak-ng"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skip(p + " is not installed")
		}
	}
	r, err := sphinx.Open(sphinx.Options{Orders: orders})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// say returns a sentence by a voice, with digital silence around it.
func say(t *testing.T, name, text string) []float32 {
	t.Helper()
	cfg := inference.DefaultConfig().Voice
	cfg.Program, cfg.Name = "flite", name
	if strings.HasPrefix(name, "en") {
		cfg.Program = "espeak-ng"
	}
	synth, err := voice.New(cfg, zerolog.Nop())
	require.NoError(t, err)
	speech, err := synth.Say(t.Context(), text, "en")
	require.NoError(t, err)
	sound := make([]float32, len(speech.Audio))
	for i, v := range speech.Audio {
		sound[i] = float32(v) / 32768
	}
	sound, err = resample.All(sound, speech.Rate, inference.RecognizerRate)
	require.NoError(t, err)
	return append(append(make([]float32, 4800), sound...), make([]float32, 8000)...)
}

func TestSpokenOrders(t *testing.T) {
	r := open(t)
	for _, c := range []struct {
		voice, said string
		hearing     inference.Hearing
		want        string
	}{
		{"slt", "hey touchline, stop talking", inference.Hearing{}, "hey touchline stop talking"},
		{"rms", "hey touchline, what's the score?", inference.Hearing{Language: "en-GB"}, "hey touchline what's the score"},
		{"slt", "hey touchline", inference.Hearing{}, "hey touchline"},
		{"awb", "tell me the score every minute", inference.Hearing{Addressed: true}, "tell me the score every minute"},
		{"slt", "tell me the score every minute", inference.Hearing{}, ""},
		{"rms", "hello computer, be quiet", inference.Hearing{WakeWords: []string{"Hello, computer!"}}, "hello computer be quiet"},
		{"slt", "the ball goes over the touchline in the second half", inference.Hearing{}, ""},
		{"rms", "my daughter plays the violin but not on Sundays", inference.Hearing{Addressed: true}, ""},
		{"slt", "hey touchline, please be quiet now", inference.Hearing{}, "hey touchline please be quiet now"},
		{"en-us", "hey touchline, who has the ball?", inference.Hearing{}, "hey touchline who has the ball"},
		{"en-gb-scotland", "what's the score?", inference.Hearing{Addressed: true}, "what's the score"},
		{"en-gb-scotland", "undo that", inference.Hearing{Addressed: true}, "undo that"},
		{"en-gb-scotland", "turn it down", inference.Hearing{Addressed: true}, "turn it down"},
		{"slt", "I hate touchline talk for no reason", inference.Hearing{}, ""},
	} {
		u, err := r.Listen(t.Context(), c.hearing)
		require.NoError(t, err)
		sound := say(t, c.voice, c.said)
		partial, err := u.Hear(t.Context(), sound[:8000])
		require.NoError(t, err)
		require.Empty(t, partial.Text)
		got, err := u.Finish(t.Context(), sound[8000:])
		require.NoError(t, err)
		require.NoError(t, u.Close())
		require.Equal(t, c.want, got.Text, "%s: %s", c.voice, c.said)
		require.True(t, got.Final)
	}
	noisy := say(t, "slt", "hey touchline, tell me the score every minute")
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range noisy {
		noisy[i] += 0.02 * float32(rng.NormFloat64()) // 15 dB below the voice
	}
	for got, err := range r.Transcribe(t.Context(), noisy, inference.Hearing{}) {
		require.NoError(t, err)
		require.Equal(t, "hey touchline tell me the score every minute", got.Text, "in noise")
	}
	for got, err := range r.Transcribe(t.Context(), make([]float32, inference.RecognizerRate), inference.Hearing{}) {
		require.NoError(t, err)
		require.Empty(t, got.Text, "digital silence")
	}
}

// TestFirst: speech that goes first does not wait for the other speech that waits.
func TestFirst(t *testing.T) {
	r := open(t)
	sphinx.OneSlot(r)
	const others = 12
	done := make(chan struct{}, others)
	var all errgroup.Group
	hear := func(h inference.Hearing) error {
		for _, err := range r.Transcribe(t.Context(), make([]float32, inference.RecognizerRate/2), h) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	for range others {
		all.Go(func() error {
			defer func() { done <- struct{}{} }()
			return hear(inference.Hearing{})
		})
	}
	<-done // all others wait
	require.NoError(t, hear(inference.Hearing{First: true}))
	require.LessOrEqual(t, len(done), 8, "each of its three processes waits for the one that runs and for one more")
	require.NoError(t, all.Wait())
}

func TestWhatItRefuses(t *testing.T) {
	r := open(t)
	require.True(t, r.Recognizes().OrdersOnly)
	_, err := r.Listen(t.Context(), inference.Hearing{Language: "es"})
	require.ErrorIs(t, err, sphinx.ErrLanguage)
	_, err = r.Listen(t.Context(), inference.Hearing{WakeWords: []string{"hey xqzrt"}})
	require.ErrorIs(t, err, sphinx.ErrPronunciation)
	require.ErrorContains(t, err, "xqzrt")
	require.NoError(t, r.CheckWakeWords([]string{"okay touchline"}))
	_, err = r.Align(t.Context(), nil, "", "en")
	require.ErrorIs(t, err, inference.ErrNoWordTimes)
	_, err = sphinx.Open(sphinx.Options{Orders: orders, Model: t.TempDir()})
	require.ErrorIs(t, err, sphinx.ErrMissing)
	require.ErrorContains(t, err, "pocketsphinx-en-us")
	_, err = sphinx.Open(sphinx.Options{})
	require.Error(t, err)

	u, err := r.Listen(t.Context(), inference.Hearing{})
	require.NoError(t, err)
	require.NoError(t, u.Close())
	_, err = u.Finish(t.Context(), make([]float32, 16000))
	require.ErrorIs(t, err, context.Canceled)
}

func TestMissingProgram(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := sphinx.Open(sphinx.Options{Orders: orders})
	require.ErrorIs(t, err, sphinx.ErrMissing)
	require.ErrorContains(t, err, "install the packages pocketsphinx")
}

func TestGrammar(t *testing.T) {
	require.Equal(t, "what's the score", sphinx.Fold(" What’s the score?; "))
	require.Contains(t, sphinx.Grammar([]string{"hey touchline"}, []string{"stop", "go on"}, false, true),
		"public <said> = <wake> ( <NULL> | ( /0.98/ <NULL> | /0.02/ please ) <order> "+
			"( /0.94/ <NULL> | /0.02/ please | /0.02/ now | /0.02/ thanks ) );\n<wake> = hey touchline;\n<order> = stop | go on;\n")
	require.Contains(t, sphinx.Grammar([]string{"hey touchline"}, []string{"stop"}, true, false), "public <said> = <order>;\n")
	require.Contains(t, sphinx.Grammar([]string{"hey touchline"}, []string{"stop"}, false, false), "= <wake> ( <NULL> | <order> );\n")
	require.Contains(t, sphinx.Grammar([]string{"hey touchline"}, []string{"stop"}, true, true),
		"public <said> = ( /0.98/ <NULL> | /0.02/ <wake> ) ( /0.98/ <NULL> | /0.02/ please ) <order> ")
}

func TestBritish(t *testing.T) {
	for american, want := range map[string]string{
		"B AE K": "B AA K", "T ER N": "T AH R N", "L AW D ER": "L AW D AH", "ER L IY ER": "AH R L IY AH", "G OW": "G OW",
	} {
		require.Equal(t, want, sphinx.British(american))
	}
}

func FuzzSegments(f *testing.F) {
	f.Add("4 S 0 T -22308 A -21971 L -337 0 -2673 -337 <sil> 46 -5391 0 tell 97 -6973 0 the(2) 189\n")
	f.Add("slt S 0 T -2210 A -2210 L 0 14 -2210 0 hey touchline  124")
	f.Add("4 S 0 T 0 A 0 L 0 0")
	f.Add("4 S 0 T 0 A 0 L 0 -1 0 0 (NULL) 0 -796 -337 <sil> 58 -754 0 tell 83")
	f.Add("")
	f.Fuzz(func(t *testing.T, line string) {
		words, ends, err := sphinx.Segments(line)
		if err != nil {
			return
		}
		for i, w := range words {
			if i > 0 && ends[i] < 0 {
				t.Fatalf("%q ends at %d", w, ends[i])
			}
		}
	})
}

func TestSegments(t *testing.T) {
	words, ends, err := sphinx.Segments("slt S 0 T -2210 A -2210 L 0 14 -2210 0 hey touchline  124")
	require.NoError(t, err)
	require.Equal(t, []string{"hey touchline"}, words)
	require.Equal(t, []int{124}, ends)
	_, _, err = sphinx.Segments("INFO: nothing")
	require.Error(t, err)
}
