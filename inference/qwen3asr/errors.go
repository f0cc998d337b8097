package qwen3asr

import (
	"errors"

	networks "touchline/inference/internal/device"
	"touchline/inference/internal/ort"
	"touchline/inference/step"
)

var (
	// ErrDeviceLost ends all work after the GPU context is lost. The engine does not recover.
	ErrDeviceLost = ort.ErrDeviceLost
	// ErrNotFinite ends an answer whose logits are not numbers.
	ErrNotFinite = step.ErrNotFinite
	// ErrClosed is returned by a closed engine.
	ErrClosed = errors.New("the model was closed")
)

// DoesNotFitError is returned for a model that needs more memory than is free.
type DoesNotFitError = networks.DoesNotFitError
