package whip

import (
	"net/netip"

	"github.com/pion/webrtc/v4"
)

// RemoteCandidates returns the sender's addresses that are checked, one for each candidate.
func (x *Session) RemoteCandidates() []netip.AddrPort {
	var out []netip.AddrPort
	for _, s := range x.PC.GetStats() {
		if c, ok := s.(webrtc.ICECandidateStats); ok && c.Type == webrtc.StatsTypeRemoteCandidate {
			out = append(out, netip.AddrPortFrom(netip.MustParseAddr(c.IP), uint16(c.Port)))
		}
	}
	return out
}

// CheckOffer parses an untrusted offer.
func CheckOffer(text string) error {
	o, err := readOffer(text)
	if err != nil {
		return err
	}
	_, _, err = o.engines()
	return err
}
