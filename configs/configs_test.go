package configs_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/prompt"
	"touchline/agent/settings"
	"touchline/agent/webhook"
	"touchline/configs"
	"touchline/inference"
	"touchline/internal/redact"
)

// settingsOf compares configs without their origins.
func settingsOf(c configs.Config) []any {
	return []any{
		c.Preset, c.Detail, c.ProfileFiles, c.LogLevel, c.Media, c.Pacing, c.Inference, c.Agent, c.Sources, c.Profiles,
	}
}

func load(t *testing.T, yaml string, environ ...string) (configs.Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "touchline.yaml")
	require.NoError(t, os.WriteFile(path, []byte(yaml), 0o600))
	return configs.Load(path, environ)
}

func TestNothingConfiguredIsTheDefault(t *testing.T) {
	c, err := configs.Load("", nil)
	require.NoError(t, err)
	require.Equal(t, settingsOf(configs.Default()), settingsOf(c))
	require.Equal(t, "sniper", c.Preset)
	require.InDelta(t, 5.0, c.Media.CaptureFPS, 0)
	require.Equal(t, "auto", c.Inference.Engine)
	require.Equal(t, "127.0.0.1:8199", c.Agent.Console.Listen)
}

func TestDefaultFileIsTheDefault(t *testing.T) {
	c, err := configs.Load("default.yaml", nil)
	require.NoError(t, err)
	want := configs.Default()
	// An empty and a nil list are equal.
	require.Equal(t, settingsOf(want), settingsOf(c))
}

// TestDefaultFileDocumentsEveryKey: default.yaml has each key, with a comment above it.
func TestDefaultFileDocumentsEveryKey(t *testing.T) {
	key := regexp.MustCompile(`^( *)([a-z_]+):`)
	var path []string
	seen := map[string]bool{}
	text, err := os.ReadFile("default.yaml")
	require.NoError(t, err)
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		m := key.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		path = append(path[:len(m[1])/2], m[2])
		seen[strings.Join(path, ".")] = true
		require.Regexp(t, `^ *# .`, lines[i-1], "%s has no comment above it", strings.Join(path, "."))
	}
	for _, v := range configs.Variables() {
		require.Equal(t, !v.Secret, seen[v.Path], "%s", v.Path)
	}
	for _, v := range configs.Variables() {
		for path := v.Path; path != ""; path = path[:max(0, strings.LastIndex(path, "."))] {
			delete(seen, path) // the setting and its groups
		}
	}
	require.Empty(t, seen)
}

// TestBadFiles loads each testdata/NAME.bad.yaml. The comments at its head hold the texts that the error must contain:
// "# want: text", with further lines of the same text as "# next: line". A name with a dot is the path of the setting
// at fault, and then the only one; a suffix distinguishes files of one setting.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.bad.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	suffix := regexp.MustCompile(`_(cross|missing|password|empty)$|_item_.*$`)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".bad.yaml")
		t.Run(name, func(t *testing.T) {
			_, err := configs.Load(file, nil)
			var bad *configs.Error
			require.ErrorAs(t, err, &bad)
			wants := wanted(t, file)
			require.NotEmpty(t, wants, "%s says nothing about its error", file)
			for _, want := range wants {
				require.Contains(t, err.Error(), want)
			}
			require.NotContains(t, err.Error(), "hunter2", "a secret was printed")
			require.NotEmpty(t, bad.Problems)
			if strings.Contains(name, ".") {
				require.Len(t, bad.Problems, 1, "%v", err)
				path, _, _ := strings.Cut(bad.Problems[0].Path, "[")
				require.Equal(t, suffix.ReplaceAllString(name, ""), path)
			}
		})
	}
}

// wanted reads the texts from the head of a bad file.
func wanted(t *testing.T, file string) (wants []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if want, ok := strings.CutPrefix(line, "# want: "); ok {
			wants = append(wants, want)
		} else if next, ok := strings.CutPrefix(line, "# next: "); ok {
			wants[len(wants)-1] += "\n" + next
		} else {
			break
		}
	}
	return wants
}

