package whip

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pion/rtcp"

	"touchline/internal/wake"
	"touchline/media"
	"touchline/media/packet"
	"touchline/media/signaling"
)

// keyFrameEvery is the shortest interval between two requests for a key frame.
const keyFrameEvery = 500 * time.Millisecond

// Session is one sender.
type Session struct {
	*signaling.Session

	Sender Sender

	server  *Server
	slot    string // the sender in its room, where it may have one session
	upright packet.Orientation
	wants   wake.Signal // a key frame is needed

	began        time.Time
	lastMedia    atomic.Int64 // nanoseconds since began, by the monotonic clock
	emitting     sync.Mutex
	place        Place
	epoch        uint32
	last, active *reader
	readers      []*reader
}

func newSession(s *Server, sender Sender, room string, upright packet.Orientation) *Session {
	return &Session{Sender: sender, server: s, slot: room + "\x00" + sender.Key, upright: upright, wants: wake.New()}
}

// prepare reads the sender's tracks.
func (x *Session) prepare(session *signaling.Session) error {
	session.Log = session.Log.With().Str("participant", x.Sender.Identity).Logger()
	x.Session = session
	x.began = x.server.opts.Now()
	x.PC.OnTrack(x.onTrack)
	return nil
}

// enter connects the session to its consumer.
func (x *Session) enter() error {
	s := x.server
	place, err := s.opts.Open(x)
	if err != nil {
		x.Log.Warn().Err(err).Msg("WHIP session refused")
		return fmt.Errorf("%w: the room accepts no picture now", signaling.ErrBusy)
	}
	x.emitting.Lock() // its tracks may be read already
	x.place = place
	x.emitting.Unlock()
	if !s.opts.Many {
		s.keep(x)
	}
	return nil
}

// RequestKeyFrame asks the sender for a key frame. Some senders ignore it.
func (x *Session) RequestKeyFrame() { x.wants.Set() }

// run requests key frames, and ends a session without packets or whose rights have ended.
func (x *Session) run() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	now := x.server.opts.Now
	if right := x.Sender.Right; right != nil {
		defer right(x.Cancel)()
	}
	var asked time.Time
	var later <-chan time.Time
	for {
		select {
		case <-x.Over():
			return
		case <-tick.C:
			if x.silent(now()) {
				x.Cancel(fmt.Sprintf("no packets for %v", x.server.opts.Silence))
			}
		case <-x.wants:
			if later == nil {
				later = time.After(max(0, keyFrameEvery-now().Sub(asked)))
			}
		case <-later:
			asked, later = now(), nil
			x.askKeyFrame()
		}
	}
}

// received notes a packet with media. A step of the wall clock changes nothing.
func (x *Session) received(now time.Time) { x.lastMedia.Store(int64(now.Sub(x.began))) }

// silent reports whether the sender has sent no media for too long.
func (x *Session) silent(now time.Time) bool {
	return now.Sub(x.began)-time.Duration(x.lastMedia.Load()) >= x.server.opts.Silence
}

// leave releases the slot and the consumer.
func (x *Session) leave(reason string) {
	defer x.server.free(x)
	if x.place.Close != nil {
		x.place.Close(reason)
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
		_ = x.PC.WriteRTCP(packets) // a lost connection ends the session by itself
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

// emit forwards a frame of the active reader: of several layers, the largest one that
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
