package main

import (
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// TestSound hears a camera's beeps beside its pictures through a real server, and how much lower they are under speech.
func TestSound(t *testing.T) {
	rows, err := measureSound(t.Context(), 12*time.Second, zerolog.Nop())
	holds(t, rows, err)
}
