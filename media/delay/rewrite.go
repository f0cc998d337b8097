package delay

import (
	"errors"

	"github.com/pion/rtp"
)

// MaxPayload is the largest RTP payload sent, in bytes: with headers, SRTP
// and a TURN channel it stays below the smallest usual path MTU.
const MaxPayload = 1188

// Rewriter makes the RTP packets of the delayed copy. It is for one output
// track and not safe for concurrent use.
type Rewriter struct {
	seq uint16
	ts  uint32
}

// NewRewriter returns a Rewriter whose first packet has the given sequence
// number and timestamp.
func NewRewriter(seq uint16, ts uint32) *Rewriter { return &Rewriter{seq: seq, ts: ts} }

// Packets returns the packets of one frame.
func (r *Rewriter) Packets(f OutFrame) ([]*rtp.Packet, error) {
	if len(f.Packets) == 0 && len(f.Data) == 0 {
		return nil, errors.New("expected a frame with packets or data, got neither")
	}
	out := make([]*rtp.Packet, 0, len(f.Packets))
	for i, p := range f.Packets {
		q := &rtp.Packet{Header: rtp.Header{Version: 2, SequenceNumber: r.seq, Timestamp: r.ts}, Payload: p.Payload}
		q.Marker = i == len(f.Packets)-1
		r.seq++
		out = append(out, q)
	}
	return out, nil
}
