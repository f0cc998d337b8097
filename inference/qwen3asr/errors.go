package qwen3asr

import (
	"errors"

	networks "touchline/inference/internal/device"
	"touchline/inference/internal/ort"
)

var (
	// ErrDeviceLost ends all work after the GPU context is lost. The engine does not recover.
	ErrDeviceLost = ort.ErrDeviceLost
	// ErrNotFinite ends an answer whose logits are not numbers.
	ErrNotFinite = errors.New("the model's output is not finite: check the bundle with `touchline models verify`")
	// ErrClosed is returned by a closed engine.
	ErrClosed = errors.New("the model was closed")

	errCancelled = errors.New("cancelled")
)

// DoesNotFitError is returned for a model that needs more memory than is free.
type DoesNotFitError = networks.DoesNotFitError
