package minicpmo_test

import (
	"encoding/json"
	"image"
	_ "image/png"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/inference"
	"touchline/inference/internal/ort/orttest"
	"touchline/inference/minicpmo"
	"touchline/inference/tokenizer"
	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/convert"
)

// tinyDir is the folder of the bundle that tests share; the first one creates it. shared are more such folders.
var (
	tinyDir  string
	shared   []string
	tinyOnce sync.Once
	errTiny  error
)

func TestMain(m *testing.M) {
	code := 0
	func() {
		defer func() {
			for _, dir := range append(shared, tinyDir) {
				_ = os.RemoveAll(dir)
			}
			for _, c := range loaded {
				_ = c.source.Close()
			}
		}()
		code = m.Run()
	}()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}

// tiny returns the converted tiny checkpoint: fp32 and int4 for the CPU.
func tiny(tb testing.TB) *models.Bundle {
	tb.Helper()
	tinyOnce.Do(func() {
		if tinyDir, errTiny = os.MkdirTemp("", "minicpmo"); errTiny != nil { //nolint:usetesting // outlives the test
			return
		}
		src, err := checkpoint.Open("../../models/testdata/tiny")
		if err != nil {
			errTiny = err
			return
		}
		defer src.Close()
		errTiny = convert.Convert(tb.Context(), src, filepath.Join(tinyDir, "b"), convert.Options{
			Weights: []models.Weights{models.WeightsFloat32, models.WeightsInt4}, Devices: []models.Device{models.DeviceCPU},
		})
	})
	require.NoError(tb, errTiny)
	b, err := models.OpenBundle(filepath.Join(tinyDir, "b"))
	require.NoError(tb, err)
	return b
}

// settings returns those of a small engine on the CPU that chooses the likeliest token.
func settings(tb testing.TB) minicpmo.Settings {
	tb.Helper()
	c := minicpmo.DefaultSettings()
	c.MiniCPM.Device, c.MiniCPM.Weights, c.MiniCPM.Runtime = "cpu", "fp32", orttest.Library(tb)
	c.MiniCPM.Slots, c.MiniCPM.MaxLen, c.MiniCPM.Temperature = 8, 512, 0
	c.MiniCPM.SuppressTokens = nil
	c.MaxTokens, c.MaxSlices = 40, 1
	return c
}

func open(tb testing.TB, b *models.Bundle, c minicpmo.Settings) *minicpmo.Engine {
	tb.Helper()
	e, err := minicpmo.Open(tb.Context(), b, minicpmo.Options{Config: c, Threads: 1})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, e.Close()) })
	return e
}

// frame reads a picture of the fixtures.
func frame(tb testing.TB, name string, pts time.Duration) inference.Frame {
	tb.Helper()
	f, err := os.Open(filepath.Join("../internal/vision/testdata", name))
	require.NoError(tb, err)
	defer f.Close()
	m, _, err := image.Decode(f)
	require.NoError(tb, err)
	size := m.Bounds().Size()
	out := inference.Frame{PTS: pts, Width: size.X, Height: size.Y, Pix: make([]byte, 0, size.X*size.Y*3)}
	for y := range size.Y {
		for x := range size.X {
			r, g, b, _ := m.At(x, y).RGBA()
			out.Pix = append(out.Pix, byte(r>>8), byte(g>>8), byte(b>>8))
		}
	}
	return out
}

func golden(tb testing.TB, name string, v any) {
	tb.Helper()
	raw, err := os.ReadFile(filepath.Join("../conformance/check/testdata/chat", name))
	require.NoError(tb, err)
	require.NoError(tb, json.Unmarshal(raw, v))
}

// ask runs a request to its end.
func ask(tb testing.TB, e *minicpmo.Engine, r minicpmo.Request) (ids []int32, text string, err error) {
	tb.Helper()
	for t, err := range e.Answer(tb.Context(), r) {
		if err != nil {
			return ids, text, err
		}
		text += t.Text
		if t.ID >= 0 && !t.Stop {
			ids = append(ids, t.ID)
		}
	}
	return ids, text, nil
}

// chat returns the request for a question about pictures.
func chat(tb testing.TB, e *minicpmo.Engine, text string, most int, frames ...inference.Frame) minicpmo.Request {
	tb.Helper()
	return minicpmo.Request{
		Prompt: chatPrompt(tb, e, text, 1, frames), Frames: frames, Slices: 1, Rules: e.ChatRules(), MaxTokens: most,
	}
}

func chatPrompt(tb testing.TB, e *minicpmo.Engine, text string, slices int, frames []inference.Frame) tokenizer.Prompt {
	tb.Helper()
	p, err := e.Builder().Chat([]tokenizer.Message{{Role: tokenizer.User, Parts: parts(tb, e, text, slices, frames)}}, tokenizer.Options{})
	require.NoError(tb, err)
	return p
}

func parts(tb testing.TB, e *minicpmo.Engine, text string, slices int, frames []inference.Frame) (out []tokenizer.Part) {
	tb.Helper()
	for _, f := range frames {
		g, err := e.Grid(f.Width, f.Height, slices)
		require.NoError(tb, err)
		out = append(out, tokenizer.Part{Image: &g})
	}
	if text != "" {
		out = append(out, tokenizer.Part{Text: text})
	}
	return out
}
