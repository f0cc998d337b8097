package packet

import (
	"strconv"
	"strings"

	"github.com/pion/rtp"
)

// Orientation is the id of the RTP header extension for the orientation of a picture (3GPP TS 26.114 section 7.4.5), 0 without it.
type Orientation uint8

// ReadOrientation reads the value of an extmap attribute (RFC 8285 section 5); 0 for another extension.
func ReadOrientation(extmap string) Orientation {
	fields := strings.Fields(extmap)
	if len(fields) < 2 || fields[1] != "urn:3gpp:video-orientation" {
		return 0
	}
	id, _, _ := strings.Cut(fields[0], "/")
	n, _ := strconv.ParseUint(id, 10, 8)
	return Orientation(n)
}

// Turn returns the quarter turns, clockwise, that make the picture of a packet upright. Packets that do not say it keep the previous value.
func (o Orientation) Turn(p *rtp.Packet, previous uint8) uint8 {
	if b := p.GetExtension(uint8(o)); o > 0 && len(b) > 0 {
		return b[0] & 3
	}
	return previous
}
