package ingest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/pion/rtp"
)

// NAL unit types used here: H.264 table 7-1 and RFC 6184 section 5.2, H.265
// table 7-1 and RFC 7798 section 4.4.
const (
	h264IDR   = 5
	h264SPS   = 7
	h264PPS   = 8
	h264StapA = 24
	h264FuA   = 28

	h265FirstIRAP = 16
	h265LastIRAP  = 21
	h265LastVCL   = 31
	h265VPS       = 32
	h265SPS       = 33
	h265PPS       = 34
	h265AP        = 48
	h265FU        = 49
)

var errFragment = errors.New("expected whole fragmentation units, one is incomplete")

// params are the parameter sets of the newest access unit that had them, as
// NAL units without start code.
type params [][]byte

// nalWriter collects NAL units as Annex B. Fragments are written straight
// into the access unit, so that a NAL unit is copied once.
type nalWriter struct {
	data  []byte
	start int  // where the open fragmented NAL unit begins
	open  bool // a fragmentation unit has begun and not ended
	seen  func(nal []byte)
}

// add writes a whole NAL unit.
func (w *nalWriter) add(nal []byte) {
	if len(nal) == 0 {
		return
	}
	w.data = append(w.data, 0, 0, 0, 1)
	at := len(w.data)
	w.data = append(w.data, nal...)
	w.seen(w.data[at:])
}

// fragment writes one piece of a fragmented NAL unit, whose rebuilt header is
// used at the first piece.
func (w *nalWriter) fragment(header []byte, first, last bool, piece []byte) error {
	if first == w.open || first && last {
		return errFragment
	}
	if first {
		w.open = true
		w.data = append(w.data, 0, 0, 0, 1)
		w.start = len(w.data)
		w.data = append(w.data, header...)
	}
	w.data = append(w.data, piece...)
	if last {
		w.open = false
		w.seen(w.data[w.start:])
	}
	return nil
}

// aggregate writes the NAL units of an aggregation packet's body: each with a
// 16-bit length in front.
func (w *nalWriter) aggregate(body []byte) error {
	for len(body) > 0 {
		if len(body) < 2 {
			return fmt.Errorf("expected a NAL unit's length, %d byte is left", len(body))
		}
		n := int(binary.BigEndian.Uint16(body))
		if n > len(body)-2 {
			return fmt.Errorf("expected a NAL unit of %d bytes, %d are left", n, len(body)-2)
		}
		w.add(body[2 : 2+n])
		body = body[2+n:]
	}
	return nil
}

// nalUnit is what the walk over an access unit's NAL units finds.
type nalUnit struct {
	unit
	sets     params // parameter sets in this unit
	hasSPS   bool
	slices   int
	headless bool // the first slice is not the picture's first
}

// unpackH264 follows RFC 6184: single NAL units, STAP-A and FU-A, which is
// what packetization modes 0 and 1 may hold.
func (u *unpacker) unpackH264(packets []*rtp.Packet, fresh bool) (unit, error) {
	var out nalUnit
	out.discardable = true
	w := nalWriter{data: make([]byte, 0, payloadBytes(packets)+8*len(packets))}
	w.seen = func(nal []byte) {
		if nal[0]&0x60 != 0 { // nal_ref_idc: a reference, or parameters
			out.discardable = false
		}
		switch t := nal[0] & 0x1f; {
		case t == h264SPS:
			out.width, out.height = h264Size(nal)
			out.hasSPS = true
			out.sets = append(out.sets, nal)
		case t == h264PPS:
			out.sets = append(out.sets, nal)
		case t >= 1 && t <= h264IDR:
			if out.slices == 0 {
				out.key = t == h264IDR
				// first_mb_in_slice is 0 when the code is a single one bit.
				out.headless = len(nal) < 2 || nal[1]&0x80 == 0
			}
			out.slices++
		}
	}
	for _, p := range packets {
		b := p.Payload
		var err error
		switch t := b[0] & 0x1f; {
		case t == h264FuA:
			if len(b) < 3 {
				return unit{}, fmt.Errorf("expected a FU-A of 3 bytes or more, got %d", len(b))
			}
			header := [1]byte{b[0]&0xe0 | b[1]&0x1f}
			err = w.fragment(header[:], b[1]&0x80 != 0, b[1]&0x40 != 0, b[2:])
		case w.open:
			err = errFragment
		case t == h264StapA:
			err = w.aggregate(b[1:])
		case t >= 1 && t < h264StapA:
			w.add(b)
		default:
			err = fmt.Errorf("expected a NAL unit, STAP-A or FU-A, got type %d", t)
		}
		if err != nil {
			return unit{}, fmt.Errorf("read H264 payload: %w", err)
		}
	}
	return u.finishNAL(&out, &w, fresh, packets[0], func(sets params) []byte {
		b := []byte{h264StapA | 0x60}
		for _, s := range sets {
			b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
			b = append(b, s...)
		}
		return b
	})
}

