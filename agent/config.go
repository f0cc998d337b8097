package agent

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

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
	// History says what is remembered and written down.
	History HistoryConfig `yaml:"history" envPrefix:"HISTORY_"`
	// Webhook says who is told what happens, by HTTP.
	Webhook WebhookConfig `yaml:"webhook" envPrefix:"WEBHOOK_"`
	// LiveKit says where the room is.
	LiveKit LiveKitConfig `yaml:"livekit" envPrefix:"LIVEKIT_"`
	// Console sets the page and the HTTP API.
	Console ConsoleConfig `yaml:"console" envPrefix:"CONSOLE_"`
	// Control says who may steer from inside the room.
	Control ControlConfig `yaml:"control" envPrefix:"CONTROL_"`
	// Worker sets `touchline agent`, which serves many rooms.
	Worker WorkerConfig `yaml:"worker" envPrefix:"WORKER_"`
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
	// ReconnectDelay and MaxReconnectDelay bound the wait between two attempts to join: it starts at the
	// first and doubles, up to 2 s in the first three minutes of an outage and up to the second after them.
	ReconnectDelay    time.Duration `yaml:"reconnect_delay" env:"RECONNECT_DELAY"`
	MaxReconnectDelay time.Duration `yaml:"max_reconnect_delay" env:"MAX_RECONNECT_DELAY"`
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
	// WHEP lets people watch without a LiveKit client, at /whep/ROOM.
	WHEP WHEPConfig `yaml:"whep" envPrefix:"WHEP_"`
	// ICE is what WHIP senders and WHEP players are told to find their way with.
	ICE ICEConfig `yaml:"ice" envPrefix:"ICE_"`
}

// ICEConfig names STUN and TURN servers for WHIP senders and WHEP players, who
// are told of them in Link headers (RFC 9725 section 4.6) once they are let in.
type ICEConfig struct {
	// Servers are their URLs (RFC 7064 and RFC 7065).
	Servers []string `yaml:"servers" env:"SERVERS"`
	// Username and Credential are for the TURN servers among them.
	Username   string           `yaml:"username" env:"USERNAME"`
	Credential inference.Secret `yaml:"-" env:"CREDENTIAL"`
}

// Relays tells whether an ICE server's URL is that of a TURN server.
func (ICEConfig) Relays(server string) bool {
	scheme, _, _ := strings.Cut(server, ":")
	return scheme == "turn" || scheme == "turns"
}

