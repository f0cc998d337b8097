package cuda_test

import (
	"errors"
	"flag"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/internal/cuda"
	"touchline/inference/internal/ort"
	"touchline/inference/internal/ort/orttest"
	"touchline/inference/minicpmo"
	"touchline/inference/tokenizer"
	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/convert"
)

var needCards = flag.Bool("cards", false, "fail, instead of leaving out, where there are no two CUDA devices")

// TestTwoCards: two cards serve a room each, with equal bits for an answer of the first while the second loads and answers. A kernel that
// traps on the second takes the first along: CUDA ends all contexts of a process (driver 580; a program in PyTorch alone loses both too).
// So all answers end with the reason, and the process may exit.
func TestTwoCards(t *testing.T) {
	rt := orttest.Open(t)
	if gpus, err := rt.GPUs(); len(gpus) < 2 && !*needCards {
		t.Skipf("left out: it needs two GPUs, here are %d (%v)", len(gpus), err)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // the lost card marks the kernels
	src, err := checkpoint.Open("../../../models/testdata/tiny")
	require.NoError(t, err)
	defer src.Close()
	dir := filepath.Join(t.TempDir(), "b")
	require.NoError(t, convert.Convert(t.Context(), src, dir, convert.Options{}))
	b, err := models.OpenBundle(dir)
	require.NoError(t, err)

	c := minicpmo.DefaultSettings()
	c.MiniCPM.Runtime, c.MiniCPM.GPUs, c.MiniCPM.Slots, c.MiniCPM.MaxLen = orttest.Library(t), "0,1", 8, 1024
	c.MiniCPM.Temperature, c.MiniCPM.SuppressTokens = 0, nil
	c.MiniCPM.PrefixCache = 0 // a copied beginning may round differently
	c.Voice.Enabled = false
	m, err := minicpmo.OpenModel(t.Context(), b, minicpmo.Options{Config: c, Logger: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)})
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	done := func() map[int]uint64 {
		out := map[int]uint64{}
		m.(*minicpmo.Cards).Each(func(gpu int, e *minicpmo.Engine) {
			if e != nil {
				out[gpu] = e.Stats().Done
			}
		})
		return out
	}
	look := func(s inference.Session, first func()) (text string, err error) {
		for c, err := range s.Generate(t.Context(), inference.Prompt{Text: "What is it?", MaxTokens: 500}) {
			if err != nil {
				return text, err
			}
			if text == "" && first != nil {
				first()
			}
			text += c.Text
		}
		return text, nil
	}
	// The first card answers while the second loads and captures its graphs.
	a, err := m.NewSession()
	require.NoError(t, err)
	want, err := look(a, nil)
	require.NoError(t, err)
	for behind := 1; len(done()) < 2; behind++ {
		text, err := look(a, nil)
		require.NoError(t, err, "answer %d while the second card loads", behind)
		require.Equal(t, want, text)
		require.Empty(t, m.Status().Problem)
	}
	second, err := m.NewSession()
	require.NoError(t, err)
	text, err := look(second, nil)
	require.NoError(t, err)
	require.NotEmpty(t, text)
	require.EqualValues(t, 1, done()[1], "a room on each")

	var first *minicpmo.Engine
	m.(*minicpmo.Cards).Each(func(gpu int, e *minicpmo.Engine) {
		if gpu == 0 {
			first = e
		}
	})
	prompt, err := first.Builder().Chat([]tokenizer.Message{{
		Role: tokenizer.User, Parts: []tokenizer.Part{{Text: "What is it?"}},
	}}, tokenizer.Options{})
	require.NoError(t, err)
	// bits returns the states of a long answer of the first card, and calls during after some tokens.
	bits := func(during func()) (states []float32) {
		r := minicpmo.Request{Prompt: prompt, Rules: first.ChatRules(), MaxTokens: 300, Hidden: true}
		r.Rules.Stop = nil
		tokens := 0
		for token, err := range first.Answer(t.Context(), r) {
			require.NoError(t, err)
			states = append(states, token.Hidden...)
			if tokens++; tokens == 20 {
				during()
			}
		}
		require.GreaterOrEqual(t, tokens, 300)
		return states
	}
	undisturbed := bits(func() {})
	require.Equal(t, undisturbed, bits(func() {
		_, err := look(second, nil)
		require.NoError(t, err)
	}), "bits of the first card's answer")

	lose := func() error { // on a thread of its own, whose context is lost
		result := make(chan error)
		go func() {
			runtime.LockOSThread()
			dev, err := rt.NewDevice(ort.CUDA, 1)
			if err == nil {
				err = cuda.Trap(dev)
				_ = dev.Close()
			}
			result <- err
		}()
		return <-result
	}
	_, failure := look(second, func() { require.ErrorIs(t, lose(), ort.ErrDeviceLost) })
	if failure != nil && !errors.Is(failure, minicpmo.ErrCardLost) { // else it was complete before, or the other card's loss came later
		require.ErrorIs(t, failure, minicpmo.ErrDeviceLost)
	}
	for _, s := range []inference.Session{a, second} {
		_, err = look(s, nil)
		require.ErrorIs(t, err, minicpmo.ErrDeviceLost)
		t.Log(err)
	}
	select {
	case <-m.(*minicpmo.Cards).Lost():
	case <-time.After(time.Minute):
		t.Fatal("the model goes on")
	}
	require.Equal(t, inference.PhaseFailed, m.Status().Phase)
	require.NoError(t, a.Close())
	require.NoError(t, second.Close())
}