// TestEverySettingHasARule: every setting except free text is validated.
func TestEverySettingHasARule(t *testing.T) {
	free := map[string]string{
		"media.watch.identity":         "any identity",
		"inference.remote.model":       "the server knows its names",
		"inference.voice.name":         "the program knows its voices",
		"inference.voice.model":        "the server knows its models",
		"inference.recognizer.model":   "the server knows its models",
		"inference.recognizer.aligner": "a path",

		"inference.recognizer.interim.model": "the server knows its models",
		"inference.minicpmo.runtime":         "a path",
		"inference.sight.bundle":             "a path",
		"agent.state.path":                   "a path",
		"agent.mqtt.user":                    "required with a password, which no file has",
		"agent.console.tls_cert":             "checked through tls_key",
		"agent.control.role_attribute":       "checked through role_value",
	}
	for _, v := range configs.Variables() {
		if v.Secret || free[v.Path] != "" {
			continue
		}
		files, err := filepath.Glob("testdata/" + v.Path + "*.bad.yaml")
		require.NoError(t, err)
		if len(files) > 0 {
			continue
		}
		// Switches have no wrong values but wrong kinds.
		_, err = configs.Load("", []string{v.Name + "=neither"})
		require.ErrorContains(t, err, v.Path+": must be true or false", "no testdata/%s.bad.yaml", v.Path)
	}
}

// TestEncryptionKeys: Explain names the rooms that have a key, and nothing prints one.
func TestEncryptionKeys(t *testing.T) {
	for keys, want := range map[string]string{
		"hunter2":                  "all rooms have a key of end-to-end encryption",
		"b=hunter2, a=hunter2":     "rooms with a key of end-to-end encryption: a, b",
		"hunter2, match=hunter3==": "all rooms have a key of end-to-end encryption",
	} {
		c, err := load(t, "", "TOUCHLINE_AGENT_E2EE_KEY="+keys)
		require.NoError(t, err)
		require.Equal(t, keys, string(c.Agent.LiveKit.Keys().E2EE))
		lines := c.Explain()
		require.Equal(t, want, lines[len(lines)-1])
		var out bytes.Buffer
		require.NoError(t, c.Print(&out))
		require.NotContains(t, out.String()+strings.Join(lines, ""), "hunter")
		require.Contains(t, out.String(), "# e2ee_key: set by TOUCHLINE_AGENT_E2EE_KEY, redacted")
	}
	for _, bad := range []string{"hunter2, hunter3", "a=hunter2, a=hunter3"} {
		_, err := load(t, "", "TOUCHLINE_AGENT_E2EE_KEY="+bad)
		require.ErrorContains(t, err, "agent.e2ee_key: must be one key for all rooms, or ROOM=KEY for each")
		require.NotContains(t, err.Error(), "hunter")
	}
	_, err := load(t, "agent: {e2ee_key: hunter2}")
	require.ErrorContains(t, err, "TOUCHLINE_AGENT_E2EE_KEY")
	require.NotContains(t, err.Error(), "hunter")
}

