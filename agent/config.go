package agent

import (
	"time"

	"touchline/inference"
)

// Config sets one bot in one room.
type Config struct {
	// Profile names the prompt profile: default, sports, security, nature, descriptive.
	Profile string `yaml:"profile" env:"PROFILE"`
	// Instruction is the order in force at the start; "" waits for one (idle) unless AutoStart is set.
	Instruction string `yaml:"instruction" env:"INSTRUCTION"`
	// AutoStart comments without an instruction from the start.
	AutoStart bool `yaml:"auto_start" env:"AUTO_START"`
	// Frames and Stride choose the window: Frames pictures, every Stride-th of the sampled ones.
	Frames int `yaml:"frames_per_look" env:"FRAMES_PER_LOOK"`
	Stride int `yaml:"frame_stride" env:"FRAME_STRIDE"`
	// ChangeThreshold skips a look when the scene changed less (0 to 255); 0 never skips.
	ChangeThreshold float64 `yaml:"change_threshold" env:"CHANGE_THRESHOLD"`
	// CutOnInstruction silences the speech under way when a new instruction comes.
	CutOnInstruction bool `yaml:"cut_on_instruction" env:"CUT_ON_INSTRUCTION"`
	// CopyToChat repeats each comment on lk.chat.
	CopyToChat bool `yaml:"copy_to_chat" env:"COPY_TO_CHAT"`
	// History is how many comments a late joiner is shown.
	History int `yaml:"history" env:"HISTORY"`
	// LiveKit says where the room is.
	LiveKit LiveKitConfig `yaml:"livekit" envPrefix:"LIVEKIT_"`
	// Console sets the page and the HTTP API.
	Console ConsoleConfig `yaml:"console" envPrefix:"CONSOLE_"`
	// Control says who may steer from inside the room.
	Control ControlConfig `yaml:"control" envPrefix:"CONTROL_"`
}

// LiveKitConfig says where the room is and how to get in. URL, APIKey and
// APISecret are also read from LIVEKIT_URL, LIVEKIT_API_KEY and LIVEKIT_API_SECRET.
type LiveKitConfig struct {
	URL       string           `yaml:"url" env:"URL"`
	APIKey    string           `yaml:"-" env:"API_KEY"`
	APISecret inference.Secret `yaml:"-" env:"API_SECRET"`
	// Token is a ready access token, instead of key and secret.
	Token inference.Secret `yaml:"-" env:"TOKEN"`
	// Room to join.
	Room string `yaml:"room" env:"ROOM"`
	// Identity and Name of the bot.
	Identity string `yaml:"identity" env:"IDENTITY"`
	Name     string `yaml:"name" env:"NAME"`
}

// ConsoleConfig sets the page and the HTTP API.
type ConsoleConfig struct {
	// Listen is the address of the page and the API.
	Listen string `yaml:"listen" env:"LISTEN"`
	// Token is required from any but a loopback address; made up at start when empty and needed.
	Token inference.Secret `yaml:"-" env:"TOKEN"`
	// TLSCert and TLSKey are files; SelfSigned makes a certificate instead.
	TLSCert    string `yaml:"tls_cert" env:"TLS_CERT"`
	TLSKey     string `yaml:"tls_key" env:"TLS_KEY"`
	SelfSigned bool   `yaml:"tls_self_signed" env:"TLS_SELF_SIGNED"`
	// AllowedHosts are extra names in the Host header, beside loopback ones and the listen address.
	AllowedHosts []string `yaml:"allowed_hosts" env:"ALLOWED_HOSTS"`
	// KeepAlive is the time between comments on a silent SSE stream.
	KeepAlive time.Duration `yaml:"keep_alive" env:"KEEP_ALIVE"`
}

// ControlConfig says who may steer from inside the room (RPC and the data topic touchline.control).
type ControlConfig struct {
	// Identities that may steer.
	Identities []string `yaml:"identities" env:"IDENTITIES"`
	// RoleAttribute and RoleValue: a participant with this attribute may steer, if it cannot
	// update its own metadata.
	RoleAttribute string `yaml:"role_attribute" env:"ROLE_ATTRIBUTE"`
	RoleValue     string `yaml:"role_value" env:"ROLE_VALUE"`
}

// DefaultConfig returns the settings of the sniper preset.
func DefaultConfig() Config {
	return Config{
		Profile:          "default",
		AutoStart:        true,
		Frames:           4,
		Stride:           1,
		CutOnInstruction: true,
		History:          20,
		LiveKit:          LiveKitConfig{URL: "ws://127.0.0.1:7880", Room: "touchline", Identity: "touchline", Name: "Touchline"},
		Console:          ConsoleConfig{Listen: "127.0.0.1:8199", KeepAlive: 15 * time.Second},
	}
}
