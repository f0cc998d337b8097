package signaling

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pion/interceptor"
	"github.com/pion/sdp/v3"
	"github.com/pion/webrtc/v4"

	"touchline/media"
)

// MaxFormats is the largest number of payload types of a section: as many as are dynamic (RFC 3551 section 6, RFC 5761). maxAttributes
// bounds its attributes. The library's work for a section is the product of both.
const (
	MaxFormats    = 64
	maxAttributes = 512
)

// Terms are a server's requirements on an offer.
type Terms struct {
	// Receive is set if the server receives media; otherwise it sends media.
	Receive bool
	// Data allows one section for data channels.
	Data bool
	// Video returns whether a video codec with these format parameters is supported. Names lists the codecs for errors.
	Video func(codec media.Codec, fmtp string) bool
	Names string
	// AudioFeedback and VideoFeedback are the RTCP messages in use (RFC 4585 section 4.2).
	AudioFeedback, VideoFeedback []webrtc.RTCPFeedback
}

// Offer is an SDP offer that can be answered as a whole.
type Offer struct {
	Text string
	Desc *sdp.SessionDescription
	// Codecs are the supported ones, as offered and in the client's order, followed by their RTX (RFC 4588).
	Codecs map[webrtc.RTPCodecType][]webrtc.RTPCodecParameters
	// Data is set if there is a section for data channels.
	Data bool

	direction  string // of the answer
	mids       []string
	ufrag, pwd string // ICE credentials, the same in each section
}

// ReadOffer parses an offer and checks it against RFC 9725 (sections 4.2 and 4.4, which WHEP mirrors) and the server's
// own terms. An offer is accepted or refused as a whole.
func ReadOffer(text string, terms Terms) (*Offer, error) {
	o := &Offer{
		Text: text, Desc: &sdp.SessionDescription{}, Codecs: map[webrtc.RTPCodecType][]webrtc.RTPCodecParameters{}, direction: "sendonly",
	}
	if terms.Receive {
		o.direction = "recvonly"
	}
	if err := o.Desc.UnmarshalString(text); err != nil {
		return nil, fmt.Errorf("%w: expected SDP: %w", ErrMalformed, err)
	}
	if len(o.Desc.MediaDescriptions) == 0 {
		return nil, fmt.Errorf("%w: expected a media section, got none", ErrMalformed)
	}
	for _, m := range o.Desc.MediaDescriptions {
		if err := o.section(m, terms); err != nil {
			return nil, err
		}
	}
	if len(o.Codecs) == 0 {
		return nil, errors.New("expected a video or an audio section, got data only")
	}
	return o, o.bundle()
}

func (o *Offer) section(m *sdp.MediaDescription, terms Terms) error {
	name := m.MediaName.Media
	kind := webrtc.NewRTPCodecType(name)
	data := terms.Data && name == "application"
	_, bundleOnly := m.Attribute("bundle-only")
	switch {
	case data && (o.Data || !strings.Contains(strings.Join(m.MediaName.Protos, "/"), "SCTP")):
		return errors.New("expected one section for data channels at most, got another")
	case kind == 0 && !data && terms.Data:
		return fmt.Errorf("expected audio, video and data only, got a section of %q", name)
	case kind == 0 && !data:
		return fmt.Errorf("expected audio and video only, got a section of %q", name)
	case o.Codecs[kind] != nil:
		return fmt.Errorf("expected one %s track at most, got two", name)
	case m.MediaName.Port.Value == 0 && !bundleOnly:
		return fmt.Errorf("expected a port other than 0 for every track, got a %s section with port 0", name)
	}
	if err := o.mid(m); err != nil {
		return err
	}
	if err := o.transport(m); err != nil {
		return err
	}
	if data {
		o.Data = true
		return nil
	}
	wanted := "recvonly"
	if terms.Receive {
		wanted = "sendonly"
	}
	for _, d := range []string{o.direction, "inactive"} {
		if o.directed(m, d) {
			return fmt.Errorf("expected %s or sendrecv for %s, got %s", wanted, name, d)
		}
	}
	if _, ok := m.Attribute("rtcp-mux"); !ok {
		return fmt.Errorf("expected rtcp-mux for %s", name)
	}
	return o.readCodecs(kind, m, terms)
}

