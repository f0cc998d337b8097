package packet

import (
	"fmt"
	"slices"
	"time"

	"github.com/pion/rtp"

	"touchline/internal/ticks"
	"touchline/media"
)

// Rewriter makes the RTP packets of the delayed copy: continuous sequence numbers,
// rising timestamps that follow Due, no header extensions, no padding, payloads of at
// most MaxPayload. Payload type and SSRC stay 0; the track sets them.
//
// Picture numbers in VP8 and VP9 payloads are renumbered, so that they continue by one
// where the source restarted or the line dropped frames: a browser treats a lower
// number as an old picture and waits for a missing one, and freezes.
//
// The dependency descriptor is removed with the other extensions. AV1 with several
// spatial layers cannot be forwarded selectively without it: check
// EncodedFrame.SpatialLayers before relaying such a source.
//
// A Rewriter is for one output track and not safe for concurrent use. Source packets
// are not changed; unchanged payloads are shared.
type Rewriter struct {
	seq   uint16
	first uint32 // timestamp of the first frame

	started bool
	base    time.Time // due of the first frame
	ticks   int64     // of the newest frame, counted from first

	epoch uint32
	id    counter // PictureID
	tl0   counter // TL0PICIDX
	buf   [][]byte
}

// counter maps the source's running numbers (such as sequence numbers) to continuous ones.
type counter struct {
	known    bool
	src, out uint16
}

// follow keeps the source's step from the previous number.
func (c *counter) follow(src uint16) uint16 {
	if c.known {
		c.out += src - c.src
	} else {
		c.out = src
	}
	c.known, c.src = true, src
	return c.out
}

// advance counts by one, independent of the source's number.
func (c *counter) advance(src uint16) uint16 {
	if c.known {
		c.out++
	} else {
		c.out = src
	}
	c.known, c.src = true, src
	return c.out
}

// NewRewriter returns a Rewriter whose first packet has the given sequence
// number and timestamp.
func NewRewriter(seq uint16, ts uint32) *Rewriter { return &Rewriter{seq: seq, first: ts} }

// Packets returns the packets of one frame, in order. Their timestamp follows due, when
// the picture is to be shown. After an error the frame is left out without a gap in
// the numbering; later frames cannot be decoded before the next key frame.
func (r *Rewriter) Packets(f media.EncodedFrame, due time.Time) ([]*rtp.Packet, error) {
	payloads, err := r.payloads(f)
	if err != nil {
		return nil, fmt.Errorf("packetise delayed %v frame: %w", f.Codec, err)
	}
	r.epoch = f.Epoch
	if !r.started {
		r.started, r.base = true, due
	} else {
		r.ticks = max(r.ticks+1, ticks.Count(due.Sub(r.base), media.VideoClockRate))
	}
	return assemble(payloads, &r.seq, r.first+uint32(r.ticks)), nil //nolint:gosec // modulo 2^32
}

// payloads returns the frame's payloads of at most MaxPayload. The slice is reused by
// the next call.
func (r *Rewriter) payloads(f media.EncodedFrame) ([][]byte, error) {
	out := r.buf[:0]
	var err error
	has := slices.ContainsFunc(f.Packets, func(p *rtp.Packet) bool { return len(p.Payload) > 0 })
	switch {
	case !has && len(f.Data) == 0:
		return nil, errNothing
	case !has:
		if f.Codec == media.VP9 && f.SpatialLayers > 1 {
			return nil, fmt.Errorf("expected packets for VP9 with %d spatial layers, got data only", f.SpatialLayers)
		}
		out, err = packetise(out, f, &r.id)
	case f.Codec == media.VP8:
		out, err = r.vp8(out, f)
	case f.Codec == media.VP9:
		out, err = r.vp9(out, f)
	default:
		for _, p := range f.Packets {
			if len(p.Payload) > MaxPayload {
				out, err = split(out, f.Codec, p.Payload)
			} else if len(p.Payload) > 0 {
				out = append(out, p.Payload)
			}
			if err != nil {
				break
			}
		}
	}
	r.buf = out
	if err == nil && len(out) == 0 {
		err = errNothing
	}
	return out, err
}

