package signaling

import (
	"slices"
	"strconv"
	"strings"

	"github.com/pion/webrtc/v4"

	"touchline/internal/check"
	"touchline/internal/redact"
)

// ICEConfig lists the STUN and TURN servers that authorised WHIP senders and WHEP
// players receive in Link headers (RFC 9725 section 4.6).
type ICEConfig struct {
	// Servers are their URLs (RFC 7064 and RFC 7065).
	Servers []string `yaml:"servers" env:"SERVERS"`
	// Username and Credential are for the TURN servers among them.
	Username   string        `yaml:"username" env:"USERNAME"`
	Credential redact.Secret `yaml:"-" env:"CREDENTIAL"`
}

// relays reports whether an ICE server's URL names a TURN server.
func relays(server string) bool {
	scheme, _, _ := strings.Cut(server, ":")
	return scheme == "turn" || scheme == "turns"
}

// ICEServers returns the servers for Link headers and pion.
func (c ICEConfig) ICEServers() []webrtc.ICEServer {
	var out []webrtc.ICEServer
	for _, url := range c.Servers {
		server := webrtc.ICEServer{URLs: []string{url}}
		if relays(url) {
			server.Username, server.Credential = c.Username, string(c.Credential)
		}
		out = append(out, server)
	}
	return out
}

// Validate checks every setting and reports all that are wrong, joined. Each
// message is "path: must be rule, is value" with the YAML path below "agent.console.ice".
func (c ICEConfig) Validate() error {
	var s check.Settings
	for _, server := range c.Servers {
		scheme, host, _ := strings.Cut(server, ":")
		known := []string{"stun", "stuns", "turn", "turns"}
		s.That(slices.Contains(known, scheme) && host != "" && !strings.ContainsAny(host, "/@<>\" "), "servers",
			"stun:HOST[:PORT], stuns:, turn: or turns:, without a user name in it", strconv.Quote(server))
		s.That(!relays(server) || c.Username != "" && c.Credential != "", "username",
			"set, and TOUCHLINE_AGENT_CONSOLE_ICE_CREDENTIAL too, when a server is a TURN server", strconv.Quote(c.Username))
	}
	return s.Err()
}
