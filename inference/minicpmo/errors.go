package minicpmo

import (
	"errors"
	"fmt"

	networks "touchline/inference/internal/device"
	"touchline/inference/internal/ort"
	"touchline/inference/step"
)

// ExitDeviceLost is the exit code of a process that lost its GPU context. The
// device does not work until a supervisor restarts the process.
const ExitDeviceLost = 71

var (
	// ErrDeviceLost ends every answer after the GPU context is lost. The engine
	// does not recover; see Engine.Lost and ExitDeviceLost.
	ErrDeviceLost = ort.ErrDeviceLost
	// ErrOutOfMemory ends an answer when the device has no memory left.
	ErrOutOfMemory = ort.ErrOutOfMemory
	// ErrNotFinite ends an answer whose logits are not numbers.
	ErrNotFinite = step.ErrNotFinite
	// ErrClosed is returned by a closed engine.
	ErrClosed = errors.New("the model was closed")
	// ErrNoVision is returned for a prompt with pictures if the bundle has no vision tower.
	ErrNoVision = errors.New("the bundle has no vision tower: convert the whole checkpoint")
)

// ImageError is returned for a picture that cannot be embedded.
type ImageError struct {
	Width, Height int
	Err           error
}

// Error names the picture's size and the reason.
func (e *ImageError) Error() string {
	return fmt.Sprintf("prepare a picture of %dx%d: %v", e.Width, e.Height, e.Err)
}

// Unwrap returns the reason.
func (e *ImageError) Unwrap() error { return e.Err }

// DoesNotFitError is returned for a model that needs more memory than is free.
type DoesNotFitError = networks.DoesNotFitError
