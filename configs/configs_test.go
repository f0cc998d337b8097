package configs_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"touchline/agent/webhook"
	"touchline/internal/redact"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/configs"
	"touchline/inference"
)

// settings leaves out where they came from.
func settings(c configs.Config) []any {
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
	require.Equal(t, settings(configs.Default()), settings(c))
	require.Equal(t, "sniper", c.Preset)
	require.InDelta(t, 5.0, c.Media.CaptureFPS, 0)
	require.Equal(t, "scene", c.Inference.Engine)
	require.Equal(t, "127.0.0.1:8199", c.Agent.Console.Listen)
}

func TestDefaultFileIsTheDefault(t *testing.T) {
	c, err := configs.Load("default.yaml", nil)
	require.NoError(t, err)
	want := configs.Default()
	// A list that is empty and one that is nil are the same setting.
	require.Equal(t, settings(want), settings(c))
}

// TestDefaultFileDocumentsEveryKey wants each key in default.yaml, with a comment right above it.
func TestDefaultFileDocumentsEveryKey(t *testing.T) {
	key := regexp.MustCompile(`^( *)([a-z_]+):`)
	var path []string
	seen := map[string]bool{}
	lines := strings.Split(string(configs.DefaultFile()), "\n")
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
		delete(seen, v.Path)
	}
	require.Len(t, seen, 18, "only groups are left: %v", seen)
}

