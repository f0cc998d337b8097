// Package configs assembles the settings of the program from the defaults, a file,
// presets and the environment.
//
// It owns the layout of the file, the names of the environment variables, the
// presets, the prompt profiles and the rules between settings of several packages.
// Each package owns its Config with defaults and Validate. A loaded Config is
// read-only; its parts are passed down.
//
// The file is read from its syntax tree instead of by the strict decoding of
// go-yaml, which stops at the first error, reads "448" and 448.5 as 448, and prints
// neighbouring lines, which may contain secrets. This package reports all wrong
// settings at once, each with its position and a suggestion, and keeps the origin
// of each value for later rules and for Print.
package configs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"touchline/agent/alert"
	"touchline/agent/audioapi"
	"touchline/agent/bot"
	"touchline/agent/camera"
	"touchline/agent/console"
	"touchline/agent/history"
	"touchline/agent/mqtt"
	"touchline/agent/prompt"
	"touchline/agent/region"
	"touchline/agent/room"
	"touchline/agent/room/conn"
	"touchline/agent/room/control"
	"touchline/agent/settings"
	"touchline/agent/state"
	"touchline/agent/webhook"
	"touchline/agent/whep"
	"touchline/agent/worker"
	"touchline/configs/profiles"
	"touchline/inference"
	"touchline/inference/minicpmo"
	"touchline/inference/remote"
	"touchline/inference/sight"
	"touchline/internal/check"
	"touchline/internal/redact"
	"touchline/media"
	"touchline/media/signaling"
	"touchline/pacing"
)

// Prefix is the prefix of all environment variables.
const Prefix = "TOUCHLINE_"

// FileVariable is the environment variable with the default path of the file.
const FileVariable = Prefix + "CONFIG"

// Config holds all settings of the program. It is read-only once loaded.
type Config struct {
	// Preset names the linked set of sampling and pacing settings: auto, sentry,
	// sniper, owl or beast.
	Preset string `yaml:"preset" env:"PRESET"`
	// Detail names the linked set of model sizes (small, medium, large); "" sets none.
	Detail string `yaml:"detail" env:"DETAIL"`
	// ProfileFiles lists files or folders of additional prompt profiles.
	ProfileFiles []string `yaml:"profile_files" env:"PROFILE_FILES"`
	// LogLevel is trace, debug, info, warn or error.
	LogLevel string `yaml:"log_level" env:"LOG_LEVEL"`

	Media     media.Config  `yaml:"media" envPrefix:"MEDIA_"`
	Pacing    pacing.Config `yaml:"pacing" envPrefix:"PACING_"`
	Inference Inference     `yaml:"inference" envPrefix:"INFERENCE_"`
	Agent     Agent         `yaml:"agent" envPrefix:"AGENT_"`
	// Sources sets the cameras and senders that the program connects to a room.
	Sources camera.Config `yaml:"sources" envPrefix:"SOURCES_"`

	// Profiles holds the built-in prompt profiles and the profiles of ProfileFiles.
	Profiles []prompt.Profile `yaml:"-"`

	// from is the origin of each setting that is not the default, for Print.
	from map[string]string
}

// Inference is the section "inference" of the file: the settings of all engines and of single engines.
type Inference struct {
	inference.Config `yaml:",inline"`

	// Remote sets the OpenAI-compatible server.
	Remote remote.Config `yaml:"remote" envPrefix:"REMOTE_"`
	// MiniCPM sets the built-in model.
	MiniCPM minicpmo.Config `yaml:"minicpmo" envPrefix:"MINICPMO_"`
	// Sight sets the engine that finds people, vehicles, animals and text.
	Sight sight.Config `yaml:"sight" envPrefix:"SIGHT_"`

	// Auto is the engine that "auto" stands for here, which the program finds out.
	Auto bot.Auto `yaml:"-"`
}

