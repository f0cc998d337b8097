//go:build integration

package check_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/conformance/check"
)

// hearingGolden has the fixtures of speech recognition.
const hearingGolden = "../../../models/testdata/qwen3-asr"

func TestHearingPasses(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(hearingGolden)))
	for name, from := range map[string]string{
		"text/parse.json.gz": "../../qwen3asr/testdata/parse.json.gz", "text/align.json.gz": "../../qwen3asr/testdata/words.json.gz",
		"vad/silero.json.gz": "../../vad/testdata/silero.json.gz",
	} {
		b, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
	}
	r := run(t, dir)
	var table bytes.Buffer
	require.NoError(t, r.Write(&table))
	require.NoError(t, r.Err(), table.String())
	require.Greater(t, len(r.Rows), 43)
	t.Log(table.String())
}

// Damage to a fixture of speech recognition fails the check in its own row.
func TestHearingDamageIsFound(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the check again")
	}
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(hearingGolden)))
	number := func(b []byte) []byte {
		b[len(b)-1] ^= 0x40
		return b
	}
	replace := func(from, to string) func([]byte) []byte {
		return func(b []byte) []byte { return bytes.Replace(b, []byte(from), []byte(to), 1) }
	}
	damaged := map[string]bool{}
	for name, change := range map[string]func([]byte) []byte{
		"mel/vowel.safetensors.gz":               number,
		"mel/token_lengths.json.gz":              replace(`"9":2`, `"9":3`),
		"encoder/window4.safetensors.gz":         number,
		"encoder/sweep99.safetensors.gz":         number,
		"encoder/aligner_speech2.safetensors.gz": number,
		"llm/context.safetensors.gz":             number,
		"prompt/tiny.json.gz":                    replace(`"ids":[957,`, `"ids":[958,`),
		"align/align.json.gz":                    replace(`"indices":[401`, `"indices":[402`),
	} {
		rewrite(t, filepath.Join(dir, name), change)
		damaged[strings.TrimSuffix(name, ".gz")] = true
	}
	r := run(t, dir)
	require.ErrorIs(t, r.Err(), check.ErrFailed)
	for _, row := range r.Rows {
		require.Equal(t, damaged[row.Fixture], row.Err != nil, "%s: %v", row.Fixture, row.Err)
		delete(damaged, row.Fixture)
	}
	require.Empty(t, damaged)
}