func TestBadFiles(t *testing.T) {
	tests := []struct {
		file string
		want []string // every line must be in the message
	}{
		{"unknown_field", []string{
			`unknown_field.bad.yaml [3:3] media.long_sid: unknown field "long_sid", did you mean "long_side"?`,
			">  3 |   long_sid: 448\n         ^",
		}},
		{"unknown_group", []string{`[1:1] medea: unknown field "medea", did you mean "media"?`}},
		{"unknown_nested", []string{`[3:5] inference.remote.uri: unknown field "uri", did you mean "url"?`}},
		{"duplicate_key", []string{`[2:1] expected YAML: mapping key "log_level" already defined at [1:1]`}},
		{"syntax", []string{"expected YAML: ", ">  2 |   capture_fps: [5"}},
		{"tab", []string{"expected YAML: "}},
		{"two_documents", []string{"expected one YAML document, the file has 2"}},
		{"not_a_mapping", []string{"must be settings by name, is a list"}},
		{"group_is_scalar", []string{"media: must be settings by name, is 5"}},
		{"scalar_is_group", []string{"log_level: must be text, is a group of settings"}},
		{"merge_key", []string{`[4:3] pacing: merge keys ("<<") are not read: write the settings out`}},
		{"alias_loop", []string{
			"media.capture_fps: must be a number, is empty",
			"[1:21] agent.profile: must be text, is a group of settings",
			`agent.livekit.profile: unknown field "profile"`,
		}},
		{"secret_in_file", []string{
			`[3:5] agent.livekit.api_secret: "api_secret" is a secret: it is read from the environment only ` +
				"(TOUCHLINE_AGENT_LIVEKIT_API_SECRET)",
		}},
		{"secret_key_typo", []string{`agent.livekit.api_secret: "api_secrt" is a secret`}},
		{"type_bool", []string{`media.relay: must be true or false, is "maybe"`}},
		{"type_int", []string{`media.long_side: must be a whole number, is 448.5`}},
		{"type_int_quoted", []string{`media.long_side: must be a whole number, is "448"`}},
		{"type_int_huge", []string{`media.long_side: must be a whole number, is `}},
		{"type_float", []string{`media.capture_fps: must be a number, is "fast"`}},
		{"type_nan", []string{`media.capture_fps: must be a number, is .nan`}},
		{"type_duration", []string{`pacing.pause_after: must be a time with its unit, such as 500ms, 4s or 10m, is 5`}},
		{"type_duration_word", []string{`pacing.pause_after: must be a time with its unit, such as 500ms, 4s or 10m, is "soon"`}},
		{"type_list", []string{
			`[1:1] control: unknown field "control"`,
			`[2:31] agent.control.identities: must be a list of texts, is "anna"`,
		}},
		{"type_int_list", []string{`inference.minicpmo.suppress_tokens: must be a list of whole numbers, is a list`}},
		{"type_text", []string{`agent.livekit.room: must be text, is a list`}},
		{"empty_value", []string{`[2:3] media.capture_fps: must be a number, is empty`}},
		{"everything", []string{
			"10 settings are wrong:",
			`everything.bad.yaml [1:1] preset: must be one of beast, owl, sentry, sniper, is "eagle"`,
			`[2:1] log_level: must be trace, debug, info, warn or error, is "loud"`,
			`[4:3] media.capture_fps: must be between 0.1 and 30 pictures a second, is 0`,
			`[5:14] media.long_side: must be a whole number, is "x"`,
			`[6:3] media.strid: unknown field "strid"` + "\n>  6 |   strid: 2\n         ^",
			`[7:10] pacing.quantile: must be at least 0.5 and under 1, is 2`,
			`[9:3] inference.engine: must be scene, remote or minicpmo, is "gpt"`,
			`[10:12] inference.remote.retries: must be between 0 and 10, is 99`,
			`[12:3] agent.frames_per_look: must be between 1 and 64 pictures, is 0`,
			`[13:13] agent.console.listen: must be host:port, such as 127.0.0.1:8199, is "nowhere"`,
		}},

		{"preset", []string{`preset: must be one of beast, owl, sentry, sniper, is "eagle"`}},
		{"detail", []string{`detail: must be one of large, medium, small, is "huge"`}},
		{"log_level", []string{`log_level: must be trace, debug, info, warn or error, is "loud"`}},
		{"profile_files", []string{"[1:1] profile_files: ", "missing.yaml: no such file"}},
		{"profile_files_bad", []string{"bad_profile.txt: label: must be 1 to 40 characters, is 0"}},
		{"media.watch.source", []string{`camera, screen_share or "" for either, is "microphone"`}},
		{"media.capture_fps", []string{"between 0.1 and 30 pictures a second, is 61"}},
		{"media.long_side", []string{"between 64 and 4096 pixels, is 10"}},
		{"media.window_size", []string{"between 1 and 1024 pictures, is 0"}},
		{"media.window_size_cross", []string{
			"media.window_size: must be at least 10, to hold 4 pictures (frames_per_look) with stride 3, is 7",
		}},
		{"media.relay_max_bytes", []string{"between 1048576 (1 MiB) and 4294967296 (4 GiB) bytes, is 10"}},
		{"media.relay_max_seconds", []string{"between 1 and 600 seconds, is 0"}},
		{"media.relay_max_seconds_cross", []string{"at least pacing.max_delay (15s)", "is 10"}},
		{"media.duck_db", []string{"between 0 and 60 dB, is 61"}},
		{"media.jpeg_quality", []string{"between 1 and 100, is 101"}},
		{"media.mjpeg_fps", []string{"over 0 and at most 60 pictures a second, is -1"}},
		{"pacing.initial_delay", []string{"0s for no delay at all, or between min_delay (0s) and max_delay (15s), is 20s"}},
		{"pacing.fixed_delay", []string{"0s to follow what is measured, or at most 30s, is 31s"}},
		{"pacing.min_delay", []string{"between 0s and max_delay (15s), is 16s"}},
		{"pacing.max_delay", []string{"between 100ms and 1m, is 2m0s"}},
		{"pacing.quantile", []string{"at least 0.5 and under 1, is 1"}},
		{"pacing.margin", []string{"between 0s and 10s, is -1s"}},
		{"pacing.slew", []string{"over 0 and at most 0.1, is 0.5"}},
		{"pacing.pause_after", []string{"between 0s and 1m, is 2m0s"}},
		{"pacing.min_interval", []string{"between 0s and 1m, is -1ms"}},
		{"inference.engine", []string{`scene, remote or minicpmo, is "gpt"`}},
		{"inference.max_tokens", []string{"between 1 and 8192 tokens, is 0"}},
		{"inference.max_input_tokens", []string{"between 256 and 1048576 tokens, is 100"}},
		{"inference.max_input_tokens_cross", []string{
			"inference.max_input_tokens: must be at least 1816 for 4 pictures and the words around them, is 1500",
		}},
		{"inference.max_slices", []string{"between 1 and 9, is 10"}},
		{"inference.idle_unload", []string{"0s to keep the model, or between 1s and 24h, is 1ms"}},
		{"inference.remote.url_missing", []string{
			`inference.remote.url: must be the address of the server up to /v1 when the engine is remote, is ""`,
		}},
		{"inference.remote.url", []string{`such as http://127.0.0.1:8000/v1, is "localhost:8000"`}},
		{"inference.remote.url_password", []string{"must be an address without name and password in it"}},
		{"inference.remote.first_token_timeout", []string{"between 100ms and 10m, is 1ms"}},
		{"inference.remote.idle_timeout", []string{"between 100ms and 10m, is 11m0s"}},
		{"inference.remote.retries", []string{"between 0 and 10, is -1"}},
		{"inference.remote.jpeg_quality", []string{"between 1 and 100, is 0"}},
		{"inference.remote.parallel", []string{"between 1 and 64, is 0"}},
		{"inference.voice.program", []string{`auto, flite or espeak-ng, is "festival"`}},
		{"inference.voice.language", []string{`a language tag such as en, nl or pt-BR, is "?"`}},
		{"inference.voice.max_tokens", []string{"between 1 and 8192 tokens, is 9000"}},
		{"inference.minicpmo.path", []string{`the folder of the model bundle when the engine is minicpmo, is ""`}},
		{"inference.minicpmo.device", []string{`cuda or cpu, is "tpu"`}},
		{"inference.minicpmo.gpu", []string{"between 0 and 63, is -1"}},
		{"inference.minicpmo.weights", []string{`auto, int4 or fp16, is "int3"`}},
		{"inference.minicpmo.weights_cross", []string{`auto, int4 or fp32 when the device is cpu, is "fp16"`}},
		{"inference.minicpmo.slots", []string{"1, 2, 4, 8, 16, 32, 64, 128 or 256, is 48"}},
		{"inference.minicpmo.max_len", []string{"0, or between 128 and 131072 tokens, is 100"}},
		{"inference.minicpmo.queue", []string{"between 1 and 4096, is 0"}},
		{"inference.minicpmo.temperature", []string{"0, or between 0.01 and 10, is -1"}},
		{"inference.minicpmo.top_k", []string{"between 0 and 1048576, is -1"}},
		{"inference.minicpmo.top_p", []string{"above 0 and at most 1, is 0"}},
		{"inference.minicpmo.repetition_penalty", []string{"between 0.1 and 10, is 0"}},
		{"inference.minicpmo.seed", []string{"0 or more, is -1"}},
		{"inference.minicpmo.vision_cache", []string{"between 0 and 1048576, is -1"}},
		{"inference.minicpmo.suppress_tokens", []string{"token ids between 0 and 1048576, is -5"}},
		{"inference.minicpmo.vocoder", []string{
			"[3:5] inference.minicpmo.vocoder: this setting was removed: the model has no voice of its own; delete the line " +
				"and see inference.voice",
		}},
		{"agent.profile", []string{`one of default, sports, security, nature, descriptive, is "opera"`}},
		{"agent.profile_empty", []string{`the name of a profile, is ""`}},
		{"agent.instruction", []string{"at most 2000 characters, is 2005"}},
		{"agent.frames_per_look", []string{"between 1 and 64 pictures, is 65"}},
		{"agent.cycle_timeout", []string{"between 1s and 1h, is 500ms"}},
		{"agent.frame_stride", []string{"between 1 and 64, is 0"}},
		{"agent.change_threshold", []string{"between 0 and 255, is 256"}},
		{"agent.history.comments", []string{"between 0 and 1000 comments, is -1"}},
		{"agent.history.store", []string{`file, sqlite or "" for none, is "disk"`}},
		{"agent.history.path", []string{`the folder of the history when store is file, is ""`}},
		{"agent.history.max_bytes", []string{"between 1048576 (1 MiB) and 1099511627776 (1 TiB) bytes, is 2199023255552"}},
		{"agent.history.max_age", []string{"0s for no limit, or at least 1m, is 1s"}},
		{"agent.webhook.urls", []string{
			`[3:37] agent.webhook.urls[1]: must be an http:// or https:// address with a host, without name and password in it; number 2 is not`,
			`>  3 |     urls: [http://127.0.0.1:9/hook, "ftp://host/"]`,
		}},
		{"agent.webhook.urls_password", []string{`number 1 is not`}},
		{"agent.webhook.urls_item_address", []string{`[5:9] agent.webhook.urls[1]: must be an http:// or https:// address`, `number 2 is not`}},
		{"agent.webhook.urls_item_unknown", []string{
			`[4:9] agent.webhook.urls[0].event: unknown field "event", did you mean "events"?` + "\n>  4 |         event: [error]",
		}},
		{"agent.webhook.urls_item_kind", []string{`[4:17] agent.webhook.urls[0].events: must be a list of texts, is "error"`}},
		{"agent.webhook.urls_item_list", []string{`agent.webhook.urls[1]: must be text or a group of settings, is a list`}},
		{"agent.webhook.urls_item_none", []string{`agent.webhook.urls[0]: must be text or a group of settings, is empty`}},
		{"agent.webhook.urls_item_events", []string{
			`[6:9] agent.webhook.urls[1].events: must be of comment_finished, state_changed, error, is "goal"`, ">  6 |         events: [goal]",
		}},
		{"agent.webhook.urls_item_key", []string{
			`[5:9] agent.webhook.urls[0].signing_key: must be a key of TOUCHLINE_AGENT_WEBHOOK_KEYS or TOUCHLINE_AGENT_WEBHOOK_API_KEY, is "ops"`,
		}},
		{"agent.webhook.urls_item_secret", []string{`agent.webhook.urls[0].api_secret: unknown field "api_secret"`}},
		{"agent.webhook.events", []string{`of comment_finished, state_changed, error, is "goal"`}},
		{"agent.webhook.events_empty", []string{`one or more of comment_finished, state_changed, error when there are urls without events of their own, is []`}},
		{"agent.webhook.timeout", []string{"between 100ms and 1m, is 1ms"}},
		{"agent.webhook.retries", []string{"between 0 and 20, is 21"}},
		{"agent.livekit.url", []string{`ws:// or wss:// with a host, is "rtsp://host"`}},
		{"agent.livekit.url_password", []string{"must be an address without name and password in it"}},
		{"agent.livekit.room", []string{`1 to 128 printable characters, is ""`}},
		{"agent.livekit.identity", []string{`1 to 128 printable characters, is " a"`}},
		{"agent.livekit.name", []string{`at most 128 printable characters, is "a\n"`}},
		{"agent.livekit.reconnect_delay", []string{"between 10ms and max_reconnect_delay (15s), is 1m0s"}},
		{"agent.livekit.max_reconnect_delay", []string{"at most 10m, is 1h0m0s"}},
		{"agent.console.listen", []string{`host:port, such as 127.0.0.1:8199, is "8199"`}},
		{"agent.console.tls_key", []string{`set together with tls_cert, is ""`}},
		{"agent.console.tls_self_signed", []string{"false when tls_cert names a certificate, is true"}},
		{"agent.console.allowed_hosts", []string{`host names without scheme, path or wildcard, is "http://a"`}},
		{"agent.console.whep.udp_port", []string{`between 0 and 65535, is 65536`}},
		{"agent.console.whep.external_ips", []string{`IP addresses, is "router"`}},
		{"agent.console.whep.max", []string{`between 1 and 1000 players, is 0`}},
		{"agent.console.ice.servers", []string{`stun:HOST[:PORT], stuns:, turn: or turns:, without a user name in it, is "https://turn.example.org"`}},
		{"agent.console.ice.username", []string{`set, and TOUCHLINE_AGENT_CONSOLE_ICE_CREDENTIAL too, when a server is a TURN server, is ""`}},
		{"agent.console.keep_alive", []string{"between 1s and 5m, is 0s"}},
		{"agent.control.identities", []string{`without empty names, is [""]`}},
		{"sources.allow", []string{`a list of public, private or none; loopback, link-local and files are allowed on the command line only, is "files"`}},
		{"sources.transcode", []string{`auto, off or always, is "never"`}},
		{"sources.max", []string{`between 1 and 64 sources, is 0`}},
		{"sources.whip.udp_port", []string{`between 0 and 65535, is 65536`}},
		{"sources.whip.external_ips", []string{`IP addresses, is "router"`}},
		{"agent.control.role_value", []string{`set together with role_attribute, is ""`}},
		{"agent.worker.agent_name", []string{`at most 128 printable characters, is " x"`}},
		{"agent.worker.type", []string{`room, publisher or participant, is "agent"`}},
		{"agent.worker.slots", []string{"between 0 (four for each core) and 10000, is -1"}},
		{"agent.worker.drain_timeout", []string{"between 0s and 24h, is 25h0m0s"}},
		{"agent.worker.full_cpu", []string{"between 0 (does not look) and 1, is 1.5"}},
		{"agent.worker.http", []string{`[host]:port, such as :8081, or off, is "8081"`}},
		{"agent.worker.console", []string{`[host]:port, such as 127.0.0.1:8199, or off, is "8199"`}},
		{"agent.worker.deployment", []string{`at most 64 bytes without underscores and blanks, is "a_b"`}},
	}
	tried := map[string]bool{}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			path := filepath.Join("testdata", tt.file+".bad.yaml")
			tried[path] = true
			_, err := configs.Load(path, nil)
			var bad *configs.Error
			require.ErrorAs(t, err, &bad)
			for _, want := range tt.want {
				require.Contains(t, err.Error(), want)
			}
			require.NotContains(t, err.Error(), "hunter2", "a secret was printed")
			require.NotEmpty(t, bad.Problems)
			if setting, ok := strings.CutSuffix(tt.file, "_cross"); ok || strings.Contains(tt.file, ".") {
				setting = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(setting, "_missing"), "_password"), "_empty")
				require.Len(t, bad.Problems, 1, "%v", err)
				setting, _, _ = strings.Cut(setting, "_item_")
				path, _, _ := strings.Cut(bad.Problems[0].Path, "[")
				require.Equal(t, setting, path)
			}
		})
	}
	files, err := filepath.Glob("testdata/*.bad.yaml")
	require.NoError(t, err)
	for _, f := range files {
		require.True(t, tried[f], "%s has no row in the table", f)
	}
}