// Agent is the section "agent" of the file: the commentator, and the adapters
// that connect it.
type Agent struct {
	settings.Config `yaml:",inline"`

	// E2EEKey holds the keys of end-to-end encryption: one for all rooms, or ROOM=KEY for each, separated by commas.
	E2EEKey redact.Secret `yaml:"-" env:"E2EE_KEY"`
	// State sets where changes of a room are stored.
	State state.Config `yaml:"state" envPrefix:"STATE_"`
	// History sets the stored records of a room.
	History history.Config `yaml:"history" envPrefix:"HISTORY_"`
	// Webhook sets which URLs receive events.
	Webhook webhook.Config `yaml:"webhook" envPrefix:"WEBHOOK_"`
	// MQTT sets the broker that receives alerts.
	MQTT mqtt.Config `yaml:"mqtt" envPrefix:"MQTT_"`
	// Alert lists the alert rules of each room.
	Alert alert.Config `yaml:"alert" envPrefix:"ALERT_"`
	// Regions lists the privacy masks, zones and lines of each room.
	Regions region.Config `yaml:"regions" envPrefix:"REGIONS_"`
	// LiveKit sets the server and the room.
	LiveKit room.Config `yaml:"livekit" envPrefix:"LIVEKIT_"`
	// Console sets the page and the HTTP API.
	Console Console `yaml:"console" envPrefix:"CONSOLE_"`
	// Control sets the permissions of participants to steer.
	Control control.Config `yaml:"control" envPrefix:"CONTROL_"`
	// Worker sets `touchline agent`, which serves many rooms.
	Worker worker.Config `yaml:"worker" envPrefix:"WORKER_"`
}

// Console is the section "agent.console": the page and its media servers.
type Console struct {
	console.Config `yaml:",inline"`

	// WHEP sets the players at /whep/ROOM, which need no LiveKit client.
	WHEP whep.Config `yaml:"whep" envPrefix:"WHEP_"`
	// Transcription sets the limits of transcription as a service.
	Transcription audioapi.Config `yaml:"transcription" envPrefix:"TRANSCRIPTION_"`
	// ICE lists the STUN and TURN servers of WHIP senders and WHEP players.
	ICE signaling.ICEConfig `yaml:"ice" envPrefix:"ICE_"`
}

// Default returns the default settings: the sniper preset, and the engine auto.
// default.yaml documents them.
func Default() Config {
	builtIn, err := profiles.BuiltIn()
	if err != nil {
		builtIn = nil // cannot happen: a test loads every built-in profile
	}
	return Config{
		Preset:   "sniper",
		LogLevel: "info",
		Media:    media.DefaultConfig(),
		Pacing:   pacing.DefaultConfig(),
		Inference: Inference{
			Config: inference.DefaultConfig(), Remote: remote.DefaultConfig(), MiniCPM: minicpmo.DefaultConfig(),
			Sight: sight.DefaultConfig(),
		},
		Agent: Agent{
			Config: settings.DefaultConfig(), History: history.DefaultConfig(), Webhook: webhook.DefaultConfig(),
			MQTT: mqtt.DefaultConfig(), LiveKit: room.DefaultConfig(),
			Console: Console{Config: console.DefaultConfig(), WHEP: whep.DefaultConfig(), Transcription: audioapi.DefaultConfig()},
			Worker:  worker.DefaultConfig(),
		},
		Sources:  camera.DefaultConfig(),
		Profiles: builtIn,
	}
}