// TestWebhooks: each address may have its own events and key; the environment
// sets addresses and keys only.
func TestWebhooks(t *testing.T) {
	const file = `
agent:
  webhook:
    urls:
      - https://a.test/
      - url: https://b.test/
        events: [error]
        signing_key: ops
`
	keys := "TOUCHLINE_AGENT_WEBHOOK_KEYS=ops: first-hunter2\nother: second-hunter2"
	want := []webhook.URL{{URL: "https://a.test/"}, {URL: "https://b.test/", Events: []string{"error"}, SigningKey: "ops"}}
	c, err := load(t, file, keys)
	require.NoError(t, err)
	require.Equal(t, want, c.Agent.Webhook.URLs)
	pairs, err := c.Agent.Webhook.SigningKeys()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"ops": "first-hunter2", "other": "second-hunter2"}, pairs)
	var out bytes.Buffer
	require.NoError(t, c.Print(&out))
	require.NotContains(t, out.String(), "hunter2")
	again, err := load(t, out.String(), keys)
	require.NoError(t, err, out.String())
	require.Equal(t, want, again.Agent.Webhook.URLs)

	c, err = load(t, file, keys, "TOUCHLINE_AGENT_WEBHOOK_URLS=http://c.test/, http://d.test/x?a=b:1")
	require.NoError(t, err)
	require.Equal(t, []webhook.URL{{URL: "http://c.test/"}, {URL: "http://d.test/x?a=b:1"}}, c.Agent.Webhook.URLs)
	_, err = load(t, file, keys, "TOUCHLINE_AGENT_WEBHOOK_URLS=http://c.test/,ftp://hunter2/")
	require.ErrorContains(t, err, "agent.webhook.urls[1]: must be an http:// or https:// address")
	require.ErrorContains(t, err, "TOUCHLINE_AGENT_WEBHOOK_URLS")
	require.NotContains(t, err.Error(), "hunter2")

	for _, bad := range []string{"hunter2", "ops: ", ": hunter2", "ops: hunter2, ops: hunter3"} {
		_, err = load(t, "", "TOUCHLINE_AGENT_WEBHOOK_KEYS="+bad)
		require.ErrorContains(t, err, `agent.webhook.keys: must be pairs such as "key: secret"`)
		require.NotContains(t, err.Error(), "hunter")
	}
}

func TestPresets(t *testing.T) {
	tests := []struct {
		name                  string
		fps                   float64
		frames, stride, size  int
		threshold             float64
		interval, pause       time.Duration
		tokens                int
		span                  float64 // s
		lookTokens, lookLarge int     // at 448 and at 1280 pixels
	}{
		{"sentry", 2, 4, 2, 32, 5, time.Second, time.Second, 150, 3, 264, 792},
		{"auto", 5, 4, 1, 64, 0, time.Second / 2, time.Second / 2, 96, 0.6, 264, 792},
		{"sniper", 5, 4, 1, 48, 0, time.Second / 2, time.Second / 2, 96, 0.6, 264, 792},
		{"owl", 4, 8, 2, 48, 1, time.Second / 2, time.Second / 2, 120, 3.5, 528, 1584},
		{"beast", 5, 10, 2, 64, 0, time.Second / 2, 300 * time.Millisecond, 96, 3.6, 660, 1980},
	}
	files, err := filepath.Glob("presets/*.yaml")
	require.NoError(t, err)
	require.Len(t, files, len(tests))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inFile, err := load(t, "preset: "+tt.name)
			require.NoError(t, err)
			outside, err := configs.Load("", []string{"TOUCHLINE_PRESET=" + tt.name})
			require.NoError(t, err)
			require.Equal(t, settingsOf(inFile), settingsOf(outside))
			c := outside
			require.InDelta(t, tt.fps, c.Media.CaptureFPS, 0)
			require.Equal(t, tt.frames, c.Agent.Frames)
			require.Equal(t, tt.stride, c.Agent.Stride)
			require.Equal(t, tt.size, c.Media.WindowSize)
			require.InDelta(t, tt.threshold, c.Agent.ChangeThreshold, 0)
			require.Equal(t, tt.interval, c.Pacing.MinInterval)
			require.Equal(t, tt.pause, c.Pacing.PauseAfter)
			require.Equal(t, tt.tokens, c.Inference.Voice.MaxTokens)
			require.InDelta(t, tt.span, c.CycleSpan(), 1e-9)
			require.Equal(t, tt.lookTokens, c.CycleTokens())
			c.Media.LongSide = 1280
			require.Equal(t, tt.lookLarge, c.CycleTokens())
		})
	}
	c, err := configs.Load("", []string{"TOUCHLINE_PRESET=sniper"})
	require.NoError(t, err)
	require.Equal(t, settingsOf(configs.Default()), settingsOf(c), "sniper is the default")
}

