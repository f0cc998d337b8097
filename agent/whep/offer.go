package whep

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pion/interceptor"
	"github.com/pion/interceptor/pkg/nack"
	"github.com/pion/sdp/v3"
	"github.com/pion/webrtc/v4"

	"touchline/media"
	"touchline/media/wish"
)

const (
	// maxFormats bounds the payload types of one section.
	maxFormats = 128
	// resend is how many packets are kept for players that lost some: seconds of an ordinary picture.
	resend = 2048
)

// offer is a player's offer.
type offer struct {
	*wish.Offer

	// video is how each codec is to be sent, in the player's order; audio is Opus, nil when it is not wanted.
	video  []webrtc.RTPCodecParameters
	audio  *webrtc.RTPCodecParameters
	all    map[webrtc.RTPCodecType][]webrtc.RTPCodecParameters // what is registered
	data   bool
	wanted map[webrtc.RTPCodecType]bool
}

// readOffer checks an offer against what WHEP allows (sections 4.2 and 4.4 of the draft).
func readOffer(text string) (*offer, error) {
	common, err := wish.ReadOffer(text)
	if err != nil {
		return nil, err
	}
	o := &offer{
		Offer: common, all: map[webrtc.RTPCodecType][]webrtc.RTPCodecParameters{}, wanted: map[webrtc.RTPCodecType]bool{},
	}
	for _, m := range o.Desc.MediaDescriptions {
		if err := o.readMedia(m); err != nil {
			return nil, err
		}
	}
	if len(o.wanted) == 0 {
		return nil, errors.New("expected a video or an audio section, got data only")
	}
	return o, o.Bundle()
}

func (o *offer) readMedia(m *sdp.MediaDescription) error {
	name := m.MediaName.Media
	_, bundleOnly := m.Attribute("bundle-only")
	if m.MediaName.Port.Value == 0 && !bundleOnly {
		return fmt.Errorf("expected every section to be wanted, got %s with port 0", name)
	}
	if err := o.Mid(m); err != nil {
		return err
	}
	if err := o.Transport(m); err != nil {
		return err
	}
	if name == "application" {
		if o.data || !strings.Contains(strings.Join(m.MediaName.Protos, "/"), "SCTP") {
			return errors.New("expected one section for data channels at most, got another")
		}
		o.data = true
		return nil
	}
	kind := webrtc.NewRTPCodecType(name)
	switch {
	case kind == 0:
		return fmt.Errorf("expected audio, video and data only, got a section of %q", name)
	case o.wanted[kind]:
		return fmt.Errorf("expected one %s section at most, got two", name)
	}
	o.wanted[kind] = true
	for _, d := range []string{"sendonly", "inactive"} {
		if o.Directed(m, d) {
			return fmt.Errorf("expected recvonly or sendrecv for %s, got %s", name, d)
		}
	}
	if _, ok := m.Attribute("rtcp-mux"); !ok {
		return fmt.Errorf("expected rtcp-mux for %s", name)
	}
	return o.readCodecs(kind, m)
}

// readCodecs notes what can be sent, exactly as offered.
func (o *offer) readCodecs(kind webrtc.RTPCodecType, m *sdp.MediaDescription) error {
	if len(m.MediaName.Formats) > maxFormats {
		return fmt.Errorf("%w: expected at most %d codecs, got %d", wish.ErrMalformed, maxFormats, len(m.MediaName.Formats))
	}
	one := &sdp.SessionDescription{MediaDescriptions: []*sdp.MediaDescription{m}}
	var names []string
	var repairs []webrtc.RTPCodecParameters
	for _, format := range m.MediaName.Formats {
		pt, err := strconv.ParseUint(format, 10, 7)
		if err != nil {
			return fmt.Errorf("%w: expected payload types, got %q", wish.ErrMalformed, format)
		}
		c, err := one.GetCodecForPayloadType(uint8(pt))
		if err != nil {
			continue
		}
		names = append(names, c.Name)
		p := webrtc.RTPCodecParameters{PayloadType: webrtc.PayloadType(pt), RTPCodecCapability: webrtc.RTPCodecCapability{
			MimeType: kind.String() + "/" + c.Name, ClockRate: c.ClockRate, SDPFmtpLine: c.Fmtp,
		}}
		switch {
		case kind == webrtc.RTPCodecTypeAudio && strings.EqualFold(c.Name, "opus") && c.ClockRate == sampleRate && o.audio == nil:
			p.Channels = 2
			o.audio = &p
			o.all[kind] = append(o.all[kind], p)
		case kind == webrtc.RTPCodecTypeVideo && strings.EqualFold(c.Name, "rtx"):
			repairs = append(repairs, p)
		case kind == webrtc.RTPCodecTypeVideo && canSend(c):
			p.RTCPFeedback = []webrtc.RTCPFeedback{{Type: "nack"}, {Type: "nack", Parameter: "pli"}, {Type: "ccm", Parameter: "fir"}}
			o.video = append(o.video, p)
			o.all[kind] = append(o.all[kind], p)
		}
	}
	if len(o.all[kind]) == 0 {
		want := "H264, VP8, VP9 or AV1"
		if kind == webrtc.RTPCodecTypeAudio {
			want = "Opus"
		}
		return fmt.Errorf("%w: expected %s, got %s", wish.ErrNotAcceptable, want, strings.Join(names, ", "))
	}
	for _, r := range repairs {
		for _, c := range o.video {
			if r.SDPFmtpLine == "apt="+strconv.Itoa(int(c.PayloadType)) {
				o.all[kind] = append(o.all[kind], r)
				break
			}
		}
	}
	return nil
}

// canSend tells what the delayed picture may be. It comes in packets of several units (packetization-mode 1);
// programs that say nothing of it take those as well.
func canSend(c sdp.Codec) bool {
	codec, err := media.ParseCodec(c.Name)
	if err != nil || c.ClockRate != media.VideoClockRate {
		return false
	}
	switch codec {
	case media.H264:
		return !strings.Contains(c.Fmtp, "packetization-mode=") || strings.Contains(c.Fmtp, "packetization-mode=1")
	case media.VP9:
		return !strings.Contains(c.Fmtp, "profile-id=") || strings.Contains(c.Fmtp, "profile-id=0") // 8 bit, 4:2:0
	case media.VP8, media.AV1:
		return true
	case media.H265, media.CodecUnknown: // is transcoded before it comes here
	}
	return false
}

// as finds how a codec is sent to this player.
func (o *offer) as(codec media.Codec) (webrtc.RTPCodecParameters, bool) {
	var found webrtc.RTPCodecParameters
	ok := false
	for _, p := range o.video {
		if !strings.EqualFold(p.MimeType, codec.MimeType()) {
			continue
		}
		if !ok {
			found, ok = p, true
		}
		// What browsers call it that play every profile.
		if codec == media.H264 && strings.Contains(strings.ToLower(p.SDPFmtpLine), "profile-level-id=42e0") {
			return p, true
		}
	}
	return found, ok
}

// engines registers what the offer has, and no more.
func (o *offer) engines() (*webrtc.MediaEngine, *interceptor.Registry, error) {
	m, r := &webrtc.MediaEngine{}, &interceptor.Registry{}
	for kind, codecs := range o.all {
		for _, c := range codecs {
			if err := m.RegisterCodec(c, kind); err != nil {
				return nil, nil, fmt.Errorf("send %s: %w", c.MimeType, err)
			}
		}
	}
	responder, err := nack.NewResponderInterceptor(nack.ResponderSize(resend))
	if err != nil {
		return nil, nil, err
	}
	r.Add(responder)
	return m, r, webrtc.ConfigureRTCPReports(r)
}
