package ingest

import (
	"errors"
	"fmt"
	mathbits "math/bits"

	"github.com/pion/rtp"
	"github.com/pion/rtp/codecs"
)

// OBU types of the AV1 bitstream specification, section 6.2.2.
const (
	obuSequenceHeader = 1
	obuFrameHeader    = 3
	obuFrame          = 6
)

// av1Sequence is a parsed sequence header OBU.
type av1Sequence struct {
	width, height int
	layers        int
	still         bool // reduced_still_picture_header: every frame is a key frame
}

// unpackAV1 follows the AV1 RTP payload specification 1.0; the result is the
// low-overhead format, OBUs with size fields.
func (u *unpacker) unpackAV1(packets []*rtp.Packet) (unit, error) {
	out := unit{data: make([]byte, 0, payloadBytes(packets)+16*len(packets))}
	var d codecs.AV1Depacketizer
	for i, p := range packets {
		part, err := d.Unmarshal(p.Payload)
		if err != nil {
			return unit{}, fmt.Errorf("read AV1 payload: %w", err)
		}
		if i == 0 && d.Z {
			return unit{}, errStart
		}
		if i == len(packets)-1 && d.Y {
			return unit{}, errors.New("expected the end of an OBU, got the end of the access unit")
		}
		out.data = append(out.data, part...)
	}
	if err := u.walkAV1(&out); err != nil {
		return unit{}, err
	}
	return out, nil
}

// walkAV1 reads the OBUs of a temporal unit.
func (u *unpacker) walkAV1(out *unit) error {
	sequence, top := false, 0
	for rest := out.data; len(rest) > 0; {
		header := rest[0]
		at := 1
		if header&4 != 0 { // obu_extension_flag
			if len(rest) < 2 {
				return errors.New("expected an OBU extension, got the end of the access unit")
			}
			top = max(top, int(rest[1]>>3&3))
			at = 2
		}
		size, n := leb128(rest[at:])
		if n == 0 || size > len(rest)-at-n {
			return fmt.Errorf("expected an OBU of %d bytes, %d are left", size, len(rest)-at)
		}
		body := rest[at+n : at+n+size]
		rest = rest[at+n+size:]
		switch header >> 3 & 0xf {
		case obuSequenceHeader:
			seq, ok := parseAV1Sequence(body)
			if !ok {
				return errors.New("malformed AV1 sequence header")
			}
			u.av1Seq, u.haveSeq = seq, true
			sequence = true
		case obuFrame, obuFrameHeader:
			if !out.picture {
				// show_existing_frame 0, frame_type KEY_FRAME
				out.key = sequence && len(body) > 0 && (u.av1Seq.still || body[0]&0xe0 == 0)
			}
			out.picture = true
		}
	}
	out.layers = max(top+1, 1)
	if u.haveSeq {
		out.width, out.height = u.av1Seq.width, u.av1Seq.height
		out.layers = max(out.layers, u.av1Seq.layers)
	}
	return nil
}

// leb128 reads a little-endian base 128 number of n bytes; n is 0 for a malformed one.
func leb128(b []byte) (value, n int) {
	for i := range min(len(b), 5) {
		value |= int(b[i]&0x7f) << (7 * i)
		if b[i]&0x80 == 0 {
			return value, i + 1
		}
	}
	return 0, 0
}

// parseAV1Sequence reads a sequence header OBU (AV1 bitstream specification
// section 5.5.1) up to the picture size. mediacommon's parser does not support a
// decoder model and initial display delays.
func parseAV1Sequence(body []byte) (av1Sequence, bool) {
	b := bits{data: body}
	seq := av1Sequence{layers: 1}
	b.skip(4) // profile, still_picture
	seq.still = b.flag()
	if seq.still {
		b.skip(5)
	} else {
		parseAV1Points(&b, &seq)
	}
	wBits, hBits := int(b.read(4))+1, int(b.read(4))+1
	w, h := int(b.read(wBits))+1, int(b.read(hBits))+1
	if b.short {
		return av1Sequence{}, false
	}
	seq.width, seq.height = plausible(w, h)
	return seq, true
}

// parseAV1Points skips timing and operating points. A point's bits 8 to 11 are its
// spatial layers.
func parseAV1Points(b *bits, seq *av1Sequence) {
	model, delayBits := false, 0
	if b.flag() { // timing_info_present_flag
		b.skip(64)
		if b.flag() { // equal_picture_interval
			av1SkipUVLC(b)
		}
		if model = b.flag(); model {
			delayBits = int(b.read(5)) + 1
			b.skip(32 + 5 + 5)
		}
	}
	display := b.flag()
	for range int(b.read(5)) + 1 {
		idc := b.read(12)
		seq.layers = max(seq.layers, mathbits.Len32(idc>>8))
		if b.read(5) > 7 {
			b.skip(1) // tier
		}
		if model && b.flag() {
			b.skip(2*delayBits + 1)
		}
		if display && b.flag() {
			b.skip(4)
		}
	}
}

// av1SkipUVLC skips a variable length number (section 4.10.3).
func av1SkipUVLC(b *bits) {
	zeros := 0
	for !b.flag() {
		if zeros++; zeros >= 32 || b.short {
			return
		}
	}
	b.skip(zeros)
}
