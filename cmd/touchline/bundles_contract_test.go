//go:build integration && !nodemo

package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/internal/contract"
)

// TestOldBundlesContract: the program lists, upgrades, verifies and uses the bundles that 9b77654 has made, and gives the same answers.
func TestOldBundlesContract(t *testing.T) {
	t.Parallel()
	dir := contract.UnpackBundles(t, moduleRoot+"/internal/contract/testdata/bundles-9b77654.tar.gz")
	work := t.TempDir()
	file := filepath.Join(work, "touchline.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
inference:
  engine: minicpmo
  max_tokens: 16
  minicpmo: {path: %[1]s/words, device: cpu, runtime: %[2]s/bin/runtime, slots: 2, temperature: 0}
  voice: {max_tokens: 16}
  recognizer: {program: model, bundle: %[1]s/ears, aligner: %[1]s/aligner, device: cpu}
`, dir, moduleRoot), 0o600))
	picture := filepath.Join(work, "picture.png")
	require.NoError(t, os.WriteFile(picture, stripes(t), 0o600))
	sound := filepath.Join(work, "speech.wav")
	require.NoError(t, os.WriteFile(sound, unzipped(t, moduleRoot+"/models/testdata/qwen3-asr/audio/speech2.wav.gz"), 0o600))
	spoken := filepath.Join(work, "spoken.wav")
	runtime := []string{"--ort", filepath.Join(moduleRoot, "bin/runtime")}

	var out strings.Builder
	for _, args := range [][]string{
		{"models", "list", dir},
		{"models", "upgrade", filepath.Join(dir, "words")},
		{"models", "upgrade", filepath.Join(dir, "ears")},
		{"models", "upgrade", filepath.Join(dir, "aligner")},
		append([]string{"models", "verify", filepath.Join(dir, "words")}, runtime...),
		append([]string{"models", "verify", filepath.Join(dir, "ears")}, runtime...),
		{"ask", "--json", picture, picture, "What happens?"},
		{"say", "Blue scores.", spoken, "--voice", "model"},
		{"transcribe", "--format", "json", "--words", sound},
	} {
		stdout, stderr, code := touchline(t, append([]string{"-c", file, "--log-level", "error"}, args...)...)
		require.Zero(t, code, "%v: %s", args, stderr)
		var answer struct {
			Cycles []struct {
				Answer    string          `json:"answer"`
				Tokens    int             `json:"tokens"`
				Exchanges json.RawMessage `json:"exchanges"`
			} `json:"cycles"`
		}
		if args[0] == "ask" {
			require.NoError(t, json.Unmarshal([]byte(stdout), &answer))
			text, err := json.Marshal(answer.Cycles)
			require.NoError(t, err)
			stdout = contract.JSON(text)
		}
		text := strings.ReplaceAll(strings.ReplaceAll("$ touchline "+strings.Join(args, " ")+"\n"+stdout, dir, "BUNDLES"), work, "WORK")
		out.WriteString(strings.ReplaceAll(text, moduleRoot, "ROOT") + "\n")
	}
	wave, err := os.ReadFile(spoken)
	require.NoError(t, err)
	fmt.Fprintf(&out, "%d bytes of sound\n", len(wave))
	text := regexp.MustCompile(`\d+(\.\d+)? ?m?s\b`).ReplaceAllString(out.String(), "N s")
	text = regexp.MustCompile(`(\S) {2,}`).ReplaceAllString(text, "$1  ") // columns of a table
	contract.Compare(t, moduleRoot+"/cmd/touchline/testdata/contract/bundles.txt", text)
	contract.Compare(t, moduleRoot+"/cmd/touchline/testdata/contract/metrics-of-models.txt", metricsOfModels(t, file))
}

// metricsOfModels returns name, help, type and labels of the metrics of the loaded models: of a worker that comments on a room.
func metricsOfModels(t *testing.T, settings string) string {
	t.Helper()
	h := newAgentHouse(t)
	p := h.start("--config", settings, "--console", "127.0.0.1:0")
	d := p.console(t)
	h.ask(agentRoom, "")
	var text string
	require.Eventually(t, func() bool {
		_, text = d.ask(http.MethodGet, "/metrics", "")
		return strings.Contains(text, "touchline_engine_steps_total{") && strings.Contains(text, "touchline_recognizer_answers_total{")
	}, later, 100*time.Millisecond)
	var out strings.Builder
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "touchline_engine_") && !strings.Contains(line, "touchline_recognizer_") || strings.Contains(line, "_bucket{") {
			continue
		}
		if !strings.HasPrefix(line, "# ") {
			line = line[:strings.LastIndex(line, " ")] + "\n" // without the value
		}
		out.WriteString(line)
	}
	return out.String()
}

// stripes returns a picture of coloured stripes.
func stripes(t *testing.T) []byte {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, 320, 180))
	for i := range 320 * 180 {
		img.Set(i%320, i/320, color.RGBA{uint8(i % 320), uint8(i / 320), uint8(i / 7), 255}) // wraps
	}
	var out bytes.Buffer
	require.NoError(t, png.Encode(&out, img))
	return out.Bytes()
}

func unzipped(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	text, err := io.ReadAll(z)
	require.NoError(t, err)
	return text
}
