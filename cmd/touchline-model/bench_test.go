//go:build integration

package main

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/conformance/check"
)

// weights are the formats of TestSynth: all of the CPU.
const weights = "fp32,int4"

// TestCheckOfChat runs the model up to the first missing picture.
func TestCheckOfChat(t *testing.T) {
	golden := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(golden, "checkpoint"), os.DirFS(tiny)))
	require.NoError(t, os.CopyFS(filepath.Join(golden, "chat"), os.DirFS(root+"inference/conformance/check/testdata/chat")))
	out, err := run(t, "models", "check", "--golden", golden, "--ort", runtimeDir)
	require.ErrorIs(t, err, check.ErrFailed, "its pictures are not there")
	require.Regexp(t, `chat/chat_greedy.json .*NO: .*image/.*\.png`, out)
}

func TestBench(t *testing.T) {
	dir := t.TempDir()
	bundle := filepath.Join(dir, "bundle")
	_, err := run(t, "models", "synth", "--shape", "tiny", bundle, "--weights", "fp32,int4", "--device", "cpu")
	require.NoError(t, err)
	table := filepath.Join(dir, "bench.md")
	figures := filepath.Join(dir, "other.json")
	require.NoError(t, os.WriteFile(figures, []byte(`{"engine": "another engine", "vision_1_ms": {"median": 123}}`), 0o600))
	out, err := run(t, "bench", "model", bundle, "--device", "cpu", "--ort", runtimeDir, "--runs", "3", "--prompt", "300", "--answer", "12",
		"--rooms", "2", "--duration", "2s", "--interval", "1s", "--compare", figures, "--out", table)
	require.NoError(t, err)
	for _, row := range []string{
		"vision of 1, 16:9", "prefill of 300 tokens, fp32", "decode step of 8, fp32", "time to first token, 4 frames (1 new)", "whole cycle",
		"second look on the same frames, 60 new tokens in: time to first token",
		"decode of one room, fp32", "host time between two steps, 1 room", "another engine", "123", "memory: planned ",
		" before the frames), 12 out", "| rooms | cycles |", "\n| 2 | ",
	} {
		require.Contains(t, out, row)
	}
	written, err := os.ReadFile(table)
	require.NoError(t, err)
	require.Equal(t, out, string(written))
}

func TestBenchHearing(t *testing.T) {
	bundle := filepath.Join(t.TempDir(), "bundle")
	_, err := run(t, "models", "synth", "--shape", "tiny-asr", bundle, "--weights", "fp32", "--device", "cpu")
	require.NoError(t, err)
	out, err := run(t, "bench", "model", bundle, "--device", "cpu", "--ort", runtimeDir, "--runs", "1", "--duration", "1s", "--interim", bundle)
	require.NoError(t, err)
	for _, row := range []string{
		"encoder, 4 windows of 8 s", "prompts of 126 positions, 4 at once", "decode step of 4 answers", "first token of a clip of 10 s, 64 at once",
		"clip of 30 s with 100 tokens, 64 at once", "live text each 0.5 s of 1 s, 64 speakers", "memory: planned ",
		"64 speakers, alone: final text", "64 speakers, with a faster model: interim text, p95", "64 speakers, with a faster model: device busy",
	} {
		require.Contains(t, out, row)
	}
}

func TestBenchBeside(t *testing.T) {
	rooms, ears := filepath.Join(t.TempDir(), "rooms"), filepath.Join(t.TempDir(), "ears")
	for dir, shape := range map[string]string{rooms: "tiny", ears: "tiny-asr"} {
		_, err := run(t, "models", "synth", "--shape", shape, dir, "--weights", "fp32", "--device", "cpu")
		require.NoError(t, err)
	}
	out, err := run(t, "bench", "model", rooms, "--ears", ears, "--device", "cpu", "--ort", runtimeDir, "--prompt", "300", "--answer", "12",
		"--rooms", "2", "--duration", "2s", "--interval", "1s")
	require.NoError(t, err)
	for _, row := range []string{
		"2 rooms alone: cycle", "2 rooms beside 64 who speak: cycle", "p95 of a cycle to that alone", "live text each 0.5 s, 64 speakers beside 2 rooms",
	} {
		require.Contains(t, out, row)
	}
}

func TestBenchRefuses(t *testing.T) {
	dir := t.TempDir()
	cuda, source, silent := filepath.Join(dir, "cuda"), filepath.Join(dir, "source"), filepath.Join(dir, "silent")
	_, err := run(t, "models", "convert", tiny, cuda, "--weights", "int4", "--device", "cuda")
	require.NoError(t, err)
	_, err = run(t, "bench", "model", cuda, "--device", "cpu", "--ort", runtimeDir)
	require.ErrorContains(t, err, "for cpu")

	for memory, want := range map[string]string{
		"12GiB": "memory: must be auto, or a size between 1GB and 1000GB such as 12GB, is \"12GiB\"", "auto": "expected a size for --memory",
	} {
		_, err = run(t, "bench", "model", cuda, "--ort", runtimeDir, "--memory", memory)
		require.ErrorContains(t, err, want)
	}
	_, err = run(t, "hold", "auto")
	require.ErrorContains(t, err, `expected a size such as 12GB, got "auto"`)

	// A model with a zero head repeats one token.
	_, err = run(t, "models", "synth", "--shape", "tiny", source, "--checkpoint")
	require.NoError(t, err)
	zero(t, source, "llm.lm_head.weight")
	_, err = run(t, "models", "convert", source, silent, "--weights", "fp32")
	require.NoError(t, err)
	_, err = run(t, "bench", "model", silent, "--device", "cpu", "--ort", runtimeDir, "--runs", "1", "--answer", "8")
	require.ErrorContains(t, err, "repeats one token")
}

// zero sets a tensor of a checkpoint to zero.
func zero(t *testing.T, dir, name string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	require.NoError(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		end := 8 + binary.LittleEndian.Uint64(content)
		var header map[string]struct {
			Offsets [2]uint64 `json:"data_offsets"`
		}
		require.NoError(t, json.Unmarshal(content[8:end], &header))
		if tensor, ok := header[name]; ok {
			clear(content[end+tensor.Offsets[0] : end+tensor.Offsets[1]])
			require.NoError(t, os.WriteFile(file, content, 0o600))
			return
		}
	}
	require.Fail(t, "no such tensor", name)
}
