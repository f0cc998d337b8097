package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"touchline/cmd/internal/bench"
	"touchline/configs"
	"touchline/inference"
	"touchline/inference/conformance/bundles"
	"touchline/inference/minicpmo"
	"touchline/internal/e2e/stage"
	"touchline/models"
)

// run is one run of a scenario, with the helpers that scenarios share.
type run struct {
	*bench.Run

	flags *runCmd
	log   zerolog.Logger
}

// stage makes a stage, which is closed at the end of the part.
func (r *run) stage(o stage.Options) *stage.Stage {
	o.Log = r.log
	s, err := stage.New(r.Context(), o)
	r.Check(err)
	r.Cleanup(func() {
		r.Fail(s.Errors())
		s.Close()
	})
	return s
}

// watched makes a stage with a viewer.
func (r *run) watched(o stage.Options) (*stage.Stage, *stage.Viewer) {
	s := r.stage(o)
	v, _, err := s.AddViewer(false)
	r.Check(err)
	return s, v
}

// until waits for a condition.
func (r *run) until(most time.Duration, what string, cond func() bool) {
	_, err := stage.Until(r.Context(), most, what, cond)
	r.Check(err)
}

// folder makes a folder, which is removed at the end of the part.
func (r *run) folder() string {
	dir, err := os.MkdirTemp("", "touchline-bench-")
	r.Check(err)
	r.Cleanup(func() { r.Fail(os.RemoveAll(dir)) })
	return dir
}

// program is the command line of a program under test.
func (r *run) program(name string, args ...string) *exec.Cmd {
	dir := r.flags.Bin
	if dir == "" {
		self, err := os.Executable()
		r.Check(err)
		dir = filepath.Dir(self)
	}
	cmd := exec.Command(filepath.Join(dir, name), args...) //nolint:noctx // named by a flag; process.stop ends it

	// The variable of tests is no setting.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TOUCHLINE_BIN=") })
	return cmd
}

// unsettled is the number of first comments that do not count.
const unsettled = 5

// fixedDelay returns the default settings with a delay D of 2 s.
func fixedDelay() *configs.Config {
	cfg := configs.Default()
	cfg.Pacing.FixedDelay = 2 * time.Second
	return &cfg
}

const (
	// ownVoiceTokens is the longest answer. A model of random weights speaks 20 s for each piece of that many tokens, and has no
	// room for a third one.
	ownVoiceTokens = 10
	// longestComment is the longest time of a comment of a model, whose voice has 40 s for it.
	longestComment = 45 * time.Second
)

// ownVoice opens a model that speaks, of the flag or the small one of the tests, and returns it with the settings of its bot.
func (r *run) ownVoice() (*stage.Counted, *configs.Config) {
	path := r.flags.Bundle
	if path == "" {
		dir := r.folder()
		path = filepath.Join(dir, "bundle")
		if err := bundles.Speaking(r.Context(), ".", dir, path); err != nil {
			r.Check(fmt.Errorf("make a small model with a voice: %w: run the bench in the folder of its source, or give --bundle", err))
		}
	}
	bundle, err := models.OpenBundle(path)
	r.Check(err)
	cfg := configs.Default()
	cfg.Inference.MiniCPM.Path = path
	if !slices.ContainsFunc(bundle.Manifest.Graphs, func(g models.Graph) bool { return g.Device == models.DeviceCUDA }) {
		cfg.Inference.MiniCPM.Device = "cpu"
	}
	cfg.Inference.Voice.Program = inference.VoiceModel
	cfg.Inference.Voice.MaxTokens = min(cfg.Inference.Voice.MaxTokens, ownVoiceTokens)
	settings := minicpmo.Settings{Config: cfg.Inference.Config, MiniCPM: cfg.Inference.MiniCPM}
	model, err := minicpmo.Open(r.Context(), bundle, minicpmo.Options{Config: settings, Logger: r.log})
	r.Check(err)
	r.Cleanup(func() { r.Fail(model.Close()) })
	if !model.Capabilities().Speech {
		r.Check(fmt.Errorf("the model of %s does not speak: %w", path, inference.ErrNoVoice))
	}
	return stage.NewCounted(model), &cfg
}

// seesPicture waits for a viewer's first picture, and returns the time to it.
func (r *run) seesPicture(v *stage.Viewer) time.Duration {
	r.until(30*time.Second, "a viewer's picture", func() bool { return len(v.Seen().Pictures) > 0 })
	seen := v.Seen()
	return seen.Pictures[0].At.Sub(seen.Joined)
}

func seconds(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }

func absolute(in []time.Duration) []time.Duration {
	out := make([]time.Duration, len(in))
	for i, d := range in {
		out[i] = d.Abs()
	}
	return out
}