// renumbered appends copies of a frame's payloads to out, cut by split where they are too large. number returns the
// numbers to write, from the first payload that has them.
func renumbered(
	out [][]byte, f media.EncodedFrame, parse func([]byte) (descriptor, error),
	number func(d descriptor, payload []byte) (id, tl0 uint16), split func(out [][]byte, b []byte, d descriptor) ([][]byte, error),
) ([][]byte, error) {
	total := 0
	for _, p := range f.Packets {
		total += len(p.Payload)
	}
	slab := make([]byte, 0, total)
	for _, p := range f.Packets {
		if len(p.Payload) == 0 {
			continue
		}
		d, err := parse(p.Payload)
		if err != nil {
			return out, err
		}
		id, tl0 := number(d, p.Payload)
		at := len(slab)
		slab = append(slab, p.Payload...)
		b := slab[at:len(slab):len(slab)]
		d.number(b, id, tl0)
		if len(b) <= MaxPayload {
			out = append(out, b)
		} else if out, err = split(out, b, d); err != nil {
			return out, err
		}
	}
	return out, nil
}

// vp8 renumbers the frame's descriptors (RFC 7741 section 4.2).
func (r *Rewriter) vp8(out [][]byte, f media.EncodedFrame) ([][]byte, error) {
	var id, tl0 uint16
	seen := false
	return renumbered(out, f, parseVP8, func(d descriptor, payload []byte) (uint16, uint16) {
		if !seen {
			seen = true
			if d.idAt > 0 {
				id = r.id.advance(d.id)
			}
			if d.tl0At > 0 {
				tl0 = r.level(f, payload[d.tl0At])
			}
		}
		return id, tl0
	}, splitVP8)
}

// splitVP8 cuts a payload after its descriptor.
func splitVP8(out [][]byte, b []byte, d descriptor) ([][]byte, error) {
	for i, part := range pieces(b[d.end:], MaxPayload-d.end) {
		q := slices.Concat(b[:d.end], part)
		if i > 0 {
			q[0] &^= 0x10 // S: start of the partition
		}
		out = append(out, q)
	}
	return out, nil
}

// level renumbers a TL0PICIDX: the source's steps are kept within a run of frames, and
// a key frame starts a run.
func (r *Rewriter) level(f media.EncodedFrame, src byte) uint16 {
	// The source's number has 8 bits, so the step is sign-extended.
	if f.KeyFrame || !r.tl0.known || f.Epoch != r.epoch {
		return r.tl0.advance(uint16(src))
	}
	step := uint16(int16(int8(src - byte(r.tl0.src)))) //nolint:gosec // the low bits
	return r.tl0.follow(r.tl0.src + step)
}

// vp9 renumbers the frame's descriptors (RFC 9628 section 4.2). Differences between
// picture numbers are kept, as references use them.
func (r *Rewriter) vp9(out [][]byte, f media.EncodedFrame) ([][]byte, error) {
	var id, tl0 uint16
	idSeen, tl0Seen := false, false
	return renumbered(out, f, parseVP9, func(d descriptor, payload []byte) (uint16, uint16) {
		if d.idAt > 0 && !idSeen {
			idSeen = true
			if f.KeyFrame || !r.id.known || f.Epoch != r.epoch {
				id = r.id.advance(d.id)
			} else {
				wide := uint16(0x7fff)
				if d.idLen == 1 {
					wide = 0x7f
				}
				id = r.id.follow(r.id.src + (d.id-r.id.src)&wide)
			}
		}
		if d.tl0At > 0 && !tl0Seen {
			tl0Seen = true
			tl0 = r.level(f, payload[d.tl0At])
		}
		return id, tl0
	}, splitVP9)
}

