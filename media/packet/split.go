package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"touchline/media"
)

// errShort is returned for a payload that ends within its header.
var errShort = errors.New("incomplete payload header")

// pieces cuts b into as few parts of at most n bytes as possible, of about the same
// size.
func pieces(b []byte, n int) [][]byte {
	count := (len(b) + n - 1) / n
	out := make([][]byte, 0, count)
	for i := range count {
		out = append(out, b[i*len(b)/count:(i+1)*len(b)/count])
	}
	return out
}

// split cuts a payload into several of at most MaxPayload.
func split(out [][]byte, codec media.Codec, b []byte) ([][]byte, error) {
	switch codec {
	case media.H264:
		return splitH264(out, b)
	case media.H265:
		return splitH265(out, b)
	case media.AV1:
		return splitAV1(out, b)
	case media.VP8, media.VP9, media.CodecUnknown:
	}
	return out, fmt.Errorf("payloads of %v cannot be split", codec)
}

// fragments writes body as fragmentation units with a header, whose last byte is the
// FU header. start and end are set if body has the start and the end of the NAL unit.
func fragments(out [][]byte, header, body []byte, start, end bool) [][]byte {
	parts := pieces(body, MaxPayload-len(header))
	for i, part := range parts {
		q := slices.Concat(header, part)
		fu := &q[len(header)-1]
		*fu &= 0x3f
		if start && i == 0 {
			*fu |= 0x80
		}
		if end && i == len(parts)-1 {
			*fu |= 0x40
		}
		out = append(out, q)
	}
	return out
}

// units calls emit for every NAL unit of an aggregation packet's body.
func units(body []byte, emit func(nal []byte) error) error {
	for len(body) > 0 {
		if len(body) < 2 {
			return errShort
		}
		n := int(binary.BigEndian.Uint16(body))
		if n > len(body)-2 {
			return errShort
		}
		if n > 0 {
			if err := emit(body[2 : 2+n]); err != nil {
				return err
			}
		}
		body = body[2+n:]
	}
	return nil
}

// splitH264 follows RFC 6184: it splits a NAL unit into FU-A, a STAP-A into its NAL
// units, a FU-A into smaller ones.
func splitH264(out [][]byte, b []byte) ([][]byte, error) {
	if len(b) <= MaxPayload {
		return append(out, b), nil
	}
	switch t := b[0] & 0x1f; {
	case t >= 1 && t <= 23:
		return fragments(out, []byte{b[0]&0xe0 | 28, t}, b[1:], true, true), nil
	case t == 24:
		err := units(b[1:], func(nal []byte) (err error) {
			if nal[0]&0x1f > 23 {
				return fmt.Errorf("expected a NAL unit in a STAP-A, got type %d", nal[0]&0x1f)
			}
			out, err = splitH264(out, nal)
			return err
		})
		return out, err
	case t == 28:
		return fragments(out, []byte{b[0], b[1] & 0x1f}, b[2:], b[1]&0x80 != 0, b[1]&0x40 != 0), nil
	default:
		return out, fmt.Errorf("expected a NAL unit, STAP-A or FU-A to split, got type %d", t)
	}
}

// splitH265 follows RFC 7798, as splitH264 does RFC 6184.
func splitH265(out [][]byte, b []byte) ([][]byte, error) {
	if len(b) <= MaxPayload {
		return append(out, b), nil
	}
	switch t := b[0] >> 1 & 0x3f; {
	case t < 48:
		return fragments(out, []byte{b[0]&0x81 | 49<<1, b[1], t}, b[2:], true, true), nil
	case t == 48:
		err := units(b[2:], func(nal []byte) (err error) {
			if nal[0]>>1&0x3f >= 48 {
				return fmt.Errorf("expected a NAL unit in an AP, got type %d", nal[0]>>1&0x3f)
			}
			out, err = splitH265(out, nal)
			return err
		})
		return out, err
	case t == 49:
		return fragments(out, []byte{b[0], b[1], b[2] & 0x3f}, b[3:], b[2]&0x80 != 0, b[2]&0x40 != 0), nil
	default:
		return out, fmt.Errorf("expected a NAL unit, AP or FU to split, got type %d", t)
	}
}

// The aggregation header of the AV1 RTP payload specification, section 4.4.
const (
	av1Z = 0x80 // the first element continues the previous packet's last one
	av1Y = 0x40 // the last element continues in the next packet
	av1W = 0x30 // number of elements, 0 if each has a length
	av1N = 0x08 // first packet of a coded video sequence
)

// splitAV1 writes each OBU element of a packet to packets of its own, with W = 1.
func splitAV1(out [][]byte, b []byte) ([][]byte, error) {
	head, rest := b[0], b[1:]
	count := int(head & av1W >> 4)
	first := true
	for i := 1; len(rest) > 0; i++ {
		n := len(rest)
		if count == 0 || i < count {
			size, used := 0, 0
			for shift := 0; ; shift += 7 {
				if used >= len(rest) || used == 5 {
					return out, errShort
				}
				v := rest[used]
				used++
				size |= int(v&0x7f) << shift
				if v&0x80 == 0 {
					break
				}
			}
			if rest = rest[used:]; size > len(rest) {
				return out, errShort
			}
			n = size
		}
		element := rest[:n]
		rest = rest[n:]
		if n == 0 {
			continue
		}
		parts := pieces(element, MaxPayload-1)
		for j, part := range parts {
			h := byte(1 << 4)
			if j > 0 || first && head&av1Z != 0 {
				h |= av1Z
			}
			if j < len(parts)-1 || len(rest) == 0 && head&av1Y != 0 {
				h |= av1Y
			}
			if first && j == 0 {
				h |= head & av1N
			}
			out = append(out, slices.Concat([]byte{h}, part))
		}
		first = false
	}
	return out, nil
}