func TestDetails(t *testing.T) {
	for name, want := range map[string][3]int{"small": {1, 4352, 512}, "medium": {2, 8192, 512}, "large": {3, 8192, 512}} {
		c, err := load(t, "detail: "+name)
		require.NoError(t, err)
		require.Equal(t, want, [3]int{c.Inference.MaxSlices, c.Inference.MaxInputTokens, c.Inference.MaxTokens})
	}
	files, err := filepath.Glob("detail/*.yaml")
	require.NoError(t, err)
	require.Len(t, files, 3)
}

// TestOrder: defaults, a file's preset, the file, a preset from outside, the environment.
func TestOrder(t *testing.T) {
	const file = "preset: owl\nmedia: {capture_fps: 7}\nagent: {frames_per_look: 6}"
	c, err := load(t, file)
	require.NoError(t, err)
	require.InDelta(t, 7.0, c.Media.CaptureFPS, 0, "the file goes over its own preset")
	require.Equal(t, 6, c.Agent.Frames)
	require.Equal(t, 2, c.Agent.Stride, "from the preset")
	require.Equal(t, 448, c.Media.LongSide, "the default")

	c, err = load(t, file, "TOUCHLINE_PRESET=beast")
	require.NoError(t, err)
	require.InDelta(t, 5.0, c.Media.CaptureFPS, 0, "a preset from outside goes over the file")
	require.Equal(t, 10, c.Agent.Frames)
	require.Equal(t, "beast", c.Preset)

	c, err = load(t, file, "TOUCHLINE_PRESET=beast", "TOUCHLINE_AGENT_FRAMES_PER_LOOK=3")
	require.NoError(t, err)
	require.Equal(t, 3, c.Agent.Frames, "the environment goes over all")
}

func TestEnvironment(t *testing.T) {
	tests := []struct {
		variable string
		get      func(configs.Config) any
		want     any
	}{
		{"TOUCHLINE_LOG_LEVEL=debug", func(c configs.Config) any { return c.LogLevel }, "debug"},
		{"TOUCHLINE_MEDIA_CAPTURE_FPS=2.5", func(c configs.Config) any { return c.Media.CaptureFPS }, 2.5},
		{"TOUCHLINE_MEDIA_WATCH_SOURCE=camera", func(c configs.Config) any { return c.Media.Watch.Source }, "camera"},
		{"TOUCHLINE_MEDIA_RELAY=false", func(c configs.Config) any { return c.Media.Relay }, false},
		{"TOUCHLINE_PACING_PAUSE_AFTER=1.5s", func(c configs.Config) any { return c.Pacing.PauseAfter }, 1500 * time.Millisecond},
		{
			"TOUCHLINE_INFERENCE_REMOTE_URL=http://h:1/v1",
			func(c configs.Config) any { return c.Inference.Remote.URL }, "http://h:1/v1",
		},
		{
			"TOUCHLINE_INFERENCE_REMOTE_API_KEY=k",
			func(c configs.Config) any { return c.Inference.Remote.APIKey }, redact.Secret("k"),
		},
		{
			"TOUCHLINE_INFERENCE_MINICPMO_SUPPRESS_TOKENS=1,2",
			func(c configs.Config) any { return c.Inference.MiniCPM.SuppressTokens },
			[]int{1, 2},
		},
		{
			"TOUCHLINE_AGENT_CONTROL_IDENTITIES=anna, ben",
			func(c configs.Config) any { return c.Agent.Control.Identities },
			[]string{"anna", "ben"},
		},
		{
			"TOUCHLINE_AGENT_CONSOLE_TOKEN=0123456789abcdef",
			func(c configs.Config) any { return c.Agent.Console.Token }, redact.Secret("0123456789abcdef"),
		},
		{"LIVEKIT_URL=wss://x", func(c configs.Config) any { return c.Agent.LiveKit.URL }, "wss://x"},
		{"TOUCHLINE_AGENT_LIVEKIT_URL=wss://y", func(c configs.Config) any { return c.Agent.LiveKit.URL }, "wss://y"},
		{"TOUCHLINE_MEDIA_LONG_SIDE=", func(c configs.Config) any { return c.Media.LongSide }, 448},
		{"TOUCHLINE_PORT_8199_TCP=tcp://10.0.0.1:8199", func(c configs.Config) any { return c.LogLevel }, "info"},
		{"TOUCHLINE_SERVICE_HOST=10.0.0.1", func(c configs.Config) any { return c.LogLevel }, "info"},
		{"PATH=/bin", func(c configs.Config) any { return c.LogLevel }, "info"},
	}
	for _, tt := range tests {
		t.Run(tt.variable, func(t *testing.T) {
			c, err := configs.Load("", []string{tt.variable})
			require.NoError(t, err)
			require.Equal(t, tt.want, tt.get(c))
		})
	}
	c, err := configs.Load("", []string{
		"LIVEKIT_API_KEY=key", "LIVEKIT_API_SECRET=secret", "LIVEKIT_URL=ws://a", "TOUCHLINE_AGENT_LIVEKIT_URL=ws://b",
	})
	require.NoError(t, err)
	require.Equal(t, "key", c.Agent.LiveKit.APIKey)
	require.Equal(t, redact.Secret("secret"), c.Agent.LiveKit.APISecret)
	require.Equal(t, "ws://b", c.Agent.LiveKit.URL, "our own name is the more precise one")
}

