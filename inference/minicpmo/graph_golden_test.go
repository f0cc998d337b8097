package minicpmo_test

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/conformance/bundles"
	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/safetensors"
)

// fixture is a file of tensors that the official code computed (modelling
// code of MiniCPM-o 4.5, transformers 4.51.0, torch 2.7.1, float32) for the
// checkpoints in models/testdata. Those of the voice's flow and vocoder (voice_*) come from
// the stepaudio2 package of minicpmo-utils 1.0.5; voice_flow and voice_hift are its weights. Turns 2 and 3 of tts_turns were computed
// in float64 by independent code that has the official draws of turns 0 and 1.
type fixture struct {
	tb   testing.TB
	file *safetensors.File
}

func openFixture(tb testing.TB, name string) fixture {
	tb.Helper()
	f, err := bundles.OpenFixture("../..", name)
	require.NoError(tb, err)
	return fixture{tb, f}
}

func (f fixture) has(name string) bool {
	_, ok := f.file.Tensor(name)
	return ok
}

func (f fixture) tensor(name string) safetensors.Tensor {
	f.tb.Helper()
	t, ok := f.file.Tensor(name)
	require.True(f.tb, ok, name)
	return t
}

// floats reads a tensor of floats.
func (f fixture) floats(name string) []float32 {
	f.tb.Helper()
	v, err := f.tensor(name).Floats()
	require.NoError(f.tb, err)
	return v
}

// ints reads an integer tensor.
func (f fixture) ints(name string) []int64 {
	f.tb.Helper()
	v, err := f.tensor(name).Ints()
	require.NoError(f.tb, err)
	return v
}

// model is a checkpoint with its dimensions.
type model struct {
	models.Dims

	source  models.Source
	weights tensors
}

// loaded holds the checkpoints that tests share, by name. TestMain closes them.
var (
	loadedMu sync.Mutex
	loaded   = map[string]model{}
)

// load opens a checkpoint of models/testdata. Its weights must not be changed.
func load(tb testing.TB, name string) model {
	tb.Helper()
	loadedMu.Lock()
	defer loadedMu.Unlock()
	if m, ok := loaded[name]; ok {
		return m
	}
	c, err := checkpoint.Open(filepath.Join("..", "..", "models", "testdata", name))
	require.NoError(tb, err)
	m, err := c.Describe()
	require.NoError(tb, err)
	m.Dims.Decoder.MaxPositions = min(m.Dims.Decoder.MaxPositions, 1024)
	all := tensors{}
	for _, name := range c.Names() {
		info, _ := c.Info(name)
		t := tensor{rows: info.Rows(), cols: info.Cols(), values: make([]float32, info.Rows()*info.Cols())}
		require.NoError(tb, c.Rows(t.values, name, 0, t.rows), name)
		all[name] = t
	}
	loaded[name] = model{m.Dims, c, all}
	return loaded[name]
}