// Load assembles and validates the settings. Later sources override earlier ones:
// Default, the YAML file at path, the preset, the environment ("NAME=value"
// strings as in os.Environ).
//
// A file overrides the preset that it names, so it can start from a preset and
// change a part. TOUCHLINE_PRESET overrides the file. The same applies to Detail.
//
// An empty path selects the file of TOUCHLINE_CONFIG, or none. An empty variable
// counts as unset. The returned *Error holds all wrong settings.
func Load(path string, environ []string) (Config, error) {
	env := environment(environ)
	if path == "" {
		path = env[FileVariable]
	}
	g := schemaOf(Config{})
	l := &loader{cfg: Default(), schema: g, leaves: g.flat(), origins: map[string]origin{}}
	var doc document
	if path != "" {
		text, err := readFile(path)
		if err != nil {
			return Config{}, fmt.Errorf("read settings: %w", err)
		}
		doc = l.parse(path, text)
	}
	l.presets(doc, env, false)
	l.apply(doc, "")
	l.presets(doc, env, true)
	l.environment(env)
	if len(l.bad) == 0 {
		l.profiles(path)
	}
	l.validate()
	l.cfg.Agent.LiveKit.E2EE = l.cfg.Agent.E2EEKey
	if len(l.bad) > 0 {
		slices.SortStableFunc(l.bad, func(a, b Problem) int { return a.Line - b.Line })
		return Config{}, &Error{Problems: l.bad}
	}
	return l.cfg, nil
}

// maxFile is the maximum size of a settings file, a hundred times the size of default.yaml.
const maxFile = 1 << 20

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s: the file has more than %d bytes (%d)", path, maxFile, info.Size())
	}
	return os.ReadFile(path)
}

// loader collects one Config and its problems.
type loader struct {
	cfg     Config
	schema  *group
	leaves  map[string]*leaf
	origins map[string]origin
	bad     []Problem
}

// origin is the source of a setting's value.
type origin struct {
	name string // "touchline.yaml line 3", "preset owl", an environment variable
	Position
}

// presets applies the presets of the environment or of the file. The
// environment takes precedence.
func (l *loader) presets(doc document, env map[string]string, fromEnv bool) {
	for _, set := range presetSets() {
		name := env[set.variable]
		if (name != "") != fromEnv {
			continue
		}
		if !fromEnv {
			name = doc.text(set.key)
		}
		if text, err := set.read(name); err == nil { // validate reports an unknown name
			layer := set.key + " " + name
			l.apply(l.parse(layer, text), layer)
		}
	}
}

// profiles loads the profile files. Paths are relative to the settings file that names them.
func (l *loader) profiles(path string) {
	base := ""
	if l.origins["profile_files"].File != "" {
		base = filepath.Dir(path)
	}
	for _, name := range l.cfg.ProfileFiles {
		if !filepath.IsAbs(name) {
			name = filepath.Join(base, name)
		}
		extra, err := readProfiles(name)
		if err != nil {
			l.problem("profile_files", err.Error())
			continue
		}
		for _, p := range extra {
			if i := l.cfg.profile(p.Name); i >= 0 {
				l.cfg.Profiles[i] = p
			} else {
				l.cfg.Profiles = append(l.cfg.Profiles, p)
			}
		}
	}
}

// validate checks the rules and adds the origin of the value to each problem.
func (l *loader) validate() {
	unread := map[string]bool{}
	for _, p := range l.bad {
		unread[p.Path] = true
	}
	for _, err := range check.Split(l.cfg.Validate()) {
		path, rule, ok := strings.Cut(err.Error(), ": ")
		if !ok {
			path, rule = "", err.Error()
		}
		// A setting with an unreadable value has its default here; it is reported already.
		if !unread[path] {
			l.problem(path, rule)
		}
	}
	l.cfg.from = map[string]string{}
	for path, o := range l.origins {
		l.cfg.from[path] = o.name
	}
}

func (l *loader) problem(path, message string) {
	o, ok := l.origins[path]
	if !ok { // an item of a list without positions, or a missing field of an item
		list, _, _ := strings.Cut(path, "[")
		o = l.origins[list]
	}
	p := Problem{Path: path, Message: message, Position: o.Position}
	if o.File == "" {
		p.Source = o.name
	}
	l.bad = append(l.bad, p)
}

