package judge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/rs/zerolog"

	"touchline/configs"
	"touchline/inference"
	"touchline/inference/minicpmo"
	"touchline/inference/nano"
	"touchline/inference/remote"
	"touchline/inference/scene"
	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/convert"
	nanomodel "touchline/models/nano"
)

// engines holds the loaded models: on the CPU one per concurrent film, because a model runs one step at a time there; on other devices
// one for all films.
type engines struct {
	cfg    configs.Config
	log    zerolog.Logger
	shared bool
	most   int
	free   chan inference.Model // nil for a model that is not loaded yet
	bundle func(ctx context.Context) (string, error)
	work   string // folder of a bundle for this run; "" for none
}

func newEngines(c *Command, cfg configs.Config, log zerolog.Logger) *engines {
	e := &engines{cfg: cfg, log: log, most: c.Parallel}
	m := &e.cfg.Inference.MiniCPM
	local := c.Engine == "nano" || c.Engine == "minicpmo"
	e.shared = c.Engine == "remote" || local && m.Device == string(models.DeviceCUDA)
	if m.Weights == "auto" && m.Device == string(models.DeviceCPU) {
		m.Weights = string(models.WeightsFloat32)
	}
	var once sync.Once
	var dir string
	var err error
	e.bundle = func(ctx context.Context) (string, error) {
		once.Do(func() { dir, err = e.findBundle(ctx, c.Engine == "nano") })
		return dir, err
	}
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

// take returns a free model and the function that releases it.
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
	if e.work != "" {
		_ = os.RemoveAll(e.work)
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
	dir, err := e.bundle(ctx)
	if err != nil {
		return nil, err
	}
	bundle, err := models.OpenBundle(dir)
	if err != nil {
		return nil, err
	}
	o := minicpmo.Options{Config: minicpmo.Settings{Config: in.Config, MiniCPM: in.MiniCPM}, Frames: e.cfg.Agent.Frames, Logger: e.log}
	if in.MiniCPM.Device == string(models.DeviceCPU) {
		o.Workers, o.Threads = 1, max(1, runtime.GOMAXPROCS(0)/e.most)
		if in.Engine == "nano" {
			o.Threads = nano.Threads
		}
	}
	m, err := minicpmo.Open(ctx, bundle, o)
	if err != nil {
		return nil, fmt.Errorf("load the model: %w", err)
	}
	return m, nil
}

// findBundle returns the folder of the model's bundle. It first converts nano's checkpoint if the precision is not fp32, or the
// checkpoint of --model.
func (e *engines) findBundle(ctx context.Context, isNano bool) (string, error) {
	m := e.cfg.Inference.MiniCPM
	source := m.Path
	switch {
	case source != "":
		if _, err := models.OpenBundle(source); !errors.Is(err, models.ErrNoBundle) {
			return source, err
		}
	case !isNano:
		return "", errors.New("--model: the minicpmo engine needs a bundle or a checkpoint")
	case m.Weights == string(models.WeightsFloat32):
		return nano.Bundle(ctx, models.Cache(), nanomodel.Convert)
	}
	var err error
	if e.work, err = os.MkdirTemp("", "touchline-truth-"); err != nil {
		return "", err
	}
	if source == "" {
		source = filepath.Join(e.work, "checkpoint")
		if err := nanomodel.Write(source); err != nil {
			return "", err
		}
	}
	return convertTo(ctx, source, filepath.Join(e.work, "bundle"), m)
}

// convertTo makes a bundle of a checkpoint for the device and the precision of the settings.
func convertTo(ctx context.Context, source, bundle string, m minicpmo.Config) (string, error) {
	c, err := checkpoint.Open(source)
	if err != nil {
		return "", fmt.Errorf("read the checkpoint: %w", err)
	}
	o := convert.Options{Devices: []models.Device{models.Device(m.Device)}, Creator: "touchline"}
	if m.Weights != "auto" {
		o.Weights = []models.Weights{models.Weights(m.Weights)}
	}
	if err := errors.Join(convert.Convert(ctx, c, bundle, o), c.Close()); err != nil {
		return "", fmt.Errorf("convert the checkpoint: %w", err)
	}
	return bundle, nil
}
