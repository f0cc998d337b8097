package minicpmo_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/conformance/synth"
	"touchline/inference/internal/ort/orttest"
	"touchline/inference/minicpmo"
	"touchline/inference/tokenizer"
	"touchline/models"
	"touchline/models/convert"
)

// noise returns a picture of a seed, at a place in its source.
func noise(seed uint64, pts time.Duration) inference.Frame {
	f := inference.Frame{PTS: pts, Epoch: 3, Width: 64, Height: 48, Pix: make([]byte, 64*48*3)}
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range f.Pix {
		f.Pix[i] = byte(rng.Uint32())
	}
	return f
}

// systemText is longer than the least beginning that is stored.
const systemText = "You are a commentator. Say in one short sentence what happens in the pictures, and nothing else."

// question returns a room's request about pictures.
func question(tb testing.TB, e *minicpmo.Engine, room uint64, text string, frames ...inference.Frame) minicpmo.Request {
	tb.Helper()
	p, err := e.Builder().Chat([]tokenizer.Message{
		{Role: tokenizer.System, Parts: []tokenizer.Part{{Text: systemText}}},
		{Role: tokenizer.User, Parts: parts(tb, e, text, 1, frames)},
	}, tokenizer.Options{})
	require.NoError(tb, err)
	return minicpmo.Request{Prompt: p, Frames: frames, Source: room, Slices: 1, Rules: e.ChatRules(), MaxTokens: 12}
}

// synthetic returns a bundle of random weights: fp32 for the CPU.
func synthetic(t *testing.T) *models.Bundle {
	t.Helper()
	shape, err := synth.Find("tiny")
	require.NoError(t, err)
	src, err := synth.New(shape, 1)
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "b")
	require.NoError(t, convert.Convert(t.Context(), src, dir, convert.Options{
		Weights: []models.Weights{models.WeightsFloat32}, Devices: []models.Device{models.DeviceCPU},
	}))
	b, err := models.OpenBundle(dir)
	require.NoError(t, err)
	return b
}

// Answers are the same with a store of any size, and with any chunks.
func TestSharedPrompts(t *testing.T) {
	orttest.NoLeaks(t)
	for name, b := range map[string]*models.Bundle{"trained": tiny(t), "random": synthetic(t)} {
		t.Run(name, func(t *testing.T) {
			start := func(bytes, chunk int) *minicpmo.Engine {
				o := minicpmo.Options{Config: settings(t), Threads: 1}
				o.Config.MiniCPM.PrefixCache = bytes
				if chunk > 0 {
					o = o.WithChunk(chunk)
				}
				e, err := minicpmo.Open(t.Context(), b, o)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, e.Close()) })
				return e
			}
			plain := start(0, 0)
			var rs []minicpmo.Request
			for look := range uint64(3) {
				for room := range uint64(2) {
					var f []inference.Frame
					for i := look; i < look+2; i++ { // one is new
						f = append(f, noise(room<<10+i, time.Duration(i)))
					}
					rs = append(rs, question(t, plain, room+1, "What is new?", f...), question(t, plain, room+1, "Is anything on fire?", f...))
				}
				rs = append(rs, question(t, plain, 0, fmt.Sprintf("Which of %d texts is it?", look)))
			}
			var want [][]int32
			for _, r := range rs {
				ids, _, err := ask(t, plain, r)
				require.NoError(t, err)
				want = append(want, ids)
			}
			require.Zero(t, plain.Stats().PrefixHits+plain.Stats().PrefixMisses)
			position := 2 * 3 * 3 * 64 * 4 // bytes
			for _, tt := range []struct {
				name         string
				bytes, chunk int
				hits         bool
			}{
				{"all", 500e6, 0, true}, {"chunks", 500e6, 48, true}, {"few", 400 * position, 0, true}, {"too small", 30 * position, 0, false},
			} {
				t.Run(tt.name, func(t *testing.T) {
					e := start(tt.bytes, tt.chunk)
					for i, r := range rs {
						ids, _, err := ask(t, e, r)
						require.NoError(t, err)
						require.Equal(t, want[i], ids, i)
					}
					var wg sync.WaitGroup
					got := make([][]int32, len(rs))
					for i, r := range rs {
						wg.Go(func() { got[i], _, _ = ask(t, e, r) })
					}
					wg.Wait()
					require.Equal(t, want, got, "all at once")
					s := e.Stats()
					require.EqualValues(t, 2*len(rs), s.PrefixHits+s.PrefixMisses)
					require.Equal(t, tt.hits, s.PrefixHits > 0)
					require.Zero(t, s.Slots)
				})
			}
		})
	}
}

// Pictures are known by their content: not by ids, times and epoch.
func TestPicturesOfOtherRoomsAreNotShared(t *testing.T) {
	orttest.NoLeaks(t)
	e := open(t, tiny(t), settings(t))
	saved := func(r minicpmo.Request) int {
		before := e.Stats().PrefixTokens
		_, _, err := ask(t, e, r)
		require.NoError(t, err)
		return int(e.Stats().PrefixTokens - before)
	}
	first := question(t, e, 1, "What is it?", noise(1, 1), noise(2, 2))
	system, end := first.Prompt.Images[0].Start, first.Prompt.Images[1].End
	require.Zero(t, saved(first))
	require.Equal(t, system, saved(question(t, e, 2, "What is it?", noise(3, 1), noise(2, 2))), "other pictures")
	require.Equal(t, end, saved(question(t, e, 3, "What is it now?", noise(1, 1), noise(2, 2))), "the same pictures")
	// Flat pictures of other shapes have the same pixels.
	flat := func(width, height int) inference.Frame {
		return inference.Frame{Width: width, Height: height, Pix: make([]byte, width*height*3)}
	}
	require.Equal(t, system, saved(question(t, e, 4, "What is it?", flat(336, 448))))
	require.Equal(t, system, saved(question(t, e, 5, "What is it?", flat(448, 336))))
	require.Equal(t, end-(first.Prompt.Images[1].End-first.Prompt.Images[0].End), saved(question(t, e, 6, "What is it?", flat(336, 448))))
}

// A look with a schema copies the beginning of the room's comment on the same frames, spoken or not.
func TestLooksBesideComments(t *testing.T) {
	orttest.NoLeaks(t)
	e := open(t, tiny(t), settings(t))
	schema := []byte(`{"type":"object","properties":{"dogs":{"type":"integer","minimum":1,"maximum":9}},"required":["dogs"],"additionalProperties":false}`)
	for room, speech := range []bool{false, true} {
		s, err := e.NewSession()
		require.NoError(t, err)
		p := inference.Prompt{System: systemText, Text: "What is new?", MaxTokens: 8, MaxSlices: 1, Speech: speech}
		for i := range 4 {
			p.Frames = append(p.Frames, noise(uint64(4*room+i), time.Duration(i)))
		}
		ask := func(p inference.Prompt) {
			for _, err := range s.Generate(t.Context(), p) {
				require.NoError(t, err)
			}
		}
		ask(p)
		ask(inference.Prompt{System: "Translate.", Text: "a goal", MaxTokens: 8}) // has no frames
		before := e.Stats()
		p.Speech, p.Schema, p.Text, p.MaxTokens = false, schema, "How many dogs are there?", 40
		ask(p)
		after := e.Stats()
		require.EqualValues(t, 1, after.PrefixHits-before.PrefixHits)
		fed := after.Prompt - before.Prompt
		require.Greater(t, int(after.PrefixTokens-before.PrefixTokens), 5*int(fed), "speech %t", speech)
		require.NoError(t, s.Close())
	}
}
