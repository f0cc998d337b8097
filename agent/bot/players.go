package bot

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/rs/zerolog"

	"touchline/agent/room/conn"
	"touchline/agent/room/control"
	"touchline/agent/whep"
	"touchline/media/signaling"
)

// PlayersOptions of NewPlayers.
type PlayersOptions struct {
	Config whep.Config
	ICE    signaling.ICEConfig
	Keys   conn.Keys
	// Coming makes players of unknown rooms retry, as rooms are added later.
	Coming bool
	// LoopbackOnly sends media on this machine only.
	LoopbackOnly bool
	Log          zerolog.Logger
}

// NewPlayers returns the WHEP server of a page. The API's
// token admits a player, and so does an access token that may subscribe.
func NewPlayers(o PlayersOptions) (*whep.Server, error) {
	s, err := whep.New(whep.Options{
		Coming: o.Coming,
		Verify: func(token, name string) (string, signaling.Right, error) { return verifyPlayer(o.Keys, token, name) },
		Bounds: signaling.Bounds{MaxSessions: o.Config.Max},
		PortOptions: signaling.PortOptions{
			UDPPort: o.Config.UDPPort, ExternalIPs: o.Config.ExternalIPs, ICEServers: o.ICE.ICEServers(), LoopbackOnly: o.LoopbackOnly,
		},
		Now: time.Now, Log: o.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("prepare WHEP: %w", err)
	}
	return s, nil
}

// verifyPlayer checks an access token for watching a room. It returns its link and the right of that.
func verifyPlayer(keys conn.Keys, token, name string) (link string, right signaling.Right, err error) {
	attributes, err := conn.VerifyViewer(keys, token, name)
	switch {
	case errors.Is(err, conn.ErrNoRight):
		return "", nil, fmt.Errorf("%w: %w", signaling.ErrForbidden, err)
	case err != nil:
		return "", nil, fmt.Errorf("%w: %w", signaling.ErrNoToken, err)
	}
	now := time.Now()
	right, err = control.RightOf(keys, attributes, now)
	return control.RootLink(keys, attributes, now), right, err
}

// OnLoopback reports whether a listen address is reachable from this machine only.
func OnLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// Players returns the bot's delayed picture and sound for WHEP players.
func (b *Bot) Players() *whep.Feed { return b.players }