// readCodecs keeps the supported codecs of a section.
func (o *Offer) readCodecs(kind webrtc.RTPCodecType, m *sdp.MediaDescription, terms Terms) error {
	if len(m.MediaName.Formats) > MaxFormats {
		return fmt.Errorf("%w: expected at most %d codecs, got %d", ErrMalformed, MaxFormats, len(m.MediaName.Formats))
	}
	if len(m.Attributes) > maxAttributes {
		return fmt.Errorf("%w: expected at most %d attributes of a section, got %d", ErrMalformed, maxAttributes, len(m.Attributes))
	}
	described := (&sdp.SessionDescription{MediaDescriptions: []*sdp.MediaDescription{m}}).GetCodecMap()
	var supported, repairs []webrtc.RTPCodecParameters
	var names []string
	for _, format := range m.MediaName.Formats {
		pt, err := strconv.ParseUint(format, 10, 7)
		if err != nil {
			return fmt.Errorf("%w: expected payload types, got %q", ErrMalformed, format)
		}
		c, ok := described[uint8(pt)]
		if !ok {
			continue
		}
		names = append(names, c.Name)
		p := webrtc.RTPCodecParameters{PayloadType: webrtc.PayloadType(pt), RTPCodecCapability: webrtc.RTPCodecCapability{
			MimeType: kind.String() + "/" + c.Name, ClockRate: c.ClockRate, SDPFmtpLine: c.Fmtp,
		}}
		switch {
		case kind == webrtc.RTPCodecTypeAudio:
			if strings.EqualFold(c.Name, "opus") && c.ClockRate == 48000 {
				p.RTCPFeedback, p.Channels = terms.AudioFeedback, 2 // always 2 for Opus (RFC 7587 section 7)
				supported = append(supported, p)
			}
		case strings.EqualFold(c.Name, "rtx"):
			repairs = append(repairs, p)
		case terms.video(c):
			p.RTCPFeedback = terms.VideoFeedback
			supported = append(supported, p)
		}
	}
	if len(supported) == 0 {
		want := terms.Names
		if kind == webrtc.RTPCodecTypeAudio {
			want = "Opus"
		}
		return fmt.Errorf("expected %s, got %s", want, strings.Join(names, ", "))
	}
	for _, r := range repairs {
		if slices.ContainsFunc(supported, func(c webrtc.RTPCodecParameters) bool {
			return r.SDPFmtpLine == "apt="+strconv.Itoa(int(c.PayloadType))
		}) {
			supported = append(supported, r)
		}
	}
	o.Codecs[kind] = supported
	return nil
}

// video reports whether a video codec is supported. Of VP9 that is 8 bit, 4:2:0.
func (t Terms) video(c sdp.Codec) bool {
	codec, err := media.ParseCodec(c.Name)
	if err != nil || c.ClockRate != media.VideoClockRate ||
		codec == media.VP9 && strings.Contains(c.Fmtp, "profile-id=") && !strings.Contains(c.Fmtp, "profile-id=0") {
		return false
	}
	return t.Video(codec, c.Fmtp)
}

// Engines returns a media engine with the offer's codecs, and interceptors for retransmission and RTCP reports.
func (o *Offer) Engines(nack interceptor.Factory) (*webrtc.MediaEngine, *interceptor.Registry, error) {
	m, r := &webrtc.MediaEngine{}, &interceptor.Registry{}
	for kind, codecs := range o.Codecs {
		for _, c := range codecs {
			if err := m.RegisterCodec(c, kind); err != nil {
				return nil, nil, fmt.Errorf("register %s: %w", c.MimeType, err)
			}
		}
	}
	r.Add(nack)
	return m, r, webrtc.ConfigureRTCPReports(r)
}