// TestEverySettingHasARule sees that no setting but free text is taken unchecked.
func TestEverySettingHasARule(t *testing.T) {
	free := map[string]string{
		"media.watch.identity":         "any identity",
		"inference.remote.model":       "the server knows its names",
		"inference.voice.name":         "the program knows its voices",
		"inference.minicpmo.runtime":   "a path",
		"agent.console.tls_cert":       "checked through tls_key",
		"agent.control.role_attribute": "checked through role_value",
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

// TestWebhooks: each address may have its own events and key; from the
// environment come addresses alone, and what signs.
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
		{"sentry", 2, 4, 2, 32, 5, time.Second, time.Second, 150, 4, 264, 792},
		{"sniper", 5, 4, 1, 48, 0, time.Second / 2, time.Second / 2, 96, 0.8, 264, 792},
		{"owl", 4, 8, 2, 48, 1, time.Second / 2, time.Second / 2, 120, 4, 528, 1584},
		{"beast", 5, 10, 2, 64, 0, time.Second / 2, 300 * time.Millisecond, 96, 4, 660, 1980},
	}
	require.Len(t, configs.Presets(), len(tests))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inFile, err := load(t, "preset: "+tt.name)
			require.NoError(t, err)
			outside, err := configs.Load("", []string{"TOUCHLINE_PRESET=" + tt.name})
			require.NoError(t, err)
			require.Equal(t, settings(inFile), settings(outside))
			c := outside
			require.InDelta(t, tt.fps, c.Media.CaptureFPS, 0)
			require.Equal(t, tt.frames, c.Agent.Frames)
			require.Equal(t, tt.stride, c.Agent.Stride)
			require.Equal(t, tt.size, c.Media.WindowSize)
			require.InDelta(t, tt.threshold, c.Agent.ChangeThreshold, 0)
			require.Equal(t, tt.interval, c.Pacing.MinInterval)
			require.Equal(t, tt.pause, c.Pacing.PauseAfter)
			require.Equal(t, tt.tokens, c.Inference.Voice.MaxTokens)
			require.InDelta(t, tt.span, c.LookSpan(), 1e-9)
			require.Equal(t, tt.lookTokens, c.LookTokens())
			c.Media.LongSide = 1280
			require.Equal(t, tt.lookLarge, c.LookTokens())
		})
	}
	c, err := configs.Load("", []string{"TOUCHLINE_PRESET=sniper"})
	require.NoError(t, err)
	require.Equal(t, settings(configs.Default()), settings(c), "sniper is the default")
}