// unpackH265 follows RFC 7798 without DONL, which WebRTC never uses.
func (u *unpacker) unpackH265(packets []*rtp.Packet, fresh bool) (unit, error) {
	var out nalUnit
	w := nalWriter{data: make([]byte, 0, payloadBytes(packets)+8*len(packets))}
	w.seen = func(nal []byte) {
		if len(nal) < 3 {
			return
		}
		switch t := nal[0] >> 1 & 0x3f; {
		case t == h265SPS:
			if w, h := h265Size(nal); w > 0 && nal[0]&1 == 0 && nal[1]>>3 == 0 {
				out.width, out.height = w, h
			}
			out.hasSPS = true
			out.sets = append(out.sets, nal)
		case t == h265VPS, t == h265PPS:
			out.sets = append(out.sets, nal)
		case t <= h265LastVCL:
			if out.slices == 0 {
				out.key = t >= h265FirstIRAP && t <= h265LastIRAP
				out.headless = nal[2]&0x80 == 0 // first_slice_segment_in_pic_flag
			}
			out.slices++
		}
	}
	for _, p := range packets {
		b := p.Payload
		if len(b) < 3 {
			return unit{}, fmt.Errorf("expected an H265 payload of 3 bytes or more, got %d", len(b))
		}
		var err error
		switch t := b[0] >> 1 & 0x3f; {
		case t == h265FU:
			header := [2]byte{b[0]&0x81 | b[2]&0x3f<<1, b[1]}
			err = w.fragment(header[:], b[2]&0x80 != 0, b[2]&0x40 != 0, b[3:])
		case w.open:
			err = errFragment
		case t == h265AP:
			err = w.aggregate(b[2:])
		case t < h265AP:
			w.add(b)
		default:
			err = fmt.Errorf("expected a NAL unit, AP or FU, got type %d", t)
		}
		if err != nil {
			return unit{}, fmt.Errorf("read H265 payload: %w", err)
		}
	}
	return u.finishNAL(&out, &w, fresh, packets[0], func(sets params) []byte {
		b := []byte{h265AP << 1, 1}
		for _, s := range sets {
			b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
			b = append(b, s...)
		}
		return b
	})
}

// finishNAL judges the walked access unit. A key frame without parameter sets
// gets those of an earlier unit, in its data and as a packet in front.
func (u *unpacker) finishNAL(
	out *nalUnit, w *nalWriter, fresh bool, first *rtp.Packet, aggregate func(params) []byte,
) (unit, error) {
	if w.open {
		return unit{}, errFragment
	}
	out.data = w.data
	out.layers = 1
	out.picture = out.slices > 0
	if fresh && out.picture && (out.headless || out.key && !out.hasSPS && u.inKeys) {
		return unit{}, errStart
	}
	u.remember(out)
	if !out.key {
		return out.unit, nil
	}
	u.inKeys = out.hasSPS
	switch {
	case out.hasSPS:
	case len(u.params) == 0:
		out.key = false // nothing can be decoded from here
	default:
		data := make([]byte, 0, len(out.data)+256)
		for _, s := range u.params {
			data = append(data, 0, 0, 0, 1)
			data = append(data, s...)
		}
		out.data = append(data, out.data...)
		lead := &rtp.Packet{Header: first.Header, Payload: aggregate(u.params)}
		lead.Marker = false
		lead.SequenceNumber--
		lead.Extension, lead.Extensions, lead.ExtensionProfile = false, nil, 0
		out.lead = lead
	}
	return out.unit, nil
}

