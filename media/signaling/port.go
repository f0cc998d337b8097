package signaling

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/interceptor"
	"github.com/pion/logging"
	"github.com/pion/webrtc/v4"
)

// Times of ICE: longer than the library's, for clients without consent checks and for network changes.
const disconnectTime, failTime, keepAlive = 7 * time.Second, 15 * time.Second, 2 * time.Second

// PortOptions configure the UDP port of a Server.
type PortOptions struct {
	// UDPPort carries all media; 0 selects a free port.
	UDPPort int
	// LoopbackOnly opens sockets on loopback addresses only.
	LoopbackOnly bool
	// ExternalIPs replace the machine's own addresses in candidates, where a router forwards the port.
	ExternalIPs []string
	// ICEServers are for clients; servers without a user name are also queried for the public address.
	ICEServers []webrtc.ICEServer
}

// port is one UDP port for the media of all sessions.
type port struct {
	opts   PortOptions
	mux    *ice.MultiUDPMuxDefault
	number int
}

func openPort(o PortOptions) (*port, error) {
	options := []ice.UDPMuxFromPortOption{
		ice.UDPMuxFromPortWithNetworks(ice.NetworkTypeUDP4, ice.NetworkTypeUDP6),
		ice.UDPMuxFromPortWithLoopback(), ice.UDPMuxFromPortWithReadBufferSize(2 << 20),
		ice.UDPMuxFromPortWithLogger(silent{}.NewLogger("")), ice.UDPMuxFromPortWithIPFilter(usable),
	}
	if o.LoopbackOnly {
		options = append(options, ice.UDPMuxFromPortWithIPFilter(net.IP.IsLoopback))
	}
	mux, number, err := listen(o.UDPPort, options)
	if err != nil {
		return nil, err
	}
	return &port{opts: o, mux: mux, number: number}, nil
}

// usable reports whether media can use one of this machine's addresses. No client sends to a link-local one, and a socket cannot be
// opened on one that the network has just assigned, as at the start of a container.
func usable(ip net.IP) bool {
	if ip.IsLinkLocalUnicast() {
		return false
	}
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: ip})
	if err == nil {
		_ = c.Close()
	}
	return !errors.Is(err, syscall.EADDRNOTAVAIL)
}

// listen opens one port on every address. For port 0 it tries several, as a port
// that is free on one address may be in use on another.
func listen(port int, options []ice.UDPMuxFromPortOption) (*ice.MultiUDPMuxDefault, int, error) {
	var err error
	for range 20 {
		p := port
		if p == 0 {
			if p, err = freePort(); err != nil {
				return nil, 0, err
			}
		}
		var mux *ice.MultiUDPMuxDefault
		if mux, err = ice.NewMultiUDPMuxFromPort(p, options...); err == nil {
			return mux, p, nil
		}
		if port != 0 {
			break
		}
	}
	return nil, 0, err
}

func freePort() (int, error) {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	ap, err := netip.ParseAddrPort(c.LocalAddr().String())
	return int(ap.Port()), err
}

// connection makes a peer connection on the port.
func (p *port) connection(m *webrtc.MediaEngine, r *interceptor.Registry) (*webrtc.PeerConnection, error) {
	settings, err := p.settings()
	if err != nil {
		return nil, err
	}
	api := webrtc.NewAPI(webrtc.WithMediaEngine(m), webrtc.WithInterceptorRegistry(r), webrtc.WithSettingEngine(settings))
	pc, err := api.NewPeerConnection(webrtc.Configuration{ICEServers: p.stunOnly()})
	if err != nil {
		return nil, fmt.Errorf("make a WebRTC session: %w", err)
	}
	return pc, nil
}

func (p *port) settings() (webrtc.SettingEngine, error) {
	e := webrtc.SettingEngine{LoggerFactory: silent{}}
	e.SetICEUDPMux(p.mux)
	e.SetIncludeLoopbackCandidate(true) // polished removes it for remote clients
	e.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4, webrtc.NetworkTypeUDP6})
	e.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled) // clients send the checks, so their .local names are not needed
	e.SetICETimeouts(disconnectTime, failTime, keepAlive)
	e.SetICEMaxBindingRequests(maxChecks)
	if p.opts.LoopbackOnly {
		e.SetIPFilter(net.IP.IsLoopback)
	}
	if len(p.opts.ExternalIPs) > 0 {
		err := e.SetICEAddressRewriteRules(webrtc.ICEAddressRewriteRule{
			External: p.opts.ExternalIPs, AsCandidateType: webrtc.ICECandidateTypeHost,
		})
		if err != nil {
			return e, fmt.Errorf("announce the external addresses: %w", err)
		}
	}
	return e, nil
}

// stunOnly returns the servers for the server's public address; relays are for clients.
func (p *port) stunOnly() []webrtc.ICEServer {
	var out []webrtc.ICEServer
	for _, server := range p.opts.ICEServers {
		if server.Username == "" && !p.opts.LoopbackOnly {
			out = append(out, server)
		}
	}
	return out
}

// silent discards the library's log of malformed packets.
type silent struct{}

// NewLogger implements logging.LoggerFactory.
func (silent) NewLogger(string) logging.LeveledLogger {
	return logging.NewDefaultLeveledLoggerForScope("", logging.LogLevelDisabled, io.Discard)
}
