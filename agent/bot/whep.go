package bot

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/pion/webrtc/v4"
	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/agent/room"
	"touchline/agent/whep"
	"touchline/media/signaling"
)

// NewPlayers makes the server of WHEP players that goes with a page. Who may
// use the API may watch, and who has an access token that lets him subscribe.
// Where rooms come and go (coming), one that is not here may be asked for again.
func NewPlayers(cfg agent.ConsoleConfig, keys room.Keys, coming bool, log zerolog.Logger) (*whep.Server, error) {
	s, err := whep.New(whep.Options{
		Coming: coming,
		Verify: func(token, name string) error {
			switch err := room.VerifyViewer(keys, token, name); {
			case errors.Is(err, room.ErrNoRight):
				return fmt.Errorf("%w: %w", signaling.ErrForbidden, err)
			case err != nil:
				return fmt.Errorf("%w: %w", signaling.ErrNoToken, err)
			}
			return nil
		},
		Bounds: signaling.Bounds{MaxSessions: cfg.WHEP.Max}, UDPPort: cfg.WHEP.UDPPort, ExternalIPs: cfg.WHEP.ExternalIPs,
		ICEServers: ICEServers(cfg.ICE), LoopbackOnly: OnlyHere(cfg.Listen), Now: time.Now, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("prepare for WHEP players: %w", err)
	}
	return s, nil
}

// ICEServers are what WHIP senders and WHEP players are told of.
func ICEServers(cfg agent.ICEConfig) []webrtc.ICEServer {
	var out []webrtc.ICEServer
	for _, url := range cfg.Servers {
		server := webrtc.ICEServer{URLs: []string{url}}
		if cfg.Relays(url) {
			server.Username, server.Credential = cfg.Username, string(cfg.Credential)
		}
		out = append(out, server)
	}
	return out
}

// OnlyHere tells whether an address to listen at is for this machine alone.
func OnlyHere(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}