// WHEPConfig sets how WHEP players are served.
type WHEPConfig struct {
	// Enabled serves players at all.
	Enabled bool `yaml:"enabled" env:"ENABLED"`
	// UDPPort serves all media; 0 is a free one.
	UDPPort int `yaml:"udp_port" env:"UDP_PORT"`
	// ExternalIPs are announced in place of the machine's own, where a router forwards the port.
	ExternalIPs []string `yaml:"external_ips" env:"EXTERNAL_IPS"`
	// Max is how many players may watch at once.
	Max int `yaml:"max" env:"MAX"`
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

// WorkerConfig sets the agent worker, which serves the rooms of a LiveKit
// server that ask for a commentator.
type WorkerConfig struct {
	// AgentName is what rooms must ask for; "" serves every new room. LIVEKIT_AGENT_NAME sets it too.
	AgentName string `yaml:"agent_name" env:"AGENT_NAME"`
	// Type is what a job is about: room, publisher or participant.
	Type string `yaml:"type" env:"TYPE"`
	// Slots is how many jobs run at once; 0 is four for each core.
	Slots int `yaml:"slots" env:"SLOTS"`
	// DrainTimeout is how long sentences may take to end after the first signal.
	DrainTimeout time.Duration `yaml:"drain_timeout" env:"DRAIN_TIMEOUT"`
	// FullCPU is the share of the CPU, 0 to 1, at which no more rooms are taken; 0 does not look.
	FullCPU float64 `yaml:"full_cpu" env:"FULL_CPU"`
	// HTTP is the address of probes and metrics; HTTPOff for none.
	HTTP string `yaml:"http" env:"HTTP"`
	// Console is the address of the page and the API for all rooms of the worker; HTTPOff for none. Token, TLS
	// and hosts are those of ConsoleConfig.
	Console string `yaml:"console" env:"CONSOLE"`
	// Namespace of an older server.
	Namespace string `yaml:"namespace" env:"NAMESPACE"`
	// Deployment that dispatches must name. LIVEKIT_AGENT_DEPLOYMENT sets it too.
	Deployment string `yaml:"deployment" env:"DEPLOYMENT"`
}

// HTTPOff is the value of WorkerConfig.HTTP and Console that opens no address.
const HTTPOff = "off"

// DefaultConfig returns the settings of the sniper preset.
func DefaultConfig() Config {
	return Config{
		Profile:          "default",
		AutoStart:        true,
		Frames:           4,
		Stride:           1,
		CutOnInstruction: true,
		History:          defaultHistory(),
		Webhook:          defaultWebhook(),
		LiveKit: LiveKitConfig{
			URL:               "ws://127.0.0.1:7880",
			Room:              "touchline",
			Identity:          "touchline",
			Name:              "Touchline",
			ReconnectDelay:    100 * time.Millisecond,
			MaxReconnectDelay: 15 * time.Second,
		},
		Console: ConsoleConfig{
			Listen: "127.0.0.1:8199", KeepAlive: 15 * time.Second, WHEP: WHEPConfig{Enabled: true, Max: 64},
		},
		Worker: WorkerConfig{Type: "room", DrainTimeout: time.Hour, FullCPU: 0.9, HTTP: ":8081", Console: HTTPOff},
	}
}

// Validate checks every setting and reports all that are wrong, joined. Each
// message is "path: rule, is value" with the YAML path below "agent". Whether
// the profile exists is for whoever loads profiles.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, path, rule string, value any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: must be %s, is %v", path, rule, value))
		}
	}
	check(c.Profile != "", "profile", "the name of a profile", `""`)
	if n := utf8.RuneCountInString(c.Instruction); n > MaxInstruction {
		check(false, "instruction", fmt.Sprintf("at most %d characters", MaxInstruction), n)
	}
	check(c.Frames >= 1 && c.Frames <= 64, "frames_per_look", "between 1 and 64 pictures", c.Frames)
	check(c.Stride >= 1 && c.Stride <= 64, "frame_stride", "between 1 and 64", c.Stride)
	check(c.ChangeThreshold >= 0 && c.ChangeThreshold <= 255, "change_threshold", "between 0 and 255", c.ChangeThreshold)
	errs = append(errs, c.History.validate()...)
	errs = append(errs, c.Webhook.validate()...)
	errs = append(errs, c.LiveKit.validate()...)
	errs = append(errs, c.Console.validate()...)
	errs = append(errs, c.Worker.validate()...)
	for _, id := range c.Control.Identities {
		check(id != "", "control.identities", "without empty names", fmt.Sprintf("%q", c.Control.Identities))
	}
	check((c.Control.RoleAttribute == "") == (c.Control.RoleValue == ""), "control.role_value",
		"set together with role_attribute", fmt.Sprintf("%q", c.Control.RoleValue))
	return errors.Join(errs...)
}

func (c LiveKitConfig) validate() []error {
	var errs []error
	check := func(ok bool, path, rule string, value any) {
		if !ok {
			errs = append(errs, fmt.Errorf("livekit.%s: must be %s, is %v", path, rule, value))
		}
	}
	if u, err := url.Parse(c.URL); err != nil || u.User != nil {
		// The value may hold a password: it is not repeated.
		errs = append(errs, errors.New("livekit.url: must be an address without name and password in it"))
	} else {
		switch u.Scheme {
		case "ws", "wss", "http", "https":
			check(u.Host != "", "url", "ws:// or wss:// with a host", strconv.Quote(c.URL))
		default:
			check(false, "url", "ws:// or wss:// with a host", strconv.Quote(c.URL))
		}
	}
	// A ready token names its own room and identity; otherwise ours are needed.
	check(validName(c.Room), "room", "1 to 128 printable characters", strconv.Quote(c.Room))
	check(validName(c.Identity), "identity", "1 to 128 printable characters", strconv.Quote(c.Identity))
	check(c.Name == "" || validName(c.Name), "name", "at most 128 printable characters", strconv.Quote(c.Name))
	if (c.APIKey == "") != (c.APISecret == "") {
		missing := "api_secret"
		if c.APIKey == "" {
			missing = "api_key"
		}
		errs = append(errs, fmt.Errorf("livekit.%s: must be set when the other half of the pair is: "+
			"LIVEKIT_API_KEY and LIVEKIT_API_SECRET go together", missing))
	}
	check(c.ReconnectDelay >= 10*time.Millisecond && c.ReconnectDelay <= c.MaxReconnectDelay, "reconnect_delay",
		fmt.Sprintf("between 10ms and max_reconnect_delay (%v)", c.MaxReconnectDelay), c.ReconnectDelay)
	check(c.MaxReconnectDelay <= 10*time.Minute, "max_reconnect_delay", "at most 10m", c.MaxReconnectDelay)
	return errs
}

