package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/internal/wav"
)

// recording writes a WAV file of a sound like speech, times a gain.
func recording(t *testing.T, seconds, gain float64) string {
	t.Helper()
	return recordingAt(t, 22050, seconds, gain)
}

func recordingAt(t *testing.T, rate int, seconds, gain float64) string {
	t.Helper()
	pcm := make([]int16, int(seconds*float64(rate)))
	for i := range pcm {
		at := float64(i) / float64(rate)
		x := 0.0
		for k := 1.0; k < 20; k++ {
			x += math.Sin(2*math.Pi*k*120*at) / k
		}
		pcm[i] = int16(max(-32768, min(32767, gain*3000*x*(1.2+math.Sin(20*at)))))
	}
	path := filepath.Join(t.TempDir(), "voice.wav")
	require.NoError(t, os.WriteFile(path, wav.EncodePCM(pcm, rate), 0o600))
	return path
}

func TestVoice(t *testing.T) {
	bundle := filepath.Join(t.TempDir(), "bundle")
	_, err := run(t, "models", "synth", "--shape", "tiny", "--speech", bundle, "--weights", "fp32", "--device", "cpu")
	require.NoError(t, err)
	before, err := os.ReadFile(filepath.Join(bundle, "manifest.json"))
	require.NoError(t, err)
	out, err := run(t, "models", "voice", "list", bundle)
	require.NoError(t, err)
	require.Regexp(t, `default +made of the model's own sound at its first start`, out)

	good := recording(t, 8, 1)
	add := func(name, file string, more ...string) (string, error) {
		return run(t, append([]string{"models", "voice", "add", bundle, name, file, "--ort", runtimeDir}, more...)...)
	}
	out, err = add("anna", good)
	require.NoError(t, err)
	require.Equal(t, "voice \"anna\" of 6 s of "+good+"\n", out)
	out, err = add("short", good, "--codes", "75", "--json")
	require.NoError(t, err)
	var row map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &row))
	require.Len(t, row["source_sha256"], 64)
	delete(row, "source_sha256")
	require.Equal(t, map[string]any{"name": "short", "codes": 75.0, "seconds": 3.0}, row)
	_, err = add("anna", good)
	require.ErrorContains(t, err, "has a voice \"anna\" already: choose another name, or add --replace")
	_, err = add("anna", good, "--codes", "75", "--replace")
	require.NoError(t, err)

	out, err = add("of-4-s", recording(t, 4, 1))
	require.NoError(t, err)
	require.Contains(t, out, `voice "of-4-s" of 3 s`)
	require.Contains(t, out, "inference.voice.prompt 3s")
	out, err = add("odd", recordingAt(t, 12347, 8, 1))
	require.NoError(t, err)
	require.Contains(t, out, `voice "odd" of 6 s`)
	for _, name := range []string{"of-4-s", "odd"} {
		_, err = run(t, "models", "voice", "remove", bundle, name)
		require.NoError(t, err)
	}

	text := filepath.Join(t.TempDir(), "text.wav")
	require.NoError(t, os.WriteFile(text, []byte("no sound"), 0o600))
	for reason, refused := range map[string]func() (string, error){
		"too short: 2.0 s":        func() (string, error) { return add("other", recording(t, 2, 1)) },
		"`--codes 75`":            func() (string, error) { return add("other", recording(t, 4, 1), "--codes", "150") },
		"too soft":                func() (string, error) { return add("other", recording(t, 8, 0.001)) },
		"clipped":                 func() (string, error) { return add("other", recording(t, 8, 30)) },
		"RIFF WAVE":               func() (string, error) { return add("other", text) },
		"letters, digits":         func() (string, error) { return add("no/name", good) },
		"no ONNX Runtime":         func() (string, error) { return add("other", good, "--ort", t.TempDir()) },
		"no voice \"other\"":      func() (string, error) { return run(t, "models", "voice", "remove", bundle, "other") },
		"this model has no voice": func() (string, error) { return addToSilent(t, good) },
	} {
		_, err := refused()
		require.ErrorContains(t, err, reason)
	}

	damage(t, filepath.Join(bundle, "voices", "short.safetensors"))
	require.NoError(t, os.Truncate(filepath.Join(bundle, "voices", "short.safetensors"), 1000))
	out, err = run(t, "models", "voice", "list", bundle)
	require.NoError(t, err)
	require.Regexp(t, `(?m)^anna +3 s +[0-9a-f]{64}`, out)
	require.Regexp(t, `(?m)^short +cannot be used: .*models voice remove`, out)
	out, err = run(t, "models", "voice", "list", bundle, "--json")
	require.NoError(t, err)
	var list struct {
		Voices []struct{ Name, Error string }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	require.Len(t, list.Voices, 2)
	require.Empty(t, list.Voices[0].Error)
	require.NotEmpty(t, list.Voices[1].Error)
	for _, name := range []string{"anna", "short"} {
		out, err = run(t, "models", "voice", "remove", bundle, name)
		require.NoError(t, err)
		require.Contains(t, out, "removed")
	}
	_, err = run(t, "models", "verify", bundle, "--no-run")
	require.NoError(t, err)
	after, err := os.ReadFile(filepath.Join(bundle, "manifest.json"))
	require.NoError(t, err)
	require.Equal(t, before, after, "the manifest is not changed")
}

// addToSilent adds a voice to a bundle that cannot speak.
func addToSilent(t *testing.T, file string) (string, error) {
	t.Helper()
	bundle := filepath.Join(t.TempDir(), "silent")
	_, err := run(t, "models", "synth", "--shape", "tiny", bundle, "--weights", "fp32", "--device", "cpu")
	require.NoError(t, err)
	out, err := run(t, "models", "voice", "list", bundle)
	require.NoError(t, err)
	require.Contains(t, out, "no voices")
	return run(t, "models", "voice", "add", bundle, "anna", file, "--ort", runtimeDir)
}