func TestDetails(t *testing.T) {
	for name, want := range map[string][3]int{"small": {1, 4352, 512}, "medium": {2, 8192, 512}, "large": {3, 8192, 512}} {
		c, err := load(t, "detail: "+name)
		require.NoError(t, err)
		require.Equal(t, want, [3]int{c.Inference.MaxSlices, c.Inference.MaxInputTokens, c.Inference.MaxTokens})
	}
	require.Len(t, configs.Details(), 3)
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
			"TOUCHLINE_AGENT_CONSOLE_TOKEN=t",
			func(c configs.Config) any { return c.Agent.Console.Token }, redact.Secret("t"),
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
		"LIVEKIT_URL=ftp://x",
		"LIVEKIT_API_SECRET=hunter2",
	})
	require.Error(t, err)
	text := err.Error()
	for _, want := range []string{
		"10 settings are wrong:",
		`TOUCHLINE_MEDIA_CAPTURE_FPS media.capture_fps: must be a number, is "fast"`,
		`TOUCHLINE_MEDIA_LONG_SIDE media.long_side: must be a whole number, is "1e3"`,
		`TOUCHLINE_MEDIA_RELAY media.relay: must be true or false, is "maybe"`,
		`TOUCHLINE_MEDIA_JPEG_QUALITY media.jpeg_quality: must be between 1 and 100, is 0`,
		`TOUCHLINE_PACING_PAUSE_AFTER pacing.pause_after: must be a time with its unit, such as 500ms, 4s or 10m, is "5"`,
		`TOUCHLINE_PACING_QUANTILE pacing.quantile: must be at least 0.5 and under 1, is NaN`,
		`TOUCHLINE_INFERENCE_MINICPMO_SUPPRESS_TOKENS inference.minicpmo.suppress_tokens: must be a list of whole numbers, is "a"`,
		`TOUCHLINE_MEDIA_CAPTUREFPS no setting has this variable, did you mean TOUCHLINE_MEDIA_CAPTURE_FPS?`,
		`LIVEKIT_URL agent.livekit.url: must be ws:// or wss:// with a host, is "ftp://x"`,
		`agent.livekit.api_key: must be set when the other half of the pair is`,
	} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, "hunter2")
}

