package rtsp

import (
	"bytes"

	"github.com/pion/rtp"
	"github.com/pion/rtp/codecs"

	"touchline/media"
)

const (
	maxAnnexB     = 8 << 20 // of one picture
	maxRTPPayload = 1188
)

// annexB repairs the stream of cameras that put H264 or H265 with start codes into RTP, against RFC 6184 and RFC 7798:
// it collects a picture and packs it anew.
type annexB struct {
	payloader rtp.Payloader
	on        bool
	began     bool
	picture   []byte
	header    rtp.Header // of the newest packet
	next      uint16     // sequence number of the output
}

func newAnnexB(codec media.Codec) *annexB {
	if codec == media.H265 {
		return &annexB{payloader: &codecs.H265Payloader{}}
	}
	return &annexB{payloader: &codecs.H264Payloader{}}
}

// packets returns the packets that replace p. Proper packets never begin with a start code. A nil receiver changes nothing.
func (a *annexB) packets(p *rtp.Packet) (out []*rtp.Packet) {
	if a == nil {
		return []*rtp.Packet{p}
	}
	if !a.on {
		if !bytes.HasPrefix(p.Payload, []byte{0, 0, 1}) && !bytes.HasPrefix(p.Payload, []byte{0, 0, 0, 1}) {
			return []*rtp.Packet{p}
		}
		a.on = true
	}
	if a.began && p.SequenceNumber != a.header.SequenceNumber+1 {
		a.picture = nil
		a.next++ // the loss is visible to the assembler
	}
	if a.began && p.Timestamp != a.header.Timestamp {
		out = a.flush()
	}
	a.began, a.header = true, p.Header
	if len(a.picture)+len(p.Payload) > maxAnnexB {
		a.picture = nil
	}
	a.picture = append(a.picture, p.Payload...)
	if p.Marker {
		out = append(out, a.flush()...)
	}
	return out
}

// flush packs the collected picture.
func (a *annexB) flush() (out []*rtp.Packet) {
	payloads := a.payloader.Payload(maxRTPPayload, a.picture)
	a.picture = nil
	for i, b := range payloads {
		h := rtp.Header{
			Version: 2, Marker: i == len(payloads)-1, PayloadType: a.header.PayloadType, SequenceNumber: a.next,
			Timestamp: a.header.Timestamp, SSRC: a.header.SSRC,
		}
		out = append(out, &rtp.Packet{Header: h, Payload: b})
		a.next++
	}
	return out
}
