package ingest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h264"

	"touchline/media"
)

// Bounds on parameter sets. Usual ones have tens of bytes; they are kept for the whole
// epoch and added to each key frame that lacks them.
const (
	maxSetBytes  = 4 << 10
	maxSetsBytes = 64 << 10
	maxSets      = 64
)

// parameterSet is a VPS, SPS or PPS, without start code.
type parameterSet struct {
	kind byte   // NAL unit type
	id   uint32 // a set replaces the one of its kind with the same id
	nal  []byte
}

// params are the current parameter sets.
type params []parameterSet

// remember keeps the unit's parameter sets for later key frames. A unit with an SPS
// replaces all.
func (u *unpacker) remember(out *nalUnit, read func(*parameterSet, *unit)) error {
	if len(out.sets) == 0 {
		return nil
	}
	var kept params
	if !out.hasSPS {
		kept = slices.Clone(u.params)
	}
	for _, s := range out.sets {
		if len(s.nal) > maxSetBytes {
			return fmt.Errorf("expected a parameter set of at most %d bytes, got %d", maxSetBytes, len(s.nal))
		}
		read(&s, &out.unit)
		same := func(k parameterSet) bool { return k.kind == s.kind && k.id == s.id }
		if i := slices.IndexFunc(kept, same); i >= 0 {
			kept[i] = s
		} else {
			kept = append(kept, s)
		}
		if len(kept) > maxSets || kept.bytes() > maxSetsBytes {
			return fmt.Errorf("expected at most %d parameter sets of together %d bytes, got more", maxSets, maxSetsBytes)
		}
	}
	for i := range kept {
		kept[i].nal = bytes.Clone(kept[i].nal) // a part of the unit's data
	}
	u.params = kept
	return nil
}

// signalled keeps parameter sets of the signalling until the stream has its own. It returns the picture size.
func (u *unpacker) signalled(sets [][]byte) (width, height int) {
	var out nalUnit
	read := h264Set
	for _, nal := range sets {
		if len(nal) < 3 {
			return 0, 0
		}
		s := parameterSet{kind: nal[0] & 0x1f, nal: nal}
		if u.codec == media.H265 {
			s.kind, read = nal[0]>>1&0x3f, h265Set
		}
		out.sets = append(out.sets, s)
	}
	if err := u.remember(&out, read); err != nil {
		return 0, 0 // the stream may have better ones
	}
	return out.width, out.height
}

// bytes returns the length of all sets.
func (p params) bytes() int {
	n := 0
	for _, s := range p {
		n += len(s.nal)
	}
	return n
}

// annexB returns an access unit with the sets before it.
func (p params) annexB(unit []byte) []byte {
	b := make([]byte, 0, p.bytes()+4*len(p)+len(unit))
	for _, s := range p {
		b = append(append(b, 0, 0, 0, 1), s.nal...)
	}
	return append(b, unit...)
}

// aggregate returns an aggregation packet of the sets. Their bound fits the 16-bit lengths.
func (p params) aggregate(header []byte) []byte {
	b := make([]byte, 0, len(header)+p.bytes()+2*len(p))
	b = append(b, header...)
	for _, s := range p {
		b = binary.BigEndian.AppendUint16(b, uint16(len(s.nal))) //nolint:gosec // at most maxSetBytes
		b = append(b, s.nal...)
	}
	return b
}

// h264Set reads the id of an SPS or PPS, and the picture size of an SPS.
func h264Set(s *parameterSet, out *unit) {
	if s.kind == h264PPS {
		b := bits{data: h264.EmulationPreventionRemove(s.nal[1:])}
		s.id = b.golomb()
		return
	}
	var sps h264.SPS
	err := sps.Unmarshal(s.nal)
	s.id = sps.ID
	if err != nil && sps.VUI == nil {
		out.width, out.height = 0, 0
		return // the VUI is after the size, so its errors are ignored
	}
	w := sps.Width()
	if c := sps.FrameCropping; c != nil && (sps.ChromaFormatIdc == 0 || sps.SeparateColourPlaneFlag) {
		w -= int(c.LeftOffset) + int(c.RightOffset) // CropUnitX is 1; the library uses 0
	}
	out.width, out.height = plausible(w, sps.Height())
}

// h265Set reads the id of a VPS, SPS or PPS, and the picture size of an SPS.
func h265Set(s *parameterSet, out *unit) {
	b := bits{data: h264.EmulationPreventionRemove(s.nal[2:])}
	switch s.kind {
	case h265VPS:
		s.id = b.read(4)
	case h265PPS:
		s.id = b.golomb()
	case h265SPS:
		var w, h int
		s.id, w, h = h265SPSHead(&b)
		if w > 0 && s.nal[0]&1 == 0 && s.nal[1]>>3 == 0 { // of the base layer
			out.width, out.height = w, h
		}
	}
}

// h265SPSHead reads a sequence parameter set (H.265 section 7.3.2.2.1) up to the
// picture size and conformance window. The size is 0 if it is malformed. mediacommon's
// parser does not support sub-layers with their own profile or level, or long-term
// references; encoders with temporal layers write both.
func h265SPSHead(b *bits) (id uint32, width, height int) {
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
	id = b.golomb()
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
		return id, 0, 0
	}
	width, height = plausible(w, h)
	return id, width, height
}
