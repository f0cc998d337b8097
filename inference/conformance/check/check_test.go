//go:build integration

package check_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/conformance/check"
	"touchline/inference/conformance/stages"
	"touchline/models"
)

// library is the ONNX Runtime that `make runtime` fetches.
const library = "../../../bin/runtime"

// golden returns a folder with the fixtures of the single stages' tests.
func golden(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	put := func(from, to string) {
		b, err := os.ReadFile(from)
		require.NoError(t, err)
		to = filepath.Join(dir, to)
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
		require.NoError(t, os.WriteFile(to, b, 0o600))
	}
	all := func(pattern, to string) {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, names, pattern)
		for _, name := range names {
			put(name, filepath.Join(to, filepath.Base(name)))
		}
	}
	const root = "../../../"
	all(root+"models/testdata/tiny/*", "checkpoint")
	all(root+"models/testdata/tiny-awq/*", "checkpoint-awq")
	put(root+"models/testdata/tiny-awq-dequant.safetensors", "awq/dequant.safetensors")
	for _, kind := range []string{"*_encode", "*_decode", "*_stream", "real_tokenizer"} {
		all(root+"inference/tokenizer/testdata/"+kind+".json*", "tokenizer")
	}
	all(root+"inference/tokenizer/testdata/*_chat.json.gz", "prompt")
	all(root+"inference/tokenizer/testdata/*_pieces.json", "prompt")
	all(root+"inference/internal/sample/testdata/*", "sampler")
	for _, kind := range []string{"*.png", "cases*", "sizes*", "pixel_values*"} {
		all(root+"inference/internal/vision/testdata/"+kind, "image")
	}
	all(root+"inference/internal/vision/testdata/position_buckets*", "vision")
	names, err := filepath.Glob(root + "inference/minicpmo/testdata/*")
	require.NoError(t, err)
	for _, name := range names {
		stage, rest, _ := strings.Cut(filepath.Base(name), "_")
		if stage == "voice" {
			stage = "token2wav"
		}
		switch rest {
		case "flow.safetensors.gz", "hift.safetensors.gz":
			rest = strings.Replace(rest, ".", "_weights.", 1)
		}
		put(name, filepath.Join(stage, rest))
	}
	for _, stage := range []string{"awq", "chat", "vision"} {
		all("testdata/"+stage+"/*", stage)
	}
	return dir
}

func run(t *testing.T, dir string) check.Report {
	t.Helper()
	r, err := check.Run(t.Context(), check.Options{Golden: dir, Device: models.DeviceCPU, Library: library})
	require.NoError(t, err)
	return r
}

func TestEverythingPasses(t *testing.T) {
	r := run(t, golden(t))
	var table bytes.Buffer
	require.NoError(t, r.Write(&table))
	require.NoError(t, r.Err(), table.String())
	require.Greater(t, len(r.Rows), 50)
}

// rewrite changes the bytes of a fixture, unpacked.
func rewrite(t *testing.T, name string, change func([]byte) []byte) {
	t.Helper()
	f, err := os.Open(name)
	require.NoError(t, err)
	var r io.Reader = f
	if strings.HasSuffix(name, ".gz") {
		r, err = gzip.NewReader(f)
		require.NoError(t, err)
	}
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	b = change(b)
	if strings.HasSuffix(name, ".gz") {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, err := z.Write(b)
		require.NoError(t, err)
		require.NoError(t, z.Close())
		b = packed.Bytes()
	}
	require.NoError(t, os.WriteFile(name, b, 0o600))
}

// replace returns a change of a text.
func replace(from, to string) func([]byte) []byte {
	return func(b []byte) []byte {
		out := bytes.Replace(b, []byte(from), []byte(to), 1)
		if bytes.Equal(b, out) {
			panic("nothing to replace: " + from)
		}
		return out
	}
}

