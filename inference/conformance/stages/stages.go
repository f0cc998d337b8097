// Package stages replays the recorded stages of the official voice on its graphs: the condition of its language model, the encoder of
// codes, the flow and the vocoder; and the recorded probabilities of the network that detects speech. The conformance check and tests
// share it. It runs no graph of the voice itself.
package stages

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"touchline/models"
)

// Array is a host tensor. Floats are float32 for any float type of the graph.
type Array struct {
	Shape  []int64
	Floats []float32
	Ints   []int64
}

// Floats returns an array of floats.
func Floats(values []float32, shape ...int64) Array { return Array{Shape: shape, Floats: values} }

// Ints returns an array of integers.
func Ints(values []int64, shape ...int64) Array { return Array{Shape: shape, Ints: values} }

// Zeros returns an array of zeros.
func Zeros(shape ...int64) Array {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return Floats(make([]float32, n), shape...)
}

// Graph runs one graph.
type Graph interface {
	// Ports returns its inputs.
	Ports() []models.Port
	// Run returns all outputs. sizes has the dimensions that no input has.
	Run(in map[string]Array, sizes map[string]int64) map[string]Array
}

// Fixture is a file of recorded tensors.
type Fixture interface {
	Has(name string) bool
	Floats(name string) []float32
	Ints(name string) []int64
}

// Replay runs stages. Its functions return no errors: on an error they end the row of the check, or the test. An incomplete fixture may
// also cause a panic.
type Replay struct {
	Dims models.Dims
	// Recording describes token2wav; the codes need none.
	Recording Recording
	// Fixture opens a fixture by its name, such as "chunk_0".
	Fixture func(name string) Fixture
	// Graph loads a graph; check selects the graph with outputs for checks.
	Graph func(kind models.Kind, check bool) Graph
	// Near compares numbers with recorded ones.
	Near func(what string, want, got []float32, limit Limit)
	// Batch, if not nil, is called after a run, to compare it with a run of several turns. later has the increments of inputs for the
	// second turn.
	Batch func(g Graph, later map[string]int64)
}

const silence = 4218 // a code

// Recording has the parameters of the recording, from stream.json: the random numbers, and the chunks of the turn.
type Recording struct {
	Noise struct { // of the flow
		Shape []int  `json:"shape"` // [1,mel,frames]
		Seed  uint32 `json:"seed"`
	} `json:"rand_noise"`
	Chunks []struct {
		Last bool   `json:"last_chunk"`
		Seed uint32 `json:"noise_seed"` // of the vocoder's noise
	} `json:"chunks"`
}

// ParseRecording reads stream.json. The last chunk, and no other, ends the speech.
func ParseRecording(content []byte) (r Recording, err error) {
	if err := json.Unmarshal(content, &r); err != nil {
		return r, err
	}
	if s := r.Noise.Shape; len(s) != 3 || s[0] != 1 || s[1] < 1 || s[2] < 1 {
		return r, fmt.Errorf("expected noise of the shape [1,mel,frames], got %v", s)
	}
	if len(r.Chunks) < 2 {
		return r, fmt.Errorf("expected two chunks or more, got %d", len(r.Chunks))
	}
	for i, c := range r.Chunks {
		if last := i == len(r.Chunks)-1; c.Last != last {
			return r, fmt.Errorf("chunk %d of %d: expected last_chunk %t, got %t", i, len(r.Chunks), last, c.Last)
		}
	}
	return r, nil
}

// FlowNoise returns rows of the flow's noise, [rows,mel].
func (r Recording) FlowNoise(from, rows int) []float32 {
	bins, long := r.Noise.Shape[1], r.Noise.Shape[2]
	random, out := Noise(bins*long, r.Noise.Seed), make([]float32, 0, rows*bins)
	for t := from; t < from+rows; t++ {
		for b := range bins {
			out = append(out, random[b*long+t])
		}
	}
	return out
}

func (r *Replay) batch(g Graph, later map[string]int64) {
	if r.Batch != nil {
		r.Batch(g, later)
	}
}

// kept moves the caches of a run to the inputs of the next.
func kept(state, out map[string]Array) {
	for name, a := range out {
		if name, ok := strings.CutPrefix(name, "present."); ok {
			state["past."+name] = a
		}
	}
}

// Rows turns a recorded spectrogram [bins,T] to [T,bins].
func Rows(values []float32, bins int) []float32 {
	frames := len(values) / bins
	out := make([]float32, len(values))
	for b := range bins {
		for t := range frames {
			out[t*bins+b] = values[b*frames+t]
		}
	}
	return out
}

// Noise returns the noise of the fixtures, whose generator is a hash of the index.
func Noise(n int, seed uint32) []float32 {
	values := make([]float32, n)
	for i := range values {
		x := uint32(i)*2654435761 + seed // wraps
		x ^= x >> 16
		x *= 0x85EBCA6B
		x ^= x >> 13
		x *= 0xC2B2AE35
		x ^= x >> 16
		values[i] = float32((2*(float64(x)/(1<<32)) - 1) * math.Sqrt(3))
	}
	return values
}

// Condition replays the condition of a piece of text for the language model of the codes, with the marks after it.
func (r *Replay) Condition() {
	limit := agreed().condition
	f := r.Fixture("lm")
	g := r.Graph(models.KindTTSCondition, false)
	ids, hidden, t := f.Ints("ids"), f.Floats("hidden"), r.Dims.Speech.TTS
	n, width := int64(len(ids)), r.Dims.Decoder.Hidden
	said := make([]float32, n+2)
	for i := range ids {
		said[i] = 1
	}
	ids = append(ids, int64(t.TextEOS), int64(t.AudioBOS)) // they have no state
	hidden = append(hidden, hidden[:2*width]...)
	out := g.Run(map[string]Array{
		"input_ids": Ints(ids, n+2), "hidden_states": Floats(hidden, n+2, int64(width)), "said": Floats(said, n+2, 1),
	}, nil)
	want := append(append(f.Floats("condition"), f.Floats("text_eos_row")...), f.Floats("audio_bos_row")...)
	r.Near("condition", want, out["condition"].Floats, limit)
}
