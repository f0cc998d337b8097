package main

import (
	"context"
	"encoding/json"
	"errors"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/agenttest"
	"touchline/inference"
)

// writePicture writes a grey picture and returns its path.
func writePicture(t *testing.T, name string, width, height int, encode func(io.Writer, image.Image) error) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, encode(f, image.NewGray(image.Rect(0, 0, width, height))))
	require.NoError(t, f.Close())
	return path
}

func jpegs(w io.Writer, img image.Image) error { return jpeg.Encode(w, img, nil) }

func TestAskRefuses(t *testing.T) {
	t.Parallel()
	good := writePicture(t, "a.png", 8, 8, png.Encode)
	text := filepath.Join(t.TempDir(), "words.png")
	require.NoError(t, os.WriteFile(text, []byte("words"), 0o600))
	cut := writePicture(t, "cut.jpg", 64, 64, jpegs)
	require.NoError(t, os.Truncate(cut, 200))
	for name, tt := range map[string]struct {
		args   []string
		repeat int
		want   string
	}{
		"nothing":        {[]string{"What?"}, 1, `expected one or more pictures and then a question`},
		"no question":    {[]string{good, " "}, 1, "the question, which is the last argument, is empty"},
		"two pictures":   {[]string{good, good}, 1, "expected a question as the last argument, got the file " + good},
		"no file":        {[]string{good, "none.png", "What?"}, 1, "picture none.png: no such file or directory"},
		"a folder":       {[]string{t.TempDir(), "What?"}, 1, "is a directory"},
		"no picture":     {[]string{text, "What?"}, 1, "words.png: expected a PNG or JPEG file"},
		"half a picture": {[]string{cut, "What?"}, 1, "cut.jpg: "},
		"no cycle":       {[]string{good, "What?"}, 0, "--repeat 0: must be between 1 and 1000"},
	} {
		_, err := (&askCmd{Args: tt.args, Repeat: tt.repeat}).prepare(448)
		require.ErrorContains(t, err, tt.want, name)
	}
	_, stderr, code := touchline(t, "TOUCHLINE_INFERENCE_SIGHT_BUNDLE=/nowhere", "ask", good, "What happens?")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "the scene engine reads no questions; set inference.engine to remote, nano or minicpmo")
}

// typist answers in words a tenth of a second apart, after half a second.
type typist struct {
	*agenttest.Engine
	answer string
	err    error
}

func (m typist) NewSession() (inference.Session, error) {
	inner, err := m.Engine.NewSession()
	return typing{inner, m}, err
}

type typing struct {
	inference.Session
	typist
}

func (s typing) Close() error { return nil }

func (s typing) Generate(_ context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		p.Trace(inference.Exchange{Request: p.Text, Answer: s.answer})
		wait := 500 * time.Millisecond
		for word := range strings.SplitAfterSeq(s.answer, " ") {
			time.Sleep(wait)
			wait = 100 * time.Millisecond
			if !yield(inference.Chunk{Text: word}, nil) {
				return
			}
		}
		if s.err != nil {
			yield(inference.Chunk{}, s.err)
		}
	}
}

// TestAsk: the answer and its times, as text and as JSON. The model takes two seconds to load.
func TestAsk(t *testing.T) {
	wide := writePicture(t, "wide.jpg", 900, 450, jpegs)
	small := writePicture(t, "small.png", 30, 20, png.Encode)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		model := typist{Engine: &agenttest.Engine{Phase: func() inference.Status {
			if time.Since(began) < 2*time.Second {
				return inference.Status{Phase: inference.PhaseLoading}
			}
			return inference.Status{Phase: inference.PhaseReady}
		}}, answer: "A goal for the reds!"}
		run := func(c askCmd, m inference.Model) (string, error) {
			t.Helper()
			c.Args = []string{wide, small, " Who scores? "}
			in, err := c.prepare(448)
			require.NoError(t, err)
			var out strings.Builder
			err = c.ask(t.Context(), m, inference.DefaultConfig(), in, &out)
			return out.String(), err
		}
		text, err := run(askCmd{Repeat: 1}, model)
		require.NoError(t, err)
		require.Equal(t, `A goal for the reds!

engine      scripted, pictures: 2, the first 448x224
load        2.00 s
first word  0.50 s
answer      0.90 s, 5 tokens, 10.0 tokens/s
`, text)

		text, err = run(askCmd{Repeat: 2, JSON: true}, model)
		require.NoError(t, err)
		var got asked
		require.NoError(t, json.Unmarshal([]byte(text), &got))
		cycle := askedCycle{
			Answer: model.answer, FirstWordSec: 0.5, CycleSec: 0.9, Tokens: 5, Rate: got.Cycles[0].Rate,
			Exchanges: []inference.Exchange{{Request: "Who scores?", Answer: model.answer}},
		}
		require.InDelta(t, 10, cycle.Rate, 1e-6)
		require.Equal(t, asked{
			Engine: "scripted", Question: "Who scores?", Cycles: []askedCycle{cycle, cycle},
			Pictures: []askedPicture{{Path: wide, Width: 448, Height: 224}, {Path: small, Width: 30, Height: 20}},
		}, got)

		broken := model
		broken.err = errors.New("the model is on fire")
		text, err = run(askCmd{Repeat: 1}, broken)
		require.EqualError(t, err, "ask: the model is on fire")
		require.Equal(t, model.answer, text, "what came is shown")

		failed := typist{Engine: &agenttest.Engine{Phase: func() inference.Status {
			return inference.Status{Phase: inference.PhaseFailed, Detail: "no GPU here"}
		}}}
		_, err = run(askCmd{Repeat: 1}, failed)
		require.EqualError(t, err, "load the scripted engine: no GPU here")
	})
}