// A damaged fixture fails the check in its own row.
func TestDamageIsFound(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the check several times")
	}
	// The last number of the file, or another digit for a text.
	number := func(b []byte) []byte {
		b[len(b)-1] ^= 0x40
		return b
	}
	dir := golden(t)
	damaged := []string{}
	for _, d := range []struct {
		file   string
		change func([]byte) []byte
	}{
		{"llm/text.safetensors.gz", number},
		{"vision/single.safetensors.gz", func(b []byte) []byte { b[len(b)/2|3] ^= 0x40; return b }},
		{"sampler/chat.safetensors", number},
		{"awq/two_images.safetensors.gz", number},
		{"awq/dequant.safetensors", number},
		{"tokenizer/tiny_encode.json.gz", replace(`"ids":[`, `"ids":[7,`)},
		{"prompt/tiny_pieces.json", replace("1259", "1260")},
		{"image/cases.json.gz", replace(`sha256":"`, `sha256":"0`)},
		{"image/pixel_values_448x448_m1_0.safetensors.gz", number},
		{"chat/chat_greedy.json", replace(`"output_ids": [`, `"output_ids": [3,`)},
		{"chat/streaming_greedy.json", replace(`"chunk_ids": [`, `"chunk_ids": [[3],`)},
	} {
		rewrite(t, filepath.Join(dir, d.file), d.change)
		damaged = append(damaged, strings.TrimSuffix(d.file, ".gz"))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "llm", "more.txt"), []byte("?"), 0o600))
	r := run(t, dir)
	require.ErrorIs(t, r.Err(), check.ErrFailed)
	failed := map[string]bool{}
	for _, row := range r.Rows {
		if row.Err != nil {
			failed[row.Fixture] = true
		}
	}
	for _, name := range append(damaged, "llm/more.txt") {
		require.True(t, failed[name], "%s was damaged and passes", name)
		delete(failed, name)
	}
	delete(failed, "llm/more.txt")
	require.Empty(t, failed, "these were not damaged")
}

// spoken returns a folder with the fixtures of the voice and little else.
func spoken(t *testing.T) string {
	t.Helper()
	dir := golden(t)
	for _, name := range []string{"vision", "awq", "checkpoint-awq", "chat", "image", "prompt", "sampler", "tokenizer"} {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, name)))
	}
	return dir
}

// voiceRows returns the rows of the voice.
func voiceRows(r check.Report) (failed, passed []string) {
	for _, row := range r.Rows {
		switch {
		case row.Stage != "tts" && row.Stage != "token2wav":
		case row.Err != nil:
			failed = append(failed, row.Fixture)
		default:
			passed = append(passed, row.Fixture)
		}
	}
	return failed, passed
}

// Damage of a fixture of the voice fails the rows that read it, and a missing file does not end the check.
func TestDamageOfTheVoiceIsFound(t *testing.T) {
	dir := spoken(t)
	for _, file := range []string{"token2wav/chunk_1.safetensors.gz", "tts/turn_1.safetensors.gz"} { // the sound; a state of the text
		rewrite(t, filepath.Join(dir, file), func(b []byte) []byte { b[len(b)-1] ^= 0x40; return b })
	}
	require.NoError(t, os.Remove(filepath.Join(dir, "token2wav", "dit_call.safetensors.gz")))
	failed, passed := voiceRows(run(t, dir))
	require.Equal(t, []string{"first step of the flow", "spectrogram to sound", "tts/turns.json"}, failed)
	require.Len(t, passed, 8)
}

// The check takes the random numbers and the chunks from the recording, so other ones there do not fit the recorded results.
func TestRecordingIsRead(t *testing.T) {
	dir := spoken(t)
	file := filepath.Join(dir, "token2wav", "stream.json.gz")
	rewrite(t, file, replace(`"seed": 20251`, `"seed": 20252`))
	rewrite(t, file, replace(`"noise_seed": 3000`, `"noise_seed": 3001`))
	failed, _ := voiceRows(run(t, dir))
	require.Equal(t, []string{"mu to spectrogram", "spectrogram to sound"}, failed)

	const noise = `{"rand_noise": {"shape": [1, 80, 30000], "seed": 7}, "chunks": `
	r, err := stages.ParseRecording([]byte(noise + `[{"noise_seed": 8}, {"noise_seed": 9, "last_chunk": true}]}`))
	require.NoError(t, err)
	require.Len(t, r.Chunks, 2)
	_, err = stages.ParseRecording([]byte(noise + `[{}, {"last_chunk": true}, {}]}`))
	require.EqualError(t, err, "chunk 1 of 3: expected last_chunk false, got true")
}

// A folder without the checkpoint or the language model fails the check.
func TestNothingToCheck(t *testing.T) {
	dir := golden(t)
	for _, name := range []string{"llm", "vision", "awq", "checkpoint-awq", "chat"} {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, name)))
	}
	require.ErrorContains(t, run(t, dir).Err(), "llm")
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "checkpoint")))
	require.ErrorContains(t, run(t, dir).Err(), "checkpoint")
	_, err := check.Run(t.Context(), check.Options{Golden: filepath.Join(dir, "none"), Library: library})
	require.ErrorContains(t, err, "expected a folder of fixtures")
}

func TestTruncatedShard(t *testing.T) {
	dir := golden(t)
	rewrite(t, filepath.Join(dir, "checkpoint", "model-00001-of-00002.safetensors.gz"), func(b []byte) []byte { return b[:len(b)/2] })
	err := run(t, dir).Err()
	require.ErrorContains(t, err, "model-00001-of-00002.safetensors")
}
