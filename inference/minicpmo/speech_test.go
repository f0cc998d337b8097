package minicpmo_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/tts"
	"touchline/inference/minicpmo"
	"touchline/internal/wake"
	"touchline/models/graph"
)

// windows is a tts.Wave that keeps the codes.
type windows struct {
	mu   sync.Mutex
	jobs []tts.Job
}

func (w *windows) Begin(int, string) error { return nil }

func (w *windows) Run(jobs []tts.Job) ([][]float32, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs = append(w.jobs, jobs...)
	return make([][]float32, len(jobs)), nil
}

// TestCodesOfTurns speaks two turns of the official streaming call: with its draws, the voice chooses its codes.
func TestCodesOfTurns(t *testing.T) {
	m, on := voice(t), startMachine(t)
	m.Speech.TTS.MaxPositions = 1024
	layout := kvcache.Layout{
		Layers: m.Speech.TTS.Layers, Slots: 2, KVHeads: m.Speech.TTS.Heads, MaxLen: 1024, HeadDim: m.Speech.TTS.HeadDim(), ElemSize: 4,
	}
	if *cuda {
		layout.ElemSize = 2
	}
	var files [2]string
	condition, err := graph.TTSCondition(m.Dims, graph.Options{Device: on.kind, Weights: on.float})
	files[0] = write(t, condition, err, m.weights).path
	lm, err := graph.TTS(m.Dims, graph.Options{Device: on.kind, Weights: on.float})
	files[1] = write(t, lm, err, m.weights).path
	model, done, err := minicpmo.OpenSpeechLM(on.runtime, on.device, files[0], files[1], m.Dims, layout)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, done()) })

	raw, err := os.ReadFile("testdata/tts_turns.json")
	require.NoError(t, err)
	var turns []struct {
		Pieces   [][]int32 `json:"pieces"`
		Finished []bool    `json:"finished"`
		U        []float64 `json:"u"`
		Drawn    []int32   `json:"drawn"`
	}
	require.NoError(t, json.Unmarshal(raw, &turns))
	end := int32(m.Speech.TTS.Codes - 1)
	for i, turn := range turns {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			w, sound := wake.New(), &windows{}
			never := func(error) bool { return false }
			begin := time.Now()
			fast := func() time.Time { return begin.Add(100 * time.Since(begin)) } // codes are never far ahead of the sound
			sounder := tts.NewSounder(sound, fast, never, w.Set)
			talker, err := tts.NewTalker(tts.TalkerOptions{
				LM: model, Layout: layout, Settings: tts.Official(), End: end, Silence: 4218, Fatal: never, Now: fast, Wake: w.Set,
			}, sounder)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() { _ = sounder.Run(ctx) })
			defer wg.Wait()
			defer cancel()

			f, draws := openFixture(t, fmt.Sprintf("tts_turn_%d", i)), 0
			spoken := tts.NewTurn("", func() float64 { draws++; return turn.U[draws-1] })
			require.NoError(t, talker.Submit(spoken))
			ids := slices.Concat(turn.Pieces...)
			for k := range turn.Pieces {
				hidden := f.floats(fmt.Sprintf("llm_hidden.%d", k))
				n := len(hidden) / m.Decoder.Hidden
				last := k == len(turn.Pieces)-1
				spoken.Feed(tts.Piece{IDs: ids[:n], Hidden: hidden, Last: last, Cut: last && !turn.Finished[k]})
				ids = ids[n:]
			}
			for {
				require.NoError(t, talker.Intake())
				_, err := talker.Work(0, false)
				require.NoError(t, err)
				if _, _, ended, err := spoken.Take(); ended {
					require.NoError(t, err)
					break
				}
			}
			t.Logf("%d codes in %v", draws, time.Since(begin))
			require.Equal(t, len(turn.Drawn), draws)
			sound.mu.Lock()
			defer sound.mu.Unlock()
			codes := []int32{4218, 4218, 4218}
			for _, j := range sound.jobs {
				if !j.Last {
					j.Codes = j.Codes[:tts.Burst]
				}
				codes = append(codes[:len(codes):len(codes)], j.Codes...)
			}
			want := slices.DeleteFunc(slices.Clone(turn.Drawn), func(c int32) bool { return c == end })
			require.Equal(t, append([]int32{4218, 4218, 4218}, want...), codes[3:])
		})
	}
}