func TestBadEnvironment(t *testing.T) {
	_, err := configs.Load("", []string{
		"TOUCHLINE_MEDIA_CAPTURE_FPS=fast",
		"TOUCHLINE_MEDIA_LONG_SIDE=1e3",
		"TOUCHLINE_MEDIA_RELAY=maybe",
		"TOUCHLINE_MEDIA_JPEG_QUALITY=0",
		"TOUCHLINE_PACING_PAUSE_AFTER=5",
		"TOUCHLINE_PACING_QUANTILE=NaN",
		"TOUCHLINE_INFERENCE_MINICPMO_SUPPRESS_TOKENS=a",
		"TOUCHLINE_MEDIA_CAPTUREFPS=5",
		"TOUCHLINE_AGENT_HISTORY_ROTATE_AFTER=1h",
		"LIVEKIT_URL=ftp://x",
		"LIVEKIT_API_SECRET=hunter2",
	})
	require.Error(t, err)
	text := err.Error()
	for _, want := range []string{
		"11 settings are wrong:",
		"TOUCHLINE_AGENT_HISTORY_ROTATE_AFTER agent.history.rotate_after: this setting was removed: files are closed after max_age",
		`TOUCHLINE_MEDIA_CAPTURE_FPS media.capture_fps: must be a number, is "fast"`,
		`TOUCHLINE_MEDIA_LONG_SIDE media.long_side: must be a whole number, is "1e3"`,
		`TOUCHLINE_MEDIA_RELAY media.relay: must be true or false, is "maybe"`,
		`TOUCHLINE_MEDIA_JPEG_QUALITY media.jpeg_quality: must be between 1 and 100, is 0`,
		`TOUCHLINE_PACING_PAUSE_AFTER pacing.pause_after: must be a time with its unit, such as 500ms, 4s or 10m, is "5"`,
		`TOUCHLINE_PACING_QUANTILE pacing.quantile: must be at least 0.5 and under 1, is NaN`,
		`TOUCHLINE_INFERENCE_MINICPMO_SUPPRESS_TOKENS inference.minicpmo.suppress_tokens: must be a list of whole numbers, is "a"`,
		`TOUCHLINE_MEDIA_CAPTUREFPS unknown variable, did you mean TOUCHLINE_MEDIA_CAPTURE_FPS?`,
		`LIVEKIT_URL agent.livekit.url: must be ws:// or wss:// with a host, is "ftp://x"`,
		`agent.livekit.api_key: must be set when the other half of the pair is`,
	} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, "hunter2")
}

// TestVariableNames: the name of each variable follows from the path.
func TestVariableNames(t *testing.T) {
	for _, v := range configs.Variables() {
		require.Equal(t, "TOUCHLINE_"+strings.ToUpper(strings.ReplaceAll(v.Path, ".", "_")), v.Name)
	}
}

