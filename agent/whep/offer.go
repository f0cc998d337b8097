package whep

import (
	"cmp"
	"encoding/hex"
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

// resend is the number of packets stored for retransmission, a few seconds of video.
const resend = 2048

// offer is a player's offer.
type offer struct {
	*signaling.Offer

	// video are the parameters of each codec in the player's order; audio is Opus, nil if it is not offered.
	video []webrtc.RTPCodecParameters
	audio *webrtc.RTPCodecParameters
}

// readOffer parses an offer and checks it against sections 4.2 and 4.4 of the draft.
func readOffer(text string) (*offer, error) {
	common, err := signaling.ReadOffer(plain(text), signaling.Terms{
		Data: true, Names: "H264, VP8, VP9 or AV1", // H265 is transcoded earlier
		Video: func(codec media.Codec, fmtp string) bool {
			return codec != media.H265 && (codec != media.H264 || strings.Contains(fmtp, "packetization-mode=1"))
		},
		VideoFeedback: []webrtc.RTCPFeedback{{Type: "nack"}, {Type: "nack", Parameter: "pli"}, {Type: "ccm", Parameter: "fir"}},
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

// plain returns an offer in the form that the library needs: with explicit directions and H264 parameters.
func plain(text string) string {
	return signaling.EditSDP(text, func(d *sdp.SessionDescription) (changed bool) {
		for _, m := range d.MediaDescriptions {
			switch m.MediaName.Media {
			case "video":
				changed = completeH264(m) || changed
				fallthrough
			case "audio":
				changed = receiving(d, m) || changed
			}
		}
		return changed
	})
}

// receiving turns sendrecv, the default direction (RFC 8866 section 6.7), into recvonly, because a player's media is not
// received. The answer to both is sendonly.
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
	if cmp.Or(direction(m.Attributes), direction(d.Attributes), "sendrecv") != "sendrecv" {
		return false
	}
	m.Attributes = slices.DeleteFunc(m.Attributes, func(a sdp.Attribute) bool { return a.Key == "sendrecv" })
	m.Attributes = append(m.Attributes, sdp.NewPropertyAttribute("recvonly"))
	return true
}

// completeH264 adds H264 parameters that a player such as GStreamer leaves out because it accepts any. Without them, the library
// would prefer every fully described codec.
func completeH264(m *sdp.MediaDescription) (changed bool) {
	described := (&sdp.SessionDescription{MediaDescriptions: []*sdp.MediaDescription{m}}).GetCodecMap()
	for _, format := range m.MediaName.Formats[:min(len(m.MediaName.Formats), signaling.MaxFormats)] {
		pt, err := strconv.ParseUint(format, 10, 7)
		if err != nil {
			continue
		}
		c := described[uint8(pt)]
		if !strings.EqualFold(c.Name, media.H264.String()) {
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

// The H.264 profiles, each decodable by a player of a higher one.
const (
	constrainedBaseline = iota
	baseline
	mainProfile
	high
	beyond
)

// h264Profile reads profile_idc and the constraint flags of a sequence parameter set or of profile-level-id (RFC 6184 section 8.1).
func h264Profile(idc, constraints byte) int {
	switch {
	case idc == 66 && constraints&0x40 != 0:
		return constrainedBaseline
	case idc == 66:
		return baseline
	case idc == 77:
		return mainProfile
	case idc == 100:
		return high
	default:
		return beyond
	}
}

// profileOf returns the profile of an H264 key frame (Annex B); constrained baseline without a sequence parameter set.
func profileOf(f media.EncodedFrame) int {
	for i := 0; f.Codec == media.H264 && i+5 < len(f.Data); i++ {
		if f.Data[i] == 0 && f.Data[i+1] == 0 && f.Data[i+2] == 1 && f.Data[i+3]&0x1f == 7 {
			return h264Profile(f.Data[i+4], f.Data[i+5])
		}
	}
	return constrainedBaseline
}

// offeredProfile returns the profile of the parameters of H264.
func offeredProfile(fmtp string) int {
	_, id, _ := strings.Cut(strings.ToLower(fmtp), "profile-level-id=")
	b, err := hex.DecodeString(id[:min(4, len(id))])
	if err != nil || len(b) < 2 {
		return baseline // the default (RFC 6184 section 8.1)
	}
	return h264Profile(b[0], b[1])
}

// parameters returns a codec's parameters for this player; for H264 the lowest profile that can decode the picture's.
func (o *offer) parameters(codec media.Codec, profile int) (webrtc.RTPCodecParameters, bool) {
	var found webrtc.RTPCodecParameters
	ok, best := false, beyond+1
	for _, p := range o.video {
		if !strings.EqualFold(p.MimeType, codec.MimeType()) {
			continue
		}
		if !ok {
			found, ok = p, true
		}
		if codec != media.H264 {
			continue
		}
		if offered := offeredProfile(p.SDPFmtpLine); offered >= profile && offered < best {
			found, best = p, offered
		}
	}
	if codec == media.H264 && best > beyond && profile > constrainedBaseline { // browsers that play every profile may offer this one alone
		return o.parameters(codec, constrainedBaseline)
	}
	return found, ok
}

// names lists the offered video codecs.
func (o *offer) names() string {
	var all []string
	for _, p := range o.video {
		if name := strings.TrimPrefix(p.MimeType, "video/"); !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return strings.Join(all, ", ")
}

// engines returns a media engine with the offer's codecs, and the interceptors.
func (o *offer) engines() (*webrtc.MediaEngine, *interceptor.Registry, error) {
	responder, err := nack.NewResponderInterceptor(nack.ResponderSize(resend))
	if err != nil {
		return nil, nil, err
	}
	return o.Engines(responder)
}
