package whip

import (
	"github.com/pion/webrtc/v4"

	"touchline/media/signaling"
)

// RemoteCandidates are those of the sender that are tried.
func (x *Session) RemoteCandidates() []string {
	var out []string
	for _, s := range x.peer.PC.GetStats() {
		if c, ok := s.(webrtc.ICECandidateStats); ok && c.Type == webrtc.StatsTypeRemoteCandidate {
			out = append(out, c.IP)
		}
	}
	return out
}

// CheckOffer and CheckFragment read what strangers send.
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

// CheckFragment reads the body of a PATCH.
func CheckFragment(body []byte) (ufrag, pwd string, candidates int, err error) {
	f, err := signaling.ReadFragment(body)
	return f.Ufrag, f.Pwd, len(f.Candidates), err
}