// splitVP9 cuts a payload after its descriptor. Only the first part has a scalability structure.
func splitVP9(out [][]byte, b []byte, d descriptor) ([][]byte, error) {
	if d.end > MaxPayload/2 {
		return out, fmt.Errorf("expected a VP9 descriptor of at most %d bytes, got %d", MaxPayload/2, d.end)
	}
	parts := pieces(b[d.end:], MaxPayload-d.end)
	for i, part := range parts {
		head := b[:d.end]
		if i > 0 && d.ssAt > 0 {
			head = b[:d.ssAt]
		}
		q := slices.Concat(head, part)
		if i > 0 {
			q[0] &^= 0x08 | 0x02 // B: start of the layer frame; V: sizes follow
		}
		if i < len(parts)-1 {
			q[0] &^= 0x04 // E: end of the layer frame
		}
		out = append(out, q)
	}
	return out, nil
}

// descriptor has the positions of numbers in a VP8 or VP9 payload descriptor.
type descriptor struct {
	id          uint16
	idAt, idLen int // idAt 0: none
	tl0At       int // 0: none
	ssAt        int // VP9 scalability structure, 0: none
	end         int
}

// number overwrites the numbers in b.
func (d *descriptor) number(b []byte, id, tl0 uint16) {
	switch d.idLen {
	case 1:
		b[d.idAt] = byte(id & 0x7f)
	case 2:
		b[d.idAt] = 0x80 | byte(id>>8&0x7f)
		b[d.idAt+1] = byte(id) //nolint:gosec // the low bits
	}
	if d.tl0At > 0 {
		b[d.tl0At] = byte(tl0) //nolint:gosec // the low bits
	}
}

// takeID reads a picture number of one or two bytes.
func (d *descriptor) takeID(b []byte) bool {
	if d.end >= len(b) {
		return false
	}
	d.idAt, d.idLen, d.id = d.end, 1, uint16(b[d.end])
	if b[d.end]&0x80 != 0 {
		if d.end+1 >= len(b) {
			return false
		}
		d.idLen, d.id = 2, uint16(b[d.end]&0x7f)<<8|uint16(b[d.end+1])
	}
	d.end += d.idLen
	return true
}

// parseVP8 finds the numbers of a VP8 payload descriptor.
func parseVP8(b []byte) (descriptor, error) {
	d := descriptor{end: 1}
	if b[0]&0x80 != 0 {
		if len(b) < 2 {
			return d, errShort
		}
		flags := b[1]
		d.end = 2
		if flags&0x80 != 0 && !d.takeID(b) {
			return d, errShort
		}
		if flags&0x40 != 0 {
			d.tl0At = d.end
			d.end++
		}
		if flags&0x30 != 0 {
			d.end++
		}
	}
	if d.end > len(b) {
		return d, errShort
	}
	return d, nil
}

// parseVP9 finds the numbers of a VP9 payload descriptor.
func parseVP9(b []byte) (descriptor, error) {
	d := descriptor{end: 1}
	flags := b[0]
	if flags&0x80 != 0 && !d.takeID(b) {
		return d, errShort
	}
	if flags&0x20 != 0 {
		d.end++
		if flags&0x10 == 0 {
			d.tl0At = d.end
			d.end++
		}
	}
	if flags&0x50 == 0x50 {
		for i := 0; ; i++ {
			if d.end >= len(b) || i == 3 {
				return d, errShort
			}
			d.end++
			if b[d.end-1]&1 == 0 {
				break
			}
		}
	}
	if flags&0x02 != 0 {
		d.ssAt = d.end
		if d.end >= len(b) {
			return d, errShort
		}
		ss := b[d.end]
		d.end++
		if ss&0x10 != 0 {
			d.end += 4 * (int(ss>>5) + 1)
		}
		if ss&0x08 != 0 {
			if d.end >= len(b) {
				return d, errShort
			}
			n := int(b[d.end])
			d.end++
			for range n {
				if d.end >= len(b) {
					return d, errShort
				}
				d.end += 1 + int(b[d.end]>>2&3)
			}
		}
	}
	if d.end > len(b) {
		return d, errShort
	}
	return d, nil
}