// Validate checks all settings and the rules between them, and returns all
// violations, joined: "path: must be rule, is value" with the full YAML path.
// Profiles must be loaded.
func (c Config) Validate() error {
	var s check.Settings
	for _, set := range presetSets() {
		name := c.Preset
		if set.key == "detail" {
			name = c.Detail
		}
		if _, err := set.read(name); err != nil && name != "" {
			s.That(false, set.key, "one of "+strings.Join(set.names(), ", "), strconv.Quote(name))
		}
	}
	s.That(slices.Contains([]string{"trace", "debug", "info", "warn", "error"}, c.LogLevel), "log_level",
		"trace, debug, info, warn or error", strconv.Quote(c.LogLevel))
	s.Part("media", c.Media.Validate())
	s.Part("pacing", c.Pacing.Validate())
	s.Part("inference", c.Inference.Validate())
	s.Part("agent", c.Agent.Validate())
	s.Part("sources", c.Sources.Validate())
	if err := s.Err(); err != nil {
		return err // The rules between settings require valid settings.
	}

	if c.profile(c.Agent.Profile) < 0 {
		names := make([]string, len(c.Profiles))
		for i, p := range c.Profiles {
			names[i] = p.Name
		}
		s.That(false, "agent.profile", "one of "+strings.Join(names, ", "), strconv.Quote(c.Agent.Profile))
	}
	needed := (c.Agent.Frames-1)*c.Agent.Stride + 1
	s.That(needed <= c.Media.WindowSize, "media.window_size", fmt.Sprintf(
		"at least %d for %d pictures (frames_per_look) with stride %d", needed, c.Agent.Frames, c.Agent.Stride),
		c.Media.WindowSize)
	held := func(name string, delay time.Duration) {
		s.That(!c.Media.Relay || c.Media.RelayMaxSeconds >= delay.Seconds(), "media.relay_max_seconds",
			fmt.Sprintf("at least pacing.%s (%v), to hold the picture that long", name, delay), c.Media.RelayMaxSeconds)
	}
	held("max_delay", c.Pacing.MaxDelay)
	held("fixed_delay", c.Pacing.FixedDelay)
	tokens := c.cycleTokens() + promptTokens
	s.That(tokens <= c.Inference.MaxInputTokens, "inference.max_input_tokens", fmt.Sprintf(
		"at least %d for %d pictures and their prompt", tokens, c.Agent.Frames), c.Inference.MaxInputTokens)
	return s.Err()
}

// Validate checks every setting of the section and the rules between them.
func (c Inference) Validate() error {
	var s check.Settings
	s.Add(c.Config.Validate())
	s.Part("remote", c.Remote.Validate())
	s.That(c.Remote.URL != "" || c.Engine != "remote", "remote.url",
		"the address of the server up to /v1 when the engine is remote", `""`)
	s.That(c.MiniCPM.Path != "" || c.Engine != "minicpmo", "minicpmo.path",
		"the folder of the model bundle when the engine is minicpmo", `""`)
	s.Part("minicpmo", c.MiniCPM.Validate())
	s.Part("sight", c.Sight.Validate())
	return s.Err()
}

// Validate checks every setting of the section.
func (c Agent) Validate() error {
	var s check.Settings
	s.Add(c.Config.Validate())
	if _, err := conn.RoomKeys(c.E2EEKey); err != nil {
		s.Add(fmt.Errorf("e2ee_key: %w", err))
	}
	s.Part("history", c.History.Validate())
	s.Part("webhook", c.Webhook.Validate())
	s.Part("mqtt", c.MQTT.Validate())
	s.Part("alert", c.Alert.Validate())
	s.Part("regions", c.Regions.Validate())
	s.Part("livekit", c.LiveKit.Validate())
	s.Part("console", c.Console.Validate())
	s.Part("control", c.Control.Validate())
	s.Part("worker", c.Worker.Validate())
	return s.Err()
}

// Validate checks every setting of the section.
func (c Console) Validate() error {
	var s check.Settings
	s.Add(c.Config.Validate())
	s.Part("whep", c.WHEP.Validate())
	s.Part("transcription", c.Transcription.Validate())
	s.Part("ice", c.ICE.Validate())
	return s.Err()
}

// profile returns the index of a profile, -1 for an unknown name.
func (c Config) profile(name string) int {
	return slices.IndexFunc(c.Profiles, func(p prompt.Profile) bool { return p.Name == name })
}
