package signaling

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/pion/sdp/v3"
)

// Bounds of a fragment.
const (
	maxFragment   = 16 << 10
	maxCandidates = 64
)

// fragment is the body of a PATCH (RFC 8840 sections 4.4 and 9): the ICE
// attributes of an SDP offer or answer.
type fragment struct {
	Ufrag, Pwd string
	Mid        string
	Candidates []string // "candidate:..." without "a="
}

// readFragment parses a fragment. It must have ICE credentials; the candidates of
// all sections count, as with BUNDLE there is one transport.
func readFragment(body []byte) (fragment, error) {
	var f fragment
	if len(body) > maxFragment {
		return f, fmt.Errorf("expected an SDP fragment of at most %d bytes, got %d", maxFragment, len(body))
	}
	sections := 0
	for raw := range bytes.Lines(body) {
		line := strings.TrimRight(string(raw), "\r\n")
		if line == "" {
			continue
		}
		if len(line) < 2 || line[1] != '=' {
			return f, errors.New("expected an SDP fragment, got a line without KEY=VALUE")
		}
		switch value := line[2:]; line[0] {
		case 'm':
			sections++
		case 'a':
			key, v, _ := strings.Cut(value, ":")
			if err := f.attribute(key, v, value); err != nil {
				return f, err
			}
		default:
			return f, fmt.Errorf("expected only m= and a= lines in an SDP fragment, got %c=", line[0])
		}
	}
	if len(f.Ufrag) < 4 || len(f.Ufrag) > 256 || len(f.Pwd) < 22 || len(f.Pwd) > 256 {
		return f, errors.New("expected ice-ufrag and ice-pwd in the SDP fragment")
	}
	if len(f.Candidates) > 0 && sections == 0 {
		return f, errors.New("expected candidates below an m= line")
	}
	return f, nil
}

func (f *fragment) attribute(key, value, line string) error {
	switch key {
	case "ice-ufrag":
		if f.Ufrag != "" && f.Ufrag != value {
			return errors.New("expected one ice-ufrag, got two")
		}
		f.Ufrag = value
	case "ice-pwd":
		if f.Pwd != "" && f.Pwd != value {
			return errors.New("expected one ice-pwd, got two")
		}
		f.Pwd = value
	case "mid":
		if f.Mid == "" {
			f.Mid = value
		}
	case "candidate":
		if len(f.Candidates) >= maxCandidates {
			return fmt.Errorf("expected at most %d candidates, got more", maxCandidates)
		}
		f.Candidates = append(f.Candidates, line)
	}
	return nil
}

// restarted returns the offer with the ICE attributes of a fragment in place of its own.
func restarted(offer string, f fragment) (string, error) {
	var d sdp.SessionDescription
	if err := d.UnmarshalString(offer); err != nil {
		return "", err
	}
	d.Origin.SessionVersion++
	d.Attributes = withICE(d.Attributes, f)
	for i, m := range d.MediaDescriptions {
		m.Attributes = withICE(m.Attributes, f)
		if i == 0 {
			for _, c := range f.Candidates {
				m.Attributes = append(m.Attributes, sdp.Attribute{Key: "candidate", Value: strings.TrimPrefix(c, "candidate:")})
			}
		}
	}
	out, err := d.Marshal()
	return string(out), err
}

func withICE(in []sdp.Attribute, f fragment) []sdp.Attribute {
	out := make([]sdp.Attribute, 0, len(in))
	for _, a := range in {
		switch a.Key {
		case "candidate", "end-of-candidates":
			continue
		case "ice-ufrag":
			a.Value = f.Ufrag
		case "ice-pwd":
			a.Value = f.Pwd
		}
		out = append(out, a)
	}
	return out
}

// answerFragment returns the ICE attributes of an answer, for the 200 of a restart.
// It repeats the answer's ice-options and ice-lite (RFC 9725 section 4.3.3).
func answerFragment(answer string) (string, error) {
	var d sdp.SessionDescription
	if err := d.UnmarshalString(answer); err != nil {
		return "", err
	}
	var b strings.Builder
	for _, a := range d.Attributes {
		if a.Key == "ice-lite" || a.Key == "ice-options" || a.Key == "ice-pacing" || a.Key == "group" {
			fmt.Fprintf(&b, "a=%s\r\n", attribute(a))
		}
	}
	for i, m := range d.MediaDescriptions {
		if i > 0 {
			break
		}
		fmt.Fprintf(&b, "m=%s\r\n", m.MediaName.String())
		for _, a := range m.Attributes {
			switch a.Key {
			case "mid", "ice-ufrag", "ice-pwd", "ice-options", "candidate", "end-of-candidates":
				fmt.Fprintf(&b, "a=%s\r\n", attribute(a))
			}
		}
	}
	return b.String(), nil
}

func attribute(a sdp.Attribute) string {
	if a.Value == "" {
		return a.Key
	}
	return a.Key + ":" + a.Value
}

// polished returns an answer with its candidates sorted for clients that read the
// first one only: IPv4 first, loopback last and only for local clients. It adds
// rtcp-mux-only (RFC 9725 section 4.4.1).
func polished(answer string, local bool) (string, error) {
	var d sdp.SessionDescription
	if err := d.UnmarshalString(answer); err != nil {
		return "", err
	}
	for _, m := range d.MediaDescriptions {
		var others, first, then, last []sdp.Attribute
		ended := false
		for _, a := range m.Attributes {
			switch {
			case a.Key == "end-of-candidates":
				ended = true
				continue
			case a.Key != "candidate":
				others = append(others, a)
				if a.Key == "rtcp-mux" {
					others = append(others, sdp.Attribute{Key: "rtcp-mux-only"})
				}
				continue
			}
			words := strings.Fields(a.Value)
			if len(words) < 6 {
				continue
			}
			ip, err := netip.ParseAddr(words[4])
			switch {
			case words[1] != "1":
				// Component 2 is RTCP without rtcp-mux.
			case err == nil && ip.IsLoopback():
				last = append(last, a)
			case err == nil && ip.Is4():
				first = append(first, a)
			default:
				then = append(then, a)
			}
		}
		if !local && len(first)+len(then) > 0 {
			last = nil
		}
		m.Attributes = slices.Concat(others, first, then, last)
		if ended {
			m.Attributes = append(m.Attributes, sdp.Attribute{Key: "end-of-candidates"})
		}
	}
	out, err := d.Marshal()
	return string(out), err
}