func TestFileGivenByEnvironment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	require.NoError(t, os.WriteFile(path, []byte("log_level: warn"), 0o600))
	c, err := configs.Load("", []string{"TOUCHLINE_CONFIG=" + path})
	require.NoError(t, err)
	require.Equal(t, "warn", c.LogLevel)
}

func TestUnreadableFile(t *testing.T) {
	_, err := configs.Load(filepath.Join(t.TempDir(), "none.yaml"), nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = configs.Load(t.TempDir(), nil)
	require.ErrorContains(t, err, "not a regular file")
	big := filepath.Join(t.TempDir(), "big.yaml")
	require.NoError(t, os.WriteFile(big, bytes.Repeat([]byte("#\n"), 1<<20), 0o600))
	_, err = configs.Load(big, nil)
	require.ErrorContains(t, err, "more than 1048576 bytes")
}

func TestOddButRightFiles(t *testing.T) {
	for _, text := range []string{
		"", "# nothing\n", "---\n", "---\nlog_level: info\n...\n", "media:\n", "media: {}\n", "log_level: info\r\nmedia: {}\r\n",
		"agent: {livekit: {room: 42}}", "agent: {instruction: ~}", "pacing: {fixed_delay: 0}", "media: {capture_fps: 5.0}",
		"log_level: &x info\nagent: {livekit: {name: *x}}", "agent:\n  instruction: |\n    a\n    b\n", "\ufefflog_level: info\n",
		"agent: {control: {identities:\n  - anna\n  - ben\n}}", "media: {relay_max_bytes: 0x4000000}",
	} {
		_, err := load(t, text)
		require.NoError(t, err, "%q", text)
	}
}

func TestPrint(t *testing.T) {
	environ := []string{
		"LIVEKIT_API_KEY=visible-key", "LIVEKIT_API_SECRET=hunter2", "TOUCHLINE_INFERENCE_REMOTE_API_KEY=hunter3", "TOUCHLINE_INFERENCE_VOICE_API_KEY=hunter4",
		"TOUCHLINE_INFERENCE_RECOGNIZER_API_KEY=hunter5", "TOUCHLINE_INFERENCE_RECOGNIZER_INTERIM_API_KEY=hunter6",
		"TOUCHLINE_AGENT_CONSOLE_TOKEN=hunter4-hunter4-", "TOUCHLINE_AGENT_LIVEKIT_TOKEN=hunter5", "TOUCHLINE_LOG_LEVEL=debug",
	}
	c, err := load(t, "preset: owl\nagent:\n  instruction: \"say \\\"hi\\\"\\nand # more: é\\t\"\n  frame_stride: 3\n"+
		"  control: {identities: [a, 'b: c']}\n", environ...)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, c.Print(&out))
	text := out.String()
	require.NotContains(t, text, "hunter")
	require.NotContains(t, text, "visible-key")
	for _, want := range []string{
		"log_level: \"debug\"  # TOUCHLINE_LOG_LEVEL\n",
		"  capture_fps: 4  # preset owl\n",
		"  frame_stride: 3  # touchline.yaml line 4\n",
		"  long_side: 448\n",
		"    # api_secret: set by LIVEKIT_API_SECRET, redacted\n",
		"    # token: set by TOUCHLINE_AGENT_CONSOLE_TOKEN, redacted\n",
	} {
		require.Contains(t, text, want)
	}
	again, err := load(t, text, environ...)
	require.NoError(t, err)
	require.Equal(t, settingsOf(c), settingsOf(again), "what is printed loads to the same")
	for _, s := range []string{fmt.Sprintf("%v %+v %#v", c.Agent.LiveKit, c, c)} {
		require.NotContains(t, s, "hunter")
	}
}

