package sight

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync/atomic"

	"touchline/inference"
	"touchline/inference/sight/facts"
	bundle "touchline/models/sight"
)

// Detail is the detail of Status.
const Detail = "sight: two small networks on the CPU; it names people, vehicles, animals and text"

// Options of Open.
type Options struct {
	Config Config
	// Runtime is the file or folder of ONNX Runtime; "" searches for it.
	Runtime string
	// Seed of the choice of wordings.
	Seed uint64
}

// networks find things and text in pictures. Safe for concurrent use.
type networks struct {
	detect func(f inference.Frame, parts bool, seen *[3]partSeen) ([]facts.Box, error)
	text   textReader // nil without
	close  func() error
}

// Model is the engine: the networks, which all rooms share.
type Model struct {
	cfg   Config
	nets  networks
	slots chan struct{} // of the looks of all rooms
	seed  uint64
	rooms atomic.Uint64
}

var (
	_ inference.Model   = (*Model)(nil)
	_ inference.Session = (*session)(nil)
	_ inference.Seer    = (*session)(nil)
	_ inference.Judge   = (*session)(nil)
)

// Open loads the networks of a bundle. ctx ends it between two networks.
func Open(ctx context.Context, b *bundle.Bundle, o Options) (*Model, error) {
	detector, err := openDetector(b, o.Runtime)
	if err != nil {
		return nil, err
	}
	nets := networks{detect: detector.detect, close: detector.Close}
	if o.Config.Text {
		reader, err := openReader(ctx, b, o.Runtime)
		if err != nil {
			return nil, errors.Join(err, detector.Close())
		}
		nets.text, nets.close = reader, func() error { return errors.Join(detector.Close(), reader.Close()) }
	}
	return newModel(nets, o), nil
}

// newModel leaves one core to the rest of the program: video, voice and the page come first.
func newModel(n networks, o Options) *Model {
	return &Model{cfg: o.Config, nets: n, slots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1)), seed: o.Seed}
}

// Name returns "sight".
func (*Model) Name() string { return inference.EngineSight }

// NewSession opens one room's conversation.
func (m *Model) NewSession() (inference.Session, error) {
	return newSession(m, rand.New(rand.NewPCG(m.seed, m.rooms.Add(1)))), nil
}

// Status returns ready.
func (*Model) Status() inference.Status {
	return inference.Status{Phase: inference.PhaseReady, Percent: 100, Detail: Detail}
}

// Capabilities implements inference.Model.
func (*Model) Capabilities() inference.Capabilities { return Capabilities() }

// Capabilities returns the capabilities of the engine, which need no networks.
func Capabilities() inference.Capabilities {
	return inference.Capabilities{
		Instructions: true, Languages: facts.Languages(), CheckRule: facts.CheckRule, RuleNames: facts.RuleNames(), Facts: true,
	}
}

// Close releases the networks.
func (m *Model) Close() error { return m.nets.close() }

// errNoFrames is returned by Generate for a prompt without frames.
var errNoFrames = errors.New("look at the scene: the prompt has no frame")