// mid reads the identification of a section.
func (o *Offer) mid(m *sdp.MediaDescription) error {
	mid, _ := m.Attribute("mid")
	if mid == "" || slices.Contains(o.mids, mid) {
		return fmt.Errorf("%w: expected a mid of its own for each section", ErrMalformed)
	}
	o.mids = append(o.mids, mid)
	return nil
}

// transport checks the transport attributes of a section.
func (o *Offer) transport(m *sdp.MediaDescription) error {
	if setup := o.either(m, "setup"); setup == "holdconn" {
		return errors.New("expected setup actpass or active, got holdconn")
	}
	ufrag, pwd := o.either(m, "ice-ufrag"), o.either(m, "ice-pwd")
	// RFC 8839 section 5.4: 4 to 256 and 22 to 256 characters.
	if len(ufrag) < 4 || len(ufrag) > 256 || len(pwd) < 22 || len(pwd) > 256 {
		return fmt.Errorf("%w: expected ice-ufrag and ice-pwd", ErrMalformed)
	}
	if o.ufrag == "" {
		o.ufrag, o.pwd = ufrag, pwd
	}
	if o.ufrag != ufrag || o.pwd != pwd {
		return errors.New("expected one transport for all tracks (BUNDLE), got several ICE credentials")
	}
	if o.either(m, "fingerprint") == "" {
		return fmt.Errorf("%w: expected a DTLS fingerprint", ErrMalformed)
	}
	return nil
}

// bundle checks that all sections are in one group (RFC 9143).
func (o *Offer) bundle() error {
	if len(o.mids) < 2 {
		return nil
	}
	for _, a := range o.Desc.Attributes {
		if a.Key != "group" {
			continue
		}
		words := strings.Fields(a.Value)
		if len(words) > 0 && words[0] == "BUNDLE" && !slices.ContainsFunc(o.mids, func(mid string) bool {
			return !slices.Contains(words[1:], mid)
		}) {
			return nil
		}
	}
	return errors.New("expected all tracks in one BUNDLE group")
}

// EditSDP returns an SDP text changed by edit, or unchanged if it is malformed or edit returns false.
func EditSDP(text string, edit func(*sdp.SessionDescription) bool) string {
	var d sdp.SessionDescription
	if d.UnmarshalString(text) != nil || !edit(&d) {
		return text
	}
	out, err := d.Marshal()
	if err != nil {
		return text
	}
	return string(out)
}

// bundled returns an offer with a BUNDLE group, which the library needs even around
// a single section. alone reports whether it was added.
func bundled(offer string) (text string, alone bool) {
	text = EditSDP(offer, func(d *sdp.SessionDescription) bool {
		if _, ok := d.Attribute("group"); ok || len(d.MediaDescriptions) != 1 {
			return false
		}
		mid, _ := d.MediaDescriptions[0].Attribute("mid")
		d.Attributes = append(d.Attributes, sdp.NewAttribute("group", "BUNDLE "+mid))
		alone = true
		return true
	})
	return text, alone
}

// ungrouped returns an answer without the group that its offer did not have (RFC 5888 section 9.1).
func ungrouped(answer string) string {
	return EditSDP(answer, func(d *sdp.SessionDescription) bool {
		d.Attributes = slices.DeleteFunc(d.Attributes, func(a sdp.Attribute) bool { return a.Key == "group" })
		return true
	})
}

// either returns an attribute of the section, or else of the session.
func (o *Offer) either(m *sdp.MediaDescription, key string) string {
	if v, ok := m.Attribute(key); ok {
		return v
	}
	v, _ := o.Desc.Attribute(key)
	return v
}

// directed reports whether a section has a direction: its own, or the session's if it has none.
func (o *Offer) directed(m *sdp.MediaDescription, key string) bool {
	if _, ok := m.Attribute(key); ok {
		return true
	}
	_, session := o.Desc.Attribute(key)
	return session && !slices.ContainsFunc(m.Attributes, func(a sdp.Attribute) bool {
		return a.Key == "sendonly" || a.Key == "sendrecv" || a.Key == "recvonly" || a.Key == "inactive"
	})
}
