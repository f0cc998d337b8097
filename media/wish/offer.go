package wish

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pion/sdp/v3"
)

// Offer is an SDP offer as far as all who answer one look at it.
type Offer struct {
	Text string
	Desc *sdp.SessionDescription
	// Mids of the sections that were read, and the one set of ICE credentials.
	Mids       []string
	Ufrag, Pwd string
}

// ReadOffer wants SDP with at least one media section.
func ReadOffer(text string) (*Offer, error) {
	o := &Offer{Text: text, Desc: &sdp.SessionDescription{}}
	if err := o.Desc.UnmarshalString(text); err != nil {
		return nil, fmt.Errorf("%w: expected SDP: %w", ErrMalformed, err)
	}
	if len(o.Desc.MediaDescriptions) == 0 {
		return nil, fmt.Errorf("%w: expected a media section, got none", ErrMalformed)
	}
	return o, nil
}

// Mid reads the section's own.
func (o *Offer) Mid(m *sdp.MediaDescription) error {
	mid, _ := m.Attribute("mid")
	if mid == "" || slices.Contains(o.Mids, mid) {
		return fmt.Errorf("%w: expected a mid of its own for each section", ErrMalformed)
	}
	o.Mids = append(o.Mids, mid)
	return nil
}

// Transport reads what a section says of its transport.
func (o *Offer) Transport(m *sdp.MediaDescription) error {
	if setup := o.either(m, "setup"); setup == "holdconn" {
		return errors.New("expected setup actpass or active, got holdconn")
	}
	ufrag, pwd := o.either(m, "ice-ufrag"), o.either(m, "ice-pwd")
	// RFC 8839 section 5.4: 4 to 256 and 22 to 256 characters.
	if len(ufrag) < 4 || len(ufrag) > 256 || len(pwd) < 22 || len(pwd) > 256 {
		return fmt.Errorf("%w: expected ice-ufrag and ice-pwd", ErrMalformed)
	}
	if o.Ufrag == "" {
		o.Ufrag, o.Pwd = ufrag, pwd
	}
	if o.Ufrag != ufrag || o.Pwd != pwd {
		return errors.New("expected one transport for all tracks (BUNDLE), got several ICE credentials")
	}
	if o.either(m, "fingerprint") == "" {
		return fmt.Errorf("%w: expected a DTLS fingerprint", ErrMalformed)
	}
	return nil
}

// Bundle wants all sections in one group (RFC 9143).
func (o *Offer) Bundle() error {
	if len(o.Mids) < 2 {
		return nil
	}
	for _, a := range o.Desc.Attributes {
		if a.Key != "group" {
			continue
		}
		words := strings.Fields(a.Value)
		if len(words) > 0 && words[0] == "BUNDLE" && !slices.ContainsFunc(o.Mids, func(mid string) bool {
			return !slices.Contains(words[1:], mid)
		}) {
			return nil
		}
	}
	return errors.New("expected all tracks in one BUNDLE group")
}

// bundled is an offer with a BUNDLE group, which the library wants, also around
// the only section of a client that offers none. alone tells that there was none.
func bundled(offer string) (text string, alone bool) {
	var d sdp.SessionDescription
	if err := d.UnmarshalString(offer); err != nil || len(d.MediaDescriptions) != 1 {
		return offer, false
	}
	if _, ok := d.Attribute("group"); ok {
		return offer, false
	}
	mid, _ := d.MediaDescriptions[0].Attribute("mid")
	d.Attributes = append(d.Attributes, sdp.NewAttribute("group", "BUNDLE "+mid))
	out, err := d.Marshal()
	if err != nil {
		return offer, false
	}
	return string(out), true
}

// ungrouped is an answer without the group that its offer did not have (RFC 5888 section 9.1).
func ungrouped(answer string) string {
	var d sdp.SessionDescription
	if err := d.UnmarshalString(answer); err != nil {
		return answer
	}
	d.Attributes = slices.DeleteFunc(d.Attributes, func(a sdp.Attribute) bool { return a.Key == "group" })
	out, err := d.Marshal()
	if err != nil {
		return answer
	}
	return string(out)
}

// either is an attribute of the section or of the session.
func (o *Offer) either(m *sdp.MediaDescription, key string) string {
	if v, ok := m.Attribute(key); ok {
		return v
	}
	v, _ := o.Desc.Attribute(key)
	return v
}

// Directed tells whether a direction is said of a section: there, or for all and not otherwise there.
func (o *Offer) Directed(m *sdp.MediaDescription, key string) bool {
	if _, ok := m.Attribute(key); ok {
		return true
	}
	_, session := o.Desc.Attribute(key)
	return session && !slices.ContainsFunc(m.Attributes, func(a sdp.Attribute) bool {
		return a.Key == "sendonly" || a.Key == "sendrecv" || a.Key == "recvonly" || a.Key == "inactive"
	})
}
