package rtsp

import (
	"time"

	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/pion/rtp"
	"github.com/rs/zerolog"

	"touchline/media/source"
)

// Reader processes packets as a session does, without a camera.
type Reader struct{ s *session }

// NewReader returns a Reader of a format, nil if it is not supported.
func NewReader(f format.Format, out source.Sink) *Reader {
	s := &session{out: out, now: func() time.Time { return time.Unix(1, 0) }, log: zerolog.Nop(), keys: &keyRequests{}}
	if !s.prepareVideo(f) {
		return nil
	}
	return &Reader{s}
}

// Packet processes a packet.
func (r *Reader) Packet(p *rtp.Packet) { r.s.videoPacket(p) }

// ReadLATM returns the number of access units in packets of LATM.
func ReadLATM(f *format.MPEG4AudioLATM, packets []*rtp.Packet) (n int, err error) {
	l, err := newLATM(f)
	if err != nil {
		return 0, err
	}
	for _, p := range packets {
		if _, units, ok := l.decode(p); ok {
			n += len(units)
		}
	}
	return n, nil
}

// SetNow sets the clock.
func (r *Reader) SetNow(now func() time.Time) { r.s.now = now }

// ReadableSDP is readableSDP without a log.
func ReadableSDP(body []byte) []byte {
	text, _, _ := readableSDP(body, zerolog.Nop())
	return text
}

// WithFeedback reports whether the stream of an SDP at an address is set up with the profile RTP/AVPF.
func WithFeedback(body []byte, at *base.URL) bool {
	_, _, feedback := readableSDP(body, zerolog.Nop())
	return withFeedback(at, feedback)
}

// KeyRequests is keyRequests.
type KeyRequests struct{ keyRequests }

// Ask, Came and Overdue are its methods.
func (k *KeyRequests) Ask(now time.Time)          { k.ask(now) }
func (k *KeyRequests) Came()                      { k.came() }
func (k *KeyRequests) Overdue(now time.Time) bool { return k.overdue(now) }