// TestVariableNames: the name of a variable follows from the path, with no exception.
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
	require.ErrorContains(t, err, "expected a file")
	big := filepath.Join(t.TempDir(), "big.yaml")
	require.NoError(t, os.WriteFile(big, bytes.Repeat([]byte("#\n"), 1<<20), 0o600))
	_, err = configs.Load(big, nil)
	require.ErrorContains(t, err, "expected at most 1048576 bytes")
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
		"LIVEKIT_API_KEY=visible-key", "LIVEKIT_API_SECRET=hunter2", "TOUCHLINE_INFERENCE_REMOTE_API_KEY=hunter3",
		"TOUCHLINE_AGENT_CONSOLE_TOKEN=hunter4", "TOUCHLINE_AGENT_LIVEKIT_TOKEN=hunter5", "TOUCHLINE_LOG_LEVEL=debug",
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
	require.Equal(t, settings(c), settings(again), "what is printed loads to the same")
	for _, s := range []string{fmt.Sprintf("%v %+v %#v", c.Agent.LiveKit, c, c)} {
		require.NotContains(t, s, "hunter")
	}
}

func TestExplain(t *testing.T) {
	c := configs.Default()
	require.Equal(t, []string{
		"a look covers 0.8 s: 4 pictures, every one of 5 a second",
		"its pictures cost at most 264 tokens, of 8192 (inference.max_input_tokens)",
		"a look can be set to cover 9.4 s (media.window_size)",
		"the picture is shown 4s late at first, then as late as comments need, between 0s and 15s",
	}, c.Explain())
	c.Agent.Stride, c.Pacing.InitialDelay = 22, 0
	require.Contains(t, c.Explain()[0], "every 22nd of 5")
	require.Contains(t, c.Explain()[3], "without delay")
	c.Pacing.FixedDelay = time.Second
	require.Contains(t, c.Explain()[3], "shown 1s late, whatever")
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

func TestProfilesOfOnesOwn(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "mine"), os.DirFS("testdata/profiles")))
	path := filepath.Join(dir, "touchline.yaml")
	require.NoError(t, os.WriteFile(path, []byte("profile_files: [mine]\nagent: {profile: pets}\n"), 0o600))
	c, err := configs.Load(path, nil)
	require.NoError(t, err)
	require.Len(t, c.Profiles, 6)
	require.Equal(t, "Our sports", c.Profiles[1].Label, "one's own goes over the built-in one")
	require.Equal(t, agent.Profile{
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
	require.ErrorContains(t, err, "there are none")
}

// TestTuningCoversEverySetting keeps the table of docs/tuning.md complete, and the old settings findable in it.
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
