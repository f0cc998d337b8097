// Package vad is voice activity detection: it finds utterances in sound, with the samples at which they begin and end.
//
// A Model opens a detector for each stream of sound: the Silero network if its file exists, else loudness. A Stream cuts sound into
// utterances by a detector's probabilities. The package reads no clock and starts no goroutine.
package vad

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"touchline/inference"
	"touchline/inference/internal/ort"
)

// FrameSamples is the length of a frame, 32 ms.
const FrameSamples = 512

// contextSamples of the previous frame precede a frame in the network's input. stateSize is the size of its state.
const (
	contextSamples = 64
	stateSize      = 2 * 128
)

// FileName is the network's file, in the folder of ONNX Runtime.
const FileName = "silero_vad_16k_op15.onnx"

// Detector returns the probability of speech for the frames of one stream, in order. Not safe for concurrent use.
type Detector interface {
	// Detect returns the probability of speech in a frame of FrameSamples at inference.RecognizerRate.
	Detect(frame []float32) (float64, error)
	// Close releases the detector.
	Close() error
}

// Model opens detectors. Safe for concurrent use.
type Model struct {
	network *ort.Network // nil for loudness
	why     error
}

// Open loads the network from a folder of ONNX Runtime; "" searches as for a model. If that fails, the Model uses loudness, and Err
// returns the reason.
func Open(folder string) *Model {
	g := &Model{}
	g.network, g.why = open(folder)
	return g
}

// Loud returns a Model that uses loudness.
func Loud() *Model { return &Model{why: errors.New("chosen")} }

func open(folder string) (*ort.Network, error) {
	library, err := ort.Locate(folder)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(filepath.Dir(library), FileName)
	if _, err := os.Stat(file); err != nil {
		return nil, fmt.Errorf("%s is missing: `make runtime` fetches it", file)
	}
	return ort.OpenNetwork(library, file, ort.SessionOptions{Threads: 1})
}

// Err returns why the Model uses loudness; nil if it has the network.
func (g *Model) Err() error { return g.why }

// String names the method: silero or loudness.
func (g *Model) String() string {
	if g.network == nil {
		return "loudness"
	}
	return "silero"
}

// Close releases the network after its detectors were closed.
func (g *Model) Close() error {
	if g.network == nil {
		return nil
	}
	return g.network.Close()
}

// Detector opens the detector of a stream.
func (g *Model) Detector() (Detector, error) {
	if g.network == nil {
		return &loudness{}, nil
	}
	n := &network{}
	if err := n.open(g.network); err != nil {
		return nil, errors.Join(fmt.Errorf("open the detector of speech: %w", err), n.Close())
	}
	return n, nil
}

// network is the Silero network with the state of one stream.
type network struct {
	call                     *ort.Call
	input, state, next, prob []float32
}

func (n *network) open(of *ort.Network) (err error) {
	if n.call, err = of.NewCall(); err != nil {
		return err
	}
	if n.input, err = ort.Input[float32](n.call, "input", 1, contextSamples+FrameSamples); err != nil {
		return err
	}
	if n.state, err = ort.Input[float32](n.call, "state", 2, 1, stateSize/2); err != nil {
		return err
	}
	if n.prob, err = ort.Output[float32](n.call, "output", 1, 1); err != nil {
		return err
	}
	if n.next, err = ort.Output[float32](n.call, "stateN", 2, 1, stateSize/2); err != nil {
		return err
	}
	rate, err := ort.Input[int64](n.call, "sr")
	if err != nil {
		return err
	}
	rate[0] = inference.RecognizerRate
	return nil
}

// Detect implements Detector.
func (n *network) Detect(frame []float32) (float64, error) {
	if len(frame) != FrameSamples {
		return 0, fmt.Errorf("detect speech: a frame has %d samples, not %d", FrameSamples, len(frame))
	}
	copy(n.input, n.input[FrameSamples:]) // the end of the last frame
	copy(n.input[contextSamples:], frame)
	if err := n.call.Run(); err != nil {
		return 0, fmt.Errorf("detect speech: %w", err)
	}
	copy(n.state, n.next)
	return float64(n.prob[0]), nil
}

// Close implements Detector.
func (n *network) Close() error { return n.call.Close() }

const (
	// A level below quiet is never speech, one above loud may always be, in dB of full scale. Between them speech is distance
	// above the quietest frame of the last floorFrames, 3 s.
	quiet, loud = -50.0, -30.0
	distance    = 10.0
	slope       = 2.0 // of the probability, for each dB: 0.9 is 1.1 dB louder than 0.5
	floorFrames = 94
)

// loudness detects sound that is louder than the quietest frame of the last seconds.
type loudness struct {
	levels [floorFrames]float64
	n      int
}

// Detect implements Detector.
func (l *loudness) Detect(frame []float32) (float64, error) {
	sum := 0.0
	for _, v := range frame {
		sum += float64(v) * float64(v)
	}
	level := 10 * math.Log10(max(sum/float64(max(1, len(frame))), 1e-10))
	if math.IsNaN(level) {
		level = -100
	}
	l.levels[l.n%floorFrames] = level
	l.n++
	floor := level
	for _, v := range l.levels[:min(l.n, floorFrames)] {
		floor = min(floor, v)
	}
	least := min(max(floor+distance, quiet), loud)
	return 1 / (1 + math.Exp(slope*(least-level))), nil
}

// Close implements Detector.
func (*loudness) Close() error { return nil }