// maxParams bounds what is kept of parameter sets that come one by one.
const maxParams = 32

// remember keeps the unit's parameter sets for later key frames.
func (u *unpacker) remember(out *nalUnit) {
	if len(out.sets) == 0 {
		return
	}
	if out.hasSPS {
		u.params = u.params[:0:0]
	}
	for _, s := range out.sets {
		known := slices.ContainsFunc(u.params, func(k []byte) bool { return bytes.Equal(k, s) })
		if !known && len(u.params) < maxParams {
			u.params = append(u.params, bytes.Clone(s))
		}
	}
}

// h264Size reads the picture size from a sequence parameter set (H.264
// section 7.3.2.1.1), cropping included; zeros when it cannot be read.
func h264Size(nal []byte) (width, height int) {
	b := bits{data: unescape(nal[1:])}
	profile := b.read(8)
	b.skip(16) // constraints, level
	b.golomb() // id
	chroma := uint32(1)
	switch profile {
	case 100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135:
		chroma = b.golomb()
		if chroma == 3 {
			if b.flag() { // separate_colour_plane_flag
				chroma = 0
			}
		}
		b.golomb()
		b.golomb()
		b.skip(1)
		if b.flag() {
			h264SkipScaling(&b, chroma)
		}
	}
	b.golomb() // log2_max_frame_num_minus4
	switch b.golomb() {
	case 0:
		b.golomb()
	case 1:
		b.skip(1)
		b.signedGolomb()
		b.signedGolomb()
		n := b.golomb()
		if n > 255 {
			return 0, 0
		}
		for range n {
			b.signedGolomb()
		}
	}
	b.golomb() // max_num_ref_frames
	b.skip(1)
	w, h := (int(b.golomb())+1)*16, (int(b.golomb())+1)*16
	unitX, unitY := 1, 1
	if chroma == 1 || chroma == 2 {
		unitX = 2
	}
	if chroma == 1 {
		unitY = 2
	}
	if !b.flag() { // frame_mbs_only_flag
		h *= 2
		unitY *= 2
		b.skip(1)
	}
	b.skip(1) // direct_8x8_inference_flag
	if b.flag() {
		w -= unitX * (int(b.golomb()) + int(b.golomb()))
		h -= unitY * (int(b.golomb()) + int(b.golomb()))
	}
	if b.short {
		return 0, 0
	}
	return plausible(w, h)
}

// h264SkipScaling passes over the scaling lists (H.264 section 7.3.2.1.1.1).
func h264SkipScaling(b *bits, chroma uint32) {
	lists := 8
	if chroma == 3 {
		lists = 12
	}
	for i := range lists {
		if !b.flag() {
			continue
		}
		size := 16
		if i >= 6 {
			size = 64
		}
		last, next := int32(8), int32(8)
		for range size {
			if next != 0 {
				next = (last + b.signedGolomb() + 256) % 256
			}
			if next != 0 {
				last = next
			}
		}
	}
}

// h265Size reads the picture size from a sequence parameter set (H.265
// section 7.3.2.2.1), conformance window included.
func h265Size(nal []byte) (width, height int) {
	b := bits{data: unescape(nal[2:])}
	b.skip(4)
	sub := int(b.read(3))
	b.skip(1 + 96) // nesting flag; general profile, tier and level
	if sub > 0 {
		var profile, level [8]bool
		for i := range sub {
			profile[i], level[i] = b.flag(), b.flag()
		}
		b.skip(2 * (8 - sub))
		for i := range sub {
			if profile[i] {
				b.skip(88)
			}
			if level[i] {
				b.skip(8)
			}
		}
	}
	b.golomb() // id
	chroma := b.golomb()
	if chroma == 3 && b.flag() {
		chroma = 0
	}
	w, h := int(b.golomb()), int(b.golomb())
	unitX, unitY := 1, 1
	if chroma == 1 || chroma == 2 {
		unitX = 2
	}
	if chroma == 1 {
		unitY = 2
	}
	if b.flag() {
		w -= unitX * (int(b.golomb()) + int(b.golomb()))
		h -= unitY * (int(b.golomb()) + int(b.golomb()))
	}
	if b.short {
		return 0, 0
	}
	return plausible(w, h)
}
