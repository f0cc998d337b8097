package whip

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/sdp/v3"
	"github.com/pion/webrtc/v4"
	"github.com/rs/zerolog"

	"touchline/internal/rescue"
	"touchline/internal/wake"
	"touchline/media"
	"touchline/media/signaling"
)

// keyFrameEvery is the shortest interval between two requests for a key frame.
const keyFrameEvery = 500 * time.Millisecond

// Session is one sender.
type Session struct {
	// Room and Sender of the accepted request.
	Room   string
	Sender Sender
	// Began is the time of the offer.
	Began time.Time

	id     string
	server *Server
	log    zerolog.Logger
	peer   *signaling.Peer
	place  Place

	cancel context.CancelCauseFunc
	over   context.Context //nolint:containedctx // the session's own life
	done   chan struct{}
	wants  wake.Signal // a key frame is needed

	connected    atomic.Bool
	lastMedia    atomic.Int64 // Unix nanoseconds
	packets      atomic.Uint64
	closing      sync.Mutex
	closed       bool
	tracks       sync.WaitGroup
	emitting     sync.Mutex
	epoch        uint32
	last, active *reader
	readers      []*reader
}

// newSession answers an offer. The session does not run yet.
func (s *Server) newSession(ctx context.Context, o *offer, room string, who Sender, from netip.Addr) (*Session, error) {
	x := &Session{
		Room: room, Sender: who, Began: s.opts.Now(), id: signaling.NewID(), server: s,
		done: make(chan struct{}), wants: wake.New(),
		log: s.opts.Log.With().Str("room", room).Str("participant", who.Identity).Logger(),
	}
	x.over, x.cancel = context.WithCancelCause(context.Background())
	x.lastMedia.Store(x.Began.UnixNano())
	m, r, err := o.engines()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	port := s.port
	s.mu.Unlock()
	x.peer, err = port.NewPeer(ctx, signaling.PeerOptions{
		Offer: o.Offer, Local: from.IsLoopback(), Media: m, Interceptors: r,
		Prepare: func(pc *webrtc.PeerConnection) error {
			pc.OnTrack(x.onTrack)
			return nil
		},
		Accept: func(m *sdp.MediaDescription) bool {
			_, ok := m.Attribute("recvonly")
			return ok
		},
		Connected: func() { x.connected.Store(true) },
		Ended:     x.end,
	})
	if err != nil {
		x.cancel(err)
		return nil, err
	}
	return x, nil
}

// ID implements signaling.Resource.
func (x *Session) ID() string { return x.id }

// Peer implements signaling.Resource.
func (x *Session) Peer() *signaling.Peer { return x.peer }

// slot identifies the sender in its room, where it may have one session.
func (x *Session) slot() string { return x.Room + "\x00" + x.Sender.Key }

// Packets returns the number of RTP packets received.
func (x *Session) Packets() uint64 { return x.packets.Load() }

// RequestKeyFrame asks the sender for a key frame. Some senders ignore it.
func (x *Session) RequestKeyFrame() { x.wants.Set() }

// End ends the session and returns when it is over.
func (x *Session) End(reason string) {
	x.end(reason)
	<-x.done
}

// crashed ends the session after a panic in its code.
func (x *Session) crashed(err error) {
	x.log.Error().Err(err).Bytes("stack", rescue.Stack(err)).Msg("WHIP session crashed")
	x.end("internal error")
}

func (x *Session) end(reason string) { x.cancel(errors.New(reason)) }

// run is the session's life after the answer was made.
func (x *Session) run() {
	defer close(x.done)
	defer x.server.forget(x)
	defer rescue.Guard(x.crashed)
	defer x.leave()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var asked time.Time
	var later <-chan time.Time
	for x.over.Err() == nil {
		select {
		case <-x.over.Done():
		case <-tick.C:
			x.check(x.server.opts.Now())
		case <-x.wants:
			if since := x.server.opts.Now().Sub(asked); since < keyFrameEvery {
				if later == nil {
					later = time.After(keyFrameEvery - since)
				}
				continue
			}
			asked, later = x.server.opts.Now(), nil
			x.askKeyFrame()
		case <-later:
			asked, later = x.server.opts.Now(), nil
			x.askKeyFrame()
		}
	}
}

// leave releases everything when the session is over or run crashed.
func (x *Session) leave() {
	x.end("internal error")
	reason := context.Cause(x.over).Error()
	x.closing.Lock()
	x.closed = true
	x.closing.Unlock()
	if err := x.peer.Close(); err != nil {
		x.log.Debug().Err(err).Msg("closing a WHIP session failed")
	}
	x.tracks.Wait()
	if x.place.Close != nil {
		x.place.Close(reason)
	}
	x.log.Info().Str("reason", reason).Uint64("packets", x.packets.Load()).Msg("WHIP session over")
}

func (x *Session) check(now time.Time) {
	o := x.server.opts
	switch quiet := now.Sub(time.Unix(0, x.lastMedia.Load())); {
	case !x.connected.Load() && now.Sub(x.Began) >= o.ConnectTime:
		x.end(fmt.Sprintf("no connection within %v; is UDP port %d open?", o.ConnectTime, x.server.UDPPort()))
	case x.connected.Load() && quiet >= o.Silence:
		x.end(fmt.Sprintf("no packets for %v", o.Silence))
	}
}

// askKeyFrame sends a PLI (RFC 4585 section 6.3.1) for the active track, or for all.
func (x *Session) askKeyFrame() {
	x.emitting.Lock()
	var packets []rtcp.Packet
	for _, r := range x.readers {
		if x.active == nil || x.active == r || r.wanted {
			packets = append(packets, &rtcp.PictureLossIndication{MediaSSRC: uint32(r.track.SSRC())})
			r.wanted = false
		}
	}
	x.emitting.Unlock()
	if len(packets) > 0 {
		_ = x.peer.PC.WriteRTCP(packets) // a lost connection ends the session by itself
	}
}

// missing reports packets that the active reader lost.
func (x *Session) missing(r *reader, packets uint64) {
	x.emitting.Lock()
	defer x.emitting.Unlock()
	if x.active == r && x.place.Sink.Missing != nil {
		x.place.Sink.Missing(packets)
	}
}

// emit passes on a frame of the active reader: of several layers, the largest one that
// is alive. Each change of the reader begins an epoch.
func (x *Session) emit(r *reader, f media.EncodedFrame) {
	x.emitting.Lock()
	defer x.emitting.Unlock()
	r.at, r.area = f.Received, f.Width*f.Height
	if a := x.active; a != r {
		better := a == nil || f.Received.Sub(a.at) > layerTime || r.area > a.area
		if !better {
			return
		}
		if !f.KeyFrame {
			if !r.wanted {
				r.wanted = true
				x.RequestKeyFrame()
			}
			return
		}
		x.active = r
	}
	if x.last != r || r.epoch != f.Epoch || x.epoch == 0 {
		x.epoch++
		x.last, r.epoch = r, f.Epoch
	}
	f.Epoch = x.epoch
	if x.place.Sink.Frame != nil {
		x.place.Sink.Frame(f)
	}
}