// TestLivePresets: a preset that people choose at run time sets what its file sets, but for the window, which is fixed.
func TestLivePresets(t *testing.T) {
	presets := configs.Default().Bot().Presets
	require.Len(t, presets, 4)
	for _, p := range presets {
		require.Equal(t, []string{
			"capture_fps", "frames_per_look", "frame_stride", "change_threshold", "min_interval", "pause_after", "speech_max_tokens",
		}, p.Settings.Names(), p.Name)
	}
	owl := presets[slices.IndexFunc(presets, func(p settings.Preset) bool { return p.Name == "owl" })].Settings
	require.Equal(t, []any{4.0, 8, 0.5, 120}, []any{*owl.CaptureFPS, *owl.Frames, *owl.PauseAfter, *owl.SpeechMaxTokens})
}

func TestExplain(t *testing.T) {
	c := configs.Default()
	require.Equal(t, []string{
		"a cycle covers 0.6 s: 4 pictures, every one of 5 per second",
		"its pictures cost at most 264 tokens, of 8192 (inference.max_input_tokens)",
		"a cycle can cover at most 9.4 s (media.window_size)",
		"the picture is delayed by 4s at first, then as comments need, between 0s and 15s",
	}, c.Explain())
	c.Media.WindowSize = (c.Agent.Frames-1)*c.Agent.Stride + 1 // all of it
	require.Contains(t, c.Explain()[2], "can cover at most 0.6 s")
	c.Agent.Stride, c.Pacing.InitialDelay = 22, 0
	require.Contains(t, c.Explain()[0], "every 22nd of 5")
	require.Contains(t, c.Explain()[3], "is not delayed")
	c.Pacing.FixedDelay = time.Second
	require.Contains(t, c.Explain()[3], "is delayed by 1s")
}

func TestProfiles(t *testing.T) {
	c := configs.Default()
	var names []string
	for _, p := range c.Profiles {
		names = append(names, p.Name)
		require.NotEmpty(t, p.Label)
		require.NotEmpty(t, p.Suggestion)
		require.Greater(t, len(p.Prompt), 400, "%s", p.Name)
		require.Contains(t, strings.Join(strings.Fields(p.Prompt), " "),
			"exactly three dots and nothing else: "+inference.Silence, "%s: silence is part of every order", p.Name)
		require.Contains(t, p.Prompt, "sentence")
		require.Contains(t, p.Prompt, "no emoji", "%s", p.Name)
	}
	require.Equal(t, []string{"default", "sports", "security", "nature", "descriptive"}, names)
}

func TestAdditionalProfiles(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "mine"), os.DirFS("testdata/profiles")))
	path := filepath.Join(dir, "touchline.yaml")
	require.NoError(t, os.WriteFile(path, []byte("profile_files: [mine]\nagent: {profile: pets}\n"), 0o600))
	c, err := configs.Load(path, nil)
	require.NoError(t, err)
	require.Len(t, c.Profiles, 6)
	require.Equal(t, "Our sports", c.Profiles[1].Label, "one's own goes over the built-in one")
	require.Equal(t, prompt.Profile{
		Name: "pets", Label: "Pets", Suggestion: "Is the cat on the table?",
		Prompt: "Say what the cat does. When it does nothing new, answer with ...",
	}, c.Profiles[5])

	c, err = configs.Load("", []string{"TOUCHLINE_PROFILE_FILES=testdata/profiles/pets.yaml"})
	require.NoError(t, err)
	require.Len(t, c.Profiles, 6)

	bad := filepath.Join(dir, "bad.yaml")
	require.NoError(t, os.WriteFile(bad, []byte("label: x\nprompt: y\nsugestion: z\n"), 0o600))
	_, err = configs.Load("", []string{"TOUCHLINE_PROFILE_FILES=" + bad})
	require.ErrorContains(t, err, `unknown field "sugestion"`)
	_, err = configs.Load("", []string{"TOUCHLINE_PROFILE_FILES=" + t.TempDir()})
	require.ErrorContains(t, err, "the folder has no profiles")
}

