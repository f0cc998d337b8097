// Package sounds generates audio for tests, at the sample rate of recognizers: speech by installed programs, and the generated match.
package sounds

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/internal/resample"
	"touchline/internal/ticks"
	"touchline/internal/wav"
	"touchline/worlds/match"
)

// Crowd is the sound of the generated match.
func Crowd(t *testing.T, d time.Duration) []float32 {
	t.Helper()
	pcm := make([]int16, ticks.Count(d, match.SoundRate))
	match.New(1, 640, 360, true).Sound(0, pcm)
	sound := make([]float32, len(pcm))
	for i, v := range pcm {
		sound[i] = float32(v) / (1 << 15)
	}
	sound, err := resample.All(sound, match.SoundRate, inference.RecognizerRate)
	require.NoError(t, err)
	return sound
}

// Say speaks a text with flite or espeak-ng and the given arguments. It skips the test if the program is missing.
func Say(t *testing.T, text string, program ...string) []float32 {
	t.Helper()
	if _, err := exec.LookPath(program[0]); err != nil {
		t.Skipf("needs %s", program[0])
	}
	file := filepath.Join(t.TempDir(), "said.wav")
	args := slices.Concat(program[1:], []string{"-w", file, text}) // of espeak-ng
	if program[0] == "flite" {
		args = slices.Concat(program[1:], []string{"-o", file, "-t", text})
	}
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), program[0], args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	sound, rate, err := wav.Parse(b)
	require.NoError(t, err)
	sound, err = resample.All(sound, rate, inference.RecognizerRate)
	require.NoError(t, err)
	return sound
}
