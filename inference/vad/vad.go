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
	"touchline/models"
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
	runtime *ort.Runtime // nil for loudness
	device  *ort.Device
	session *ort.Session
	why     error
}

// Open loads the network from a folder of ONNX Runtime; "" searches as for a model. If that fails, the Model uses loudness, and Err
// returns the reason.
func Open(folder string) *Model {
	g := &Model{}
	if g.why = g.open(folder); g.why != nil {
		_ = g.Close() // what was opened
		return &Model{why: g.why}
	}
	return g
}

// Loud returns a Model that uses loudness.
func Loud() *Model { return &Model{why: errors.New("chosen")} }

func (g *Model) open(folder string) error {
	library, err := ort.Locate(folder)
	if err != nil {
		return err
	}
	file := filepath.Join(filepath.Dir(library), FileName)
	if _, err := os.Stat(file); err != nil {
		return fmt.Errorf("%s is missing: `make runtime` fetches it", file)
	}
	if g.runtime, err = ort.Open(library); err != nil {
		return err
	}
	if g.device, err = g.runtime.NewDevice(ort.CPU, 0); err != nil {
		return err
	}
	g.session, err = g.runtime.NewSession(file, g.device, ort.SessionOptions{Threads: 1})
	return err
}

// Err returns why the Model uses loudness; nil if it has the network.
func (g *Model) Err() error { return g.why }

// String names the method: silero or loudness.
func (g *Model) String() string {
	if g.session == nil {
		return "loudness"
	}
	return "silero"
}

// Close releases the network after its detectors were closed.
func (g *Model) Close() error {
	var errs []error
	if g.session != nil {
		errs = append(errs, g.session.Close())
	}
	if g.device != nil {
		errs = append(errs, g.device.Close())
	}
	if g.runtime != nil {
		errs = append(errs, g.runtime.Close())
	}
	return errors.Join(errs...)
}

// Detector opens the detector of a stream.
func (g *Model) Detector() (Detector, error) {
	if g.session == nil {
		return &loudness{}, nil
	}
	n := &network{session: g.session}
	if err := n.open(g.device); err != nil {
		return nil, errors.Join(fmt.Errorf("open the detector of speech: %w", err), n.Close())
	}
	return n, nil
}

// network is the Silero network with the state of one stream.
type network struct {
	session                  *ort.Session
	binding                  *ort.Binding
	tensors                  []*ort.Tensor
	input, state, next, prob []float32
}

func (n *network) open(d *ort.Device) (err error) {
	if n.binding, err = n.session.NewBinding(); err != nil {
		return err
	}
	bind := func(name string, output bool, shape ...int64) []float32 {
		if err != nil {
			return nil
		}
		var t *ort.Tensor
		if t, err = d.NewHostTensor(models.Float32, shape...); err != nil {
			return nil
		}
		n.tensors = append(n.tensors, t)
		if output {
			err = n.binding.BindOutput(name, t)
		} else {
			err = n.binding.BindInput(name, t)
		}
		data, dataErr := ort.Data[float32](t)
		clear(data)
		err = errors.Join(err, dataErr)
		return data
	}
	n.input = bind("input", false, 1, contextSamples+FrameSamples)
	n.state = bind("state", false, 2, 1, stateSize/2)
	n.prob = bind("output", true, 1, 1)
	n.next = bind("stateN", true, 2, 1, stateSize/2)
	if err != nil {
		return err
	}
	rate, err := d.NewHostTensor(models.Int64)
	if err != nil {
		return err
	}
	n.tensors = append(n.tensors, rate)
	data, err := ort.Data[int64](rate)
	if err != nil {
		return err
	}
	data[0] = inference.RecognizerRate
	return n.binding.BindInput("sr", rate)
}

// Detect implements Detector.
func (n *network) Detect(frame []float32) (float64, error) {
	if len(frame) != FrameSamples {
		return 0, fmt.Errorf("detect speech: a frame has %d samples, not %d", FrameSamples, len(frame))
	}
	copy(n.input, n.input[FrameSamples:]) // the end of the last frame
	copy(n.input[contextSamples:], frame)
	if err := n.session.Run(n.binding, nil); err != nil {
		return 0, fmt.Errorf("detect speech: %w", err)
	}
	copy(n.state, n.next)
	return float64(n.prob[0]), nil
}

// Close implements Detector.
func (n *network) Close() error {
	var errs []error
	if n.binding != nil {
		errs = append(errs, n.binding.Close())
	}
	for _, t := range n.tensors {
		errs = append(errs, t.Close())
	}
	return errors.Join(errs...)
}

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