// TestTuningCoversEverySetting: the table of docs/tuning.md has all settings, including removed ones.
func TestTuningCoversEverySetting(t *testing.T) {
	text, err := os.ReadFile("../docs/tuning.md")
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(text), "## Every setting, old and new")
	require.True(t, ok)
	known := map[string]bool{}
	for _, v := range configs.Variables() {
		known[v.Path] = true
		require.Contains(t, table, "| `"+v.Path+"` |")
	}
	for _, m := range regexp.MustCompile("(?m)^\\|[^|]*\\| `([^`]+)` \\|").FindAllStringSubmatch(table, -1) {
		require.True(t, known[m[1]], "%s is in the table but no setting", m[1])
	}
	for _, old := range []string{
		"CUDA_VISIBLE_DEVICES", "MODEL_PATH", "SUPPRESS_TOKENS", "MAX_SLICE_NUMS", "MAX_INP_LENGTH", "MAX_NEW_TOKENS",
		"CAPTURE_FPS", "FRAMES_PER_INFERENCE", "FRAME_STRIDE", "WINDOW_SIZE", "CHANGE_THRESHOLD", "INFERENCE_INTERVAL",
		"TTS_MAX_NEW_TOKENS", "TTS_PAUSE_AFTER", "COMMENTATOR_PROMPT", "SERVER_HOST", "SERVER_PORT", "FRAME_JPEG_QUALITY",
		"MJPEG_FPS", "STREAM_DELAY_INIT", "STREAM_DELAY_EMA_ALPHA", "ENABLE_TTS", "TTS_MODEL_DIR", "REF_AUDIO_PATH",
		"TTS_FLOAT16", "LIVEKIT_ENABLED", "LIVEKIT_URL", "LIVEKIT_API_KEY", "LIVEKIT_API_SECRET", "RECONNECT_DELAY",
		"MAX_RECONNECT_DELAY",
	} {
		require.Regexp(t, `(?m)^\|[^|]*\b`+old+`\b[^|]*\| `+"`", table)
	}
}

// TestDefaultFileNamesEveryPreset: the comment of "preset" has each of the presets.
func TestDefaultFileNamesEveryPreset(t *testing.T) {
	text, err := os.ReadFile("default.yaml")
	require.NoError(t, err)
	_, comment, _ := strings.Cut(string(text), "# A linked set of sampling and pacing settings")
	comment, _, ok := strings.Cut(comment, "\npreset:")
	require.True(t, ok)
	files, err := filepath.Glob("presets/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		require.Contains(t, comment, strings.TrimSuffix(filepath.Base(f), ".yaml"))
	}
}

func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob("testdata/*.bad.yaml")
	require.NoError(f, err)
	for _, path := range append(files, "default.yaml", "presets/owl.yaml") {
		text, err := os.ReadFile(path)
		require.NoError(f, err)
		f.Add(text, "TOUCHLINE_MEDIA_CAPTURE_FPS", "5")
	}
	f.Add([]byte("&a [*a, *a]"), "TOUCHLINE_X", "y")
	f.Add([]byte("? [a]\n: b"), "LIVEKIT_URL", "::")
	path := filepath.Join(f.TempDir(), "fuzz.yaml")
	f.Fuzz(func(t *testing.T, text []byte, name, value string) {
		require.NoError(t, os.WriteFile(path, text, 0o600))
		c, err := configs.Load(path, []string{name + "=" + value})
		var bad *configs.Error
		if errors.As(err, &bad) {
			require.NotEmpty(t, bad.Problems)
			require.NotEmpty(t, bad.Error())
			return
		}
		if err != nil || name == configs.FileVariable {
			return
		}
		require.NoError(t, c.Validate(), "what was loaded is right")
		var out bytes.Buffer
		require.NoError(t, c.Print(&out))
	})
}

// TestSuggestions: each built-in profile has a suggestion in each language that the prompt knows.
func TestSuggestions(t *testing.T) {
	t.Parallel()
	for _, p := range configs.Default().Profiles {
		require.Len(t, p.Suggestions, 9, p.Name)
		for _, tag := range []string{"zh", "es", "fr", "de", "it", "pt", "nl", "ja", "ko"} {
			require.NotEmpty(t, p.Suggestions[tag], "%s %s", p.Name, tag)
		}
	}
}
