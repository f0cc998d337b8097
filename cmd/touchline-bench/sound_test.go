package main

import (
	"testing"
	"time"

	"github.com/rs/zerolog"

	"touchline/cmd/internal/measure"
)

// TestSound hears a camera's beeps beside its pictures through a real server, and how much lower they are under speech.
func TestSound(t *testing.T) {
	rows, err := measure.Sound(t.Context(), 12*time.Second, zerolog.Nop())
	holds(t, rows, err)
}
