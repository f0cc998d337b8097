package whip

import (
	"net/netip"

	"github.com/pion/webrtc/v4"

	"touchline/media/signaling"
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
	if _, _, err := o.engines(); err != nil {
		return err
	}
	if _, err := signaling.Restarted(text, signaling.Fragment{Ufrag: "abcd", Pwd: "0123456789012345678901"}); err != nil {
		return err
	}
	if _, err := signaling.Polished(text, true); err != nil {
		return err
	}
	_, err = signaling.AnswerFragment(text)
	return err
}

// CheckFragment parses the untrusted body of a PATCH.
func CheckFragment(body []byte) (ufrag, pwd string, candidates int, err error) {
	f, err := signaling.ReadFragment(body)
	return f.Ufrag, f.Pwd, len(f.Candidates), err
}
