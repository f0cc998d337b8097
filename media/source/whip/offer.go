package whip

import (
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

// maxCodecs bounds the payload types of one media section.
const maxCodecs = 128

// offer is an SDP offer that can be met.
type offer struct {
	*wish.Offer

	codecs    map[webrtc.RTPCodecType][]webrtc.RTPCodecParameters
	simulcast bool
}

// readOffer checks an offer against what RFC 9725 allows (sections 4.2 and 4.4)
// and what this server does. It never accepts a part of one.
func readOffer(text string) (*offer, error) {
	common, err := wish.ReadOffer(text)
	if err != nil {
		return nil, err
	}
	o := &offer{Offer: common, codecs: map[webrtc.RTPCodecType][]webrtc.RTPCodecParameters{}}
	streams := map[string]bool{}
	for _, m := range o.Desc.MediaDescriptions {
		if err := o.readMedia(m, streams); err != nil {
			return nil, err
		}
	}
	if len(streams) > 1 {
		return nil, fmt.Errorf("expected one MediaStream, got %d", len(streams))
	}
	return o, o.Bundle()
}

func (o *offer) readMedia(m *sdp.MediaDescription, streams map[string]bool) error {
	kind := webrtc.NewRTPCodecType(m.MediaName.Media)
	name := m.MediaName.Media
	_, bundleOnly := m.Attribute("bundle-only")
	switch {
	case kind == 0:
		return fmt.Errorf("expected audio and video only, got a section of %q", name)
	case o.codecs[kind] != nil:
		return fmt.Errorf("expected one %s track at most, got two", name)
	case m.MediaName.Port.Value == 0 && !bundleOnly:
		return fmt.Errorf("expected every track to be wanted, got a %s section with port 0", name)
	}
	if err := o.Mid(m); err != nil {
		return err
	}
	for _, d := range []string{"recvonly", "inactive"} {
		if o.Directed(m, d) {
			return fmt.Errorf("expected sendonly or sendrecv for %s, got %s", name, d)
		}
	}
	if _, ok := m.Attribute("rtcp-mux"); !ok {
		return fmt.Errorf("expected rtcp-mux for %s", name)
	}
	if err := o.Transport(m); err != nil {
		return err
	}
	for _, a := range m.Attributes {
		switch a.Key {
		case "msid":
			if id, _, _ := strings.Cut(a.Value, " "); id != "" {
				streams[id] = true
			}
		case "simulcast", "rid":
			o.simulcast = true
		}
	}
	codecs, err := readCodecs(kind, m)
	if err != nil {
		return err
	}
	o.codecs[kind] = codecs
	return nil
}

// readCodecs lists what is offered and can be taken, exactly as offered, so that
// whatever the sender picks of it is understood.
func readCodecs(kind webrtc.RTPCodecType, m *sdp.MediaDescription) ([]webrtc.RTPCodecParameters, error) {
	if len(m.MediaName.Formats) > maxCodecs {
		return nil, fmt.Errorf("%w: expected at most %d codecs, got %d", wish.ErrMalformed, maxCodecs, len(m.MediaName.Formats))
	}
	one := &sdp.SessionDescription{MediaDescriptions: []*sdp.MediaDescription{m}}
	var taken, repairs []webrtc.RTPCodecParameters
	var names []string
	for _, format := range m.MediaName.Formats {
		pt, err := strconv.ParseUint(format, 10, 7)
		if err != nil {
			return nil, fmt.Errorf("%w: expected payload types, got %q", wish.ErrMalformed, format)
		}
		c, err := one.GetCodecForPayloadType(uint8(pt))
		if err != nil {
			continue
		}
		p := webrtc.RTPCodecParameters{PayloadType: webrtc.PayloadType(pt), RTPCodecCapability: webrtc.RTPCodecCapability{
			MimeType: kind.String() + "/" + c.Name, ClockRate: c.ClockRate, SDPFmtpLine: c.Fmtp,
		}}
		names = append(names, c.Name)
		switch {
		case kind == webrtc.RTPCodecTypeAudio && strings.EqualFold(c.Name, "opus") && c.ClockRate == 48000:
			p.Channels = 2
			p.RTCPFeedback = []webrtc.RTCPFeedback{{Type: "transport-cc"}}
			taken = append(taken, p)
		case kind == webrtc.RTPCodecTypeVideo && strings.EqualFold(c.Name, "rtx"):
			repairs = append(repairs, p)
		case kind == webrtc.RTPCodecTypeVideo && canTake(c):
			p.RTCPFeedback = []webrtc.RTCPFeedback{
				{Type: "nack"},
				{Type: "nack", Parameter: "pli"},
				{Type: "ccm", Parameter: "fir"},
				{Type: "goog-remb"},
				{Type: "transport-cc"},
			}
			taken = append(taken, p)
		}
	}
	if len(taken) == 0 {
		want := "H264, VP8, VP9, AV1 or H265"
		if kind == webrtc.RTPCodecTypeAudio {
			want = "Opus"
		}
		return nil, fmt.Errorf("expected %s, got %s", want, strings.Join(names, ", "))
	}
	for _, r := range repairs {
		for _, c := range taken {
			if r.SDPFmtpLine == "apt="+strconv.Itoa(int(c.PayloadType)) {
				taken = append(taken, r)
				break
			}
		}
	}
	return taken, nil
}

// canTake tells the video codecs that package ingest understands.
func canTake(c sdp.Codec) bool {
	codec, err := media.ParseCodec(c.Name)
	if err != nil || c.ClockRate != media.VideoClockRate {
		return false
	}
	switch codec {
	case media.H264:
		return !strings.Contains(c.Fmtp, "packetization-mode=2") // interleaved
	case media.VP9:
		return !strings.Contains(c.Fmtp, "profile-id=") || strings.Contains(c.Fmtp, "profile-id=0") // 8 bit, 4:2:0
	case media.VP8, media.H265, media.AV1:
		return true
	case media.CodecUnknown:
	}
	return false
}

// engines registers what the offer has, and no more.
func (o *offer) engines() (*webrtc.MediaEngine, *interceptor.Registry, error) {
	m, r := &webrtc.MediaEngine{}, &interceptor.Registry{}
	for kind, codecs := range o.codecs {
		for _, c := range codecs {
			if err := m.RegisterCodec(c, kind); err != nil {
				return nil, nil, fmt.Errorf("take %s: %w", c.MimeType, err)
			}
		}
	}
	generator, err := nack.NewGeneratorInterceptor()
	if err != nil {
		return nil, nil, err
	}
	r.Add(generator)
	if err := webrtc.ConfigureRTCPReports(r); err != nil {
		return nil, nil, err
	}
	if err := webrtc.ConfigureTWCCSender(m, r); err != nil {
		return nil, nil, err
	}
	if o.simulcast {
		// Without simulcast these stay out, so that senders that do not declare their SSRC are told apart by payload type.
		if err := webrtc.ConfigureSimulcastExtensionHeaders(m); err != nil {
			return nil, nil, err
		}
	}
	return m, r, nil
}