func (c ConsoleConfig) validate() []error {
	var errs []error
	check := func(ok bool, path, rule string, value any) {
		if !ok {
			errs = append(errs, fmt.Errorf("console.%s: must be %s, is %v", path, rule, value))
		}
	}
	_, port, err := net.SplitHostPort(c.Listen)
	_, perr := strconv.ParseUint(port, 10, 16)
	check(err == nil && perr == nil, "listen", "host:port, such as 127.0.0.1:8199", strconv.Quote(c.Listen))
	check((c.TLSCert == "") == (c.TLSKey == ""), "tls_key", "set together with tls_cert", strconv.Quote(c.TLSKey))
	check(!c.SelfSigned || c.TLSCert == "", "tls_self_signed",
		"false when tls_cert names a certificate", c.SelfSigned)
	for _, host := range c.AllowedHosts {
		check(host != "" && !strings.ContainsAny(host, "/ *@"), "allowed_hosts",
			"host names without scheme, path or wildcard", strconv.Quote(host))
	}
	check(c.WHEP.UDPPort >= 0 && c.WHEP.UDPPort <= 65535, "whep.udp_port", "between 0 and 65535", c.WHEP.UDPPort)
	for _, ip := range c.WHEP.ExternalIPs {
		check(net.ParseIP(ip) != nil, "whep.external_ips", "IP addresses", strconv.Quote(ip))
	}
	check(c.WHEP.Max >= 1 && c.WHEP.Max <= 1000, "whep.max", "between 1 and 1000 players", c.WHEP.Max)
	for _, server := range c.ICE.Servers {
		scheme, host, _ := strings.Cut(server, ":")
		known := []string{"stun", "stuns", "turn", "turns"}
		check(slices.Contains(known, scheme) && host != "" && !strings.ContainsAny(host, "/@<>\" "), "ice.servers",
			"stun:HOST[:PORT], stuns:, turn: or turns:, without a user name in it", strconv.Quote(server))
		check(!c.ICE.Relays(server) || c.ICE.Username != "" && c.ICE.Credential != "", "ice.username",
			"set, and TOUCHLINE_AGENT_CONSOLE_ICE_CREDENTIAL too, when a server is a TURN server", strconv.Quote(c.ICE.Username))
	}
	check(c.KeepAlive >= time.Second && c.KeepAlive <= 5*time.Minute, "keep_alive", "between 1s and 5m", c.KeepAlive)
	return errs
}

func (c WorkerConfig) validate() []error {
	var errs []error
	check := func(ok bool, path, rule string, value any) {
		if !ok {
			errs = append(errs, fmt.Errorf("worker.%s: must be %s, is %v", path, rule, value))
		}
	}
	check(c.AgentName == "" || validName(c.AgentName), "agent_name", "at most 128 printable characters", strconv.Quote(c.AgentName))
	check(slices.Contains([]string{"room", "publisher", "participant"}, c.Type), "type",
		"room, publisher or participant", strconv.Quote(c.Type))
	check(c.Slots >= 0 && c.Slots <= 10_000, "slots", "between 0 (four for each core) and 10000", c.Slots)
	check(c.DrainTimeout >= 0 && c.DrainTimeout <= 24*time.Hour, "drain_timeout", "between 0s and 24h", c.DrainTimeout)
	check(c.FullCPU >= 0 && c.FullCPU <= 1, "full_cpu", "between 0 (does not look) and 1", c.FullCPU)
	address := func(v, path, example string) {
		if v == HTTPOff {
			return
		}
		_, port, err := net.SplitHostPort(v)
		_, perr := strconv.ParseUint(port, 10, 16)
		check(err == nil && perr == nil, path, "[host]:port, such as "+example+", or "+HTTPOff, strconv.Quote(v))
	}
	address(c.HTTP, "http", ":8081")
	address(c.Console, "console", "127.0.0.1:8199")
	check(c.Namespace == "" || validName(c.Namespace), "namespace", "at most 128 printable characters", strconv.Quote(c.Namespace))
	check(len(c.Deployment) <= 64 && !strings.ContainsFunc(c.Deployment, func(r rune) bool { return r == '_' || unicode.IsSpace(r) }),
		"deployment", "at most 64 bytes without underscores and blanks", strconv.Quote(c.Deployment))
	return errs
}

// validName tells whether LiveKit and a log line can carry the name.
func validName(s string) bool {
	if s == "" || utf8.RuneCountInString(s) > 128 || strings.TrimSpace(s) != s {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError })
}
