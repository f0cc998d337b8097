package whep

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pion/interceptor"
	"github.com/pion/interceptor/pkg/nack"
	"github.com/pion/sdp/v3"
	"github.com/pion/webrtc/v4"

	"touchline/media"
	"touchline/media/signaling"
)

// resend is how many packets are kept for players that lost some: seconds of an ordinary picture.
const resend = 2048

// maxFormats bounds the payload types of one section that are looked at.
const maxFormats = 128

// offer is a player's offer.
type offer struct {
	*signaling.Offer

	// video is how each codec is to be sent, in the player's order; audio is Opus, nil when it is not wanted.
	video []webrtc.RTPCodecParameters
	audio *webrtc.RTPCodecParameters
}

// readOffer checks an offer against what WHEP allows (sections 4.2 and 4.4 of the draft).
func readOffer(text string) (*offer, error) {
	common, err := signaling.ReadOffer(plain(text), signaling.Terms{
		Wanted: "recvonly or sendrecv", Refused: []string{"sendonly", "inactive"}, Data: true, Take: take,
		None: func(kind webrtc.RTPCodecType, offered []string) error {
			want := "H264, VP8, VP9 or AV1"
			if kind == webrtc.RTPCodecTypeAudio {
				want = "Opus"
			}
			return fmt.Errorf("expected %s, got %s", want, strings.Join(offered, ", "))
		},
	})
	if err != nil {
		return nil, err
	}
	o := &offer{Offer: common}
	for _, c := range o.Codecs[webrtc.RTPCodecTypeVideo] {
		if !strings.EqualFold(c.MimeType, webrtc.MimeTypeRTX) {
			o.video = append(o.video, c)
		}
	}
	if audio := o.Codecs[webrtc.RTPCodecTypeAudio]; len(audio) > 0 {
		o.audio = &audio[0]
	}
	return o, nil
}

// plain is an offer with what players leave out or say otherwise, and the library wants in one way.
func plain(text string) string {
	var d sdp.SessionDescription
	if d.UnmarshalString(text) != nil {
		return text // ReadOffer says what is wrong
	}
	changed := false
	for _, m := range d.MediaDescriptions {
		switch m.MediaName.Media {
		case "video":
			changed = completeH264(m) || changed
			fallthrough
		case "audio":
			changed = receiving(&d, m) || changed
		}
	}
	if !changed {
		return text
	}
	out, err := d.Marshal()
	if err != nil {
		return text
	}
	return string(out)
}

// receiving makes recvonly of sendrecv, which a section without a direction is (RFC 8866 section 6.7): nothing is
// taken from a player, so that the answer is sendonly to both.
func receiving(d *sdp.SessionDescription, m *sdp.MediaDescription) (changed bool) {
	direction := func(all []sdp.Attribute) string {
		for _, a := range all {
			switch a.Key {
			case "sendrecv", "recvonly", "sendonly", "inactive":
				return a.Key
			}
		}
		return ""
	}
	if way := cmp.Or(direction(m.Attributes), direction(d.Attributes), "sendrecv"); way != "sendrecv" {
		return false
	}
	m.Attributes = slices.DeleteFunc(m.Attributes, func(a sdp.Attribute) bool { return a.Key == "sendrecv" })
	m.Attributes = append(m.Attributes, sdp.NewPropertyAttribute("recvonly"))
	return true
}

// completeH264 says of H264 what programs leave out that take any: GStreamer names no parameters at all. The
// library would pass it over for every codec that is described in full.
func completeH264(m *sdp.MediaDescription) (changed bool) {
	one := &sdp.SessionDescription{MediaDescriptions: []*sdp.MediaDescription{m}}
	for _, format := range m.MediaName.Formats[:min(len(m.MediaName.Formats), maxFormats)] {
		pt, err := strconv.ParseUint(format, 10, 7)
		if err != nil {
			continue
		}
		c, err := one.GetCodecForPayloadType(uint8(pt))
		if err != nil || !strings.EqualFold(c.Name, media.H264.String()) {
			continue
		}
		line := c.Fmtp
		for _, p := range []string{"packetization-mode=1", "profile-level-id=42e01f"} {
			if key, _, _ := strings.Cut(p, "="); !strings.Contains(line, key+"=") {
				line = strings.TrimPrefix(line+";"+p, ";")
			}
		}
		if line == c.Fmtp {
			continue
		}
		changed = true
		head := format + " "
		m.Attributes = slices.DeleteFunc(m.Attributes, func(a sdp.Attribute) bool {
			return a.Key == "fmtp" && strings.HasPrefix(a.Value, head)
		})
		m.Attributes = append(m.Attributes, sdp.NewAttribute("fmtp", head+line))
	}
	return changed
}

// take tells what can be sent, and what players may say about it.
func take(kind webrtc.RTPCodecType, c sdp.Codec) ([]webrtc.RTCPFeedback, bool) {
	if kind == webrtc.RTPCodecTypeAudio {
		return nil, signaling.IsOpus(c)
	}
	return []webrtc.RTCPFeedback{{Type: "nack"}, {Type: "nack", Parameter: "pli"}, {Type: "ccm", Parameter: "fir"}}, canSend(c)
}

// canSend tells what the delayed picture may be. H264 comes in packets of several units (packetization-mode 1).
func canSend(c sdp.Codec) bool {
	codec, err := media.ParseCodec(c.Name)
	if err != nil || c.ClockRate != media.VideoClockRate {
		return false
	}
	switch codec {
	case media.H264:
		return strings.Contains(c.Fmtp, "packetization-mode=1")
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

// names lists the codecs for the picture.
func (o *offer) names() string {
	var all []string
	for _, p := range o.video {
		if name := strings.TrimPrefix(p.MimeType, "video/"); !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return strings.Join(all, ", ")
}

// engines registers what the offer has, and no more.
func (o *offer) engines() (*webrtc.MediaEngine, *interceptor.Registry, error) {
	m, r := &webrtc.MediaEngine{}, &interceptor.Registry{}
	if err := o.Register(m); err != nil {
		return nil, nil, err
	}
	responder, err := nack.NewResponderInterceptor(nack.ResponderSize(resend))
	if err != nil {
		return nil, nil, err
	}
	r.Add(responder)
	return m, r, webrtc.ConfigureRTCPReports(r)
}
