package truth

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/rs/zerolog"

	"touchline/configs"
	"touchline/inference"
	"touchline/inference/minicpmo"
	"touchline/inference/remote"
	"touchline/inference/scene"
	"touchline/models"
	"touchline/models/nano"
)

// engines are the loaded models: one for each film at once on the CPU, which a model runs one step at a time, and one
// for all films elsewhere.
type engines struct {
	cfg    configs.Config
	log    zerolog.Logger
	shared bool
	most   int
	free   chan inference.Model // as many as there may be; nil for one not loaded yet
}

func newEngines(c *Command, cfg configs.Config, log zerolog.Logger) *engines {
	e := &engines{cfg: cfg, log: log, most: c.Parallel}
	e.shared = c.Engine == "remote" || c.Engine == "minicpmo" && cfg.Inference.MiniCPM.Device == "cuda"
	e.free = make(chan inference.Model, c.Parallel)
	if e.shared {
		e.free <- nil
		return e
	}
	for range c.Parallel {
		e.free <- nil
	}
	return e
}

// take returns a model and the function that gives it back.
func (e *engines) take(ctx context.Context) (inference.Model, func(), error) {
	var m inference.Model
	select {
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case m = <-e.free:
	}
	if m == nil {
		var err error
		if m, err = e.open(ctx); err != nil {
			e.free <- nil
			return nil, nil, err
		}
	}
	if e.shared {
		e.free <- m
		return m, func() {}, nil
	}
	return m, func() { e.free <- m }, nil
}

// close releases all models; none is in use.
func (e *engines) close(log zerolog.Logger) {
	close(e.free)
	for m := range e.free {
		if m == nil {
			continue
		}
		if err := m.Close(); err != nil {
			log.Warn().Err(err).Msg("model not released")
		}
	}
}

// open loads the model of the settings.
func (e *engines) open(ctx context.Context) (inference.Model, error) {
	in := e.cfg.Inference
	switch in.Engine {
	case "scene":
		return scene.Model{}, nil
	case "remote":
		return remote.New(in.Remote, in.MaxTokens, e.log)
	}
	c := in.MiniCPM
	if in.Engine == "nano" {
		if err := nanoSettings(ctx, &c); err != nil {
			return nil, err
		}
	}
	bundle, err := models.OpenBundle(c.Path)
	if err != nil {
		return nil, err
	}
	o := minicpmo.Options{Config: minicpmo.Settings{Config: in.Config, MiniCPM: c}, Frames: e.cfg.Agent.Frames, Logger: e.log}
	if c.Device == "cpu" {
		o.Workers, o.Threads = 1, max(1, runtime.GOMAXPROCS(0)/e.most)
	}
	m, err := minicpmo.Open(ctx, bundle, o)
	if err != nil {
		return nil, fmt.Errorf("load the model: %w", err)
	}
	return m, nil
}

// nanoSettings choose nano's own bundle, unless another one is given, and the CPU.
func nanoSettings(ctx context.Context, c *minicpmo.Config) (err error) {
	if c.Path == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			cache = os.TempDir()
		}
		if c.Path, err = nano.Bundle(ctx, filepath.Join(cache, "touchline")); err != nil {
			return fmt.Errorf("prepare nano: %w", err)
		}
	}
	c.Device, c.Slots, c.VisionCache = "cpu", 1, 64
	if c.Weights == "auto" {
		c.Weights = "fp32"
	}
	return nil
}
