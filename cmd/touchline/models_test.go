//go:build integration && !nodemo

package main

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/look"
	"touchline/inference"
	"touchline/inference/conformance/bundles"
	"touchline/inference/conformance/synth"
	"touchline/inference/minicpmo"
	"touchline/models"
	"touchline/models/convert"
)

// onTiny returns the flags for a tiny bundle on the CPU.
func onTiny(t *testing.T) (bundle string, flags []string) {
	t.Helper()
	shape, err := synth.Find("tiny")
	require.NoError(t, err)
	src, err := synth.New(shape, 1)
	require.NoError(t, err)
	bundle = filepath.Join(t.TempDir(), "tiny")
	require.NoError(t, convert.Convert(t.Context(), src, bundle, convert.Options{
		Weights: []models.Weights{models.WeightsFloat32}, Random: true,
	}))
	return bundle, []string{"--model", bundle, "--model-device", "cpu", "--ort", filepath.Join(moduleRoot, "bin", "runtime")}
}

func fetch(t *testing.T, url string) (status int, body string) {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(text)
}

func TestDemoWithAModel(t *testing.T) {
	t.Parallel()
	_, flags := onTiny(t)
	p, url := start(t, []string{"TOUCHLINE_INFERENCE_VOICE_MAX_TOKENS=16"}, append([]string{"demo", "--listen", "127.0.0.1:0"}, flags...)...)
	require.Eventually(t, func() bool { code, _ := fetch(t, url+"readyz"); return code == http.StatusOK }, startWait, 50*time.Millisecond)
	require.Eventually(t, func() bool {
		_, metrics := fetch(t, url+"metrics")
		return strings.Contains(metrics, `touchline_cycles_total{outcome="spoken"}`) &&
			strings.Contains(metrics, `touchline_engine_steps_total{weights="fp32"}`)
	}, startWait, 200*time.Millisecond)
	p.interrupt(t)
	require.Zero(t, p.exitCode())
}

func TestAgentWithAModel(t *testing.T) {
	t.Parallel()
	_, flags := onTiny(t)
	h := newAgentHouse(t)
	// Random weights do not end sentences.
	short := filepath.Join(t.TempDir(), "short.yaml")
	require.NoError(t, os.WriteFile(short, []byte("inference: {voice: {max_tokens: 12}}\n"), 0o600))
	p := h.start(append([]string{"--config", short}, flags...)...)
	h.ask(agentRoom, "")
	h.speaks(p)
	_, metrics := p.get("/metrics")
	require.Contains(t, metrics, "touchline_engine_answers_total")
	require.Positive(t, p.outcomes()[look.OutcomeSpoken])

	// The program ends if its model cannot be loaded.
	useless := exec.CommandContext(t.Context(), "./bin/touchline", append([]string{
		"agent", "--agent-name", "useless", "--http", "off",
	}, append(flags[:4:4], "--ort", t.TempDir())...)...)
	useless.Env = append(plainEnviron(), "LIVEKIT_URL="+h.url, "LIVEKIT_API_KEY="+h.keys.APIKey, "LIVEKIT_API_SECRET="+h.keys.APISecret)
	began := time.Now()
	out, err := useless.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "load the model")
	require.Equal(t, 1, useless.ProcessState.ExitCode())
	t.Logf("a worker without a model ended in %v", time.Since(began))
}

// plainEnviron returns the environment without the tests' own variables, which
// the program would reject as unknown settings.
func plainEnviron() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TOUCHLINE_") })
}

// TestModelCommands tests exit codes and messages; cmd/touchline-model tests the
// commands.
func TestModelCommands(t *testing.T) {
	t.Parallel()
	bundle, flags := onTiny(t)
	empty := t.TempDir()
	for _, tt := range []struct {
		name string
		args []string
		code int
		text string
	}{
		{"find is the default", []string{"models", "127.0.0.1:1"}, 1, "no OpenAI-compatible model server at 127.0.0.1:1"},
		{"find", []string{"models", "find", "127.0.0.1:1"}, 1, "start one"},
		{"list", []string{"models", "list", bundle}, 0, "tiny (random weights)"},
		{"list of nothing", []string{"--log-level", "error", "models", "list", empty}, 1, "touchline: " + empty + ": no bundle found"},
		{"list of nothing as JSON", []string{"--log-json", "models", "list", empty}, 1, `"message":"touchline failed"`},
		{"verify", []string{"models", "verify", bundle, "--no-run"}, 0, "all checksums match"},
		{"check with a model", append([]string{"check"}, flags...), 0, "ok       model bundle: tiny"},
		{"check without a bundle", []string{"check", "--model", empty, "--model-device", "cpu"}, 1, "touchline models pull"},
		{"check without a runtime", append([]string{"check"}, append(flags[:4:4], "--ort", empty)...), 1, "make runtime"},
		{"check on another device", append([]string{"check"}, append(flags[:2:2], flags[4:]...)...), 1, "--device cuda"},
		{"demo without a bundle", []string{"demo", "--listen", "127.0.0.1:0", "--model", empty}, 1, "no manifest.json in the folder"},
		{
			"demo without a runtime", append([]string{"demo", "--listen", "127.0.0.1:0"}, append(flags[:4:4], "--ort", empty)...),
			1, "load the model",
		},
		{"bench", []string{"bench", "model", bundle, "--ort", empty}, 1, "cuda"},
		{"wrong device", []string{"demo", "--model", bundle, "--model-device", "tpu"}, 80, "--model-device"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			command := exec.Command("./bin/touchline", tt.args...)
			command.Env = plainEnviron()
			out, err := command.CombinedOutput()
			code := 0
			if err != nil {
				var exit *exec.ExitError
				require.ErrorAs(t, err, &exit)
				code = exit.ExitCode()
			}
			require.Equal(t, tt.code, code, "%s", out)
			require.Contains(t, string(out), tt.text)
		})
	}
	require.Equal(t, 71, minicpmo.ExitDeviceLost, "as docs/models.md has it")
}

// TestSayInTheModelsVoice: a model that speaks says the text in its own voice, and one that does not is refused.
func TestSayInTheModelsVoice(t *testing.T) {
	t.Parallel()
	_, flags := onTiny(t)
	path := filepath.Join(t.TempDir(), "own.wav")
	_, stderr, code := touchline(t, append([]string{"say", "A goal!", path}, flags...)...)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, inference.ErrNoVoice.Error())
	require.NoFileExists(t, path)

	bundle := filepath.Join(t.TempDir(), "speaking")
	require.NoError(t, bundles.Speaking(t.Context(), moduleRoot, t.TempDir(), bundle))
	flags[1] = bundle
	stdout, stderr, code := touchline(t, append([]string{"say", "--voice", "default", "A goal!", path}, flags...)...)
	require.Zero(t, code, stderr)
	require.Regexp(t, `own\.wav: \d+\.\d\d s at 24000 Hz, made in `, stdout)
	require.NoError(t, os.Remove(path))
	for _, voice := range []string{"anna", "model:anna"} {
		_, stderr, code = touchline(t, append([]string{"say", "--voice", voice, "A goal!", path}, flags...)...)
		require.Equal(t, 1, code)
		require.Contains(t, stderr, `the model has no voice "anna": choose one of model`)
		require.NoFileExists(t, path)
	}
}
