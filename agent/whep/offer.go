package whep

import (
	"fmt"
	"strings"

	"github.com/pion/interceptor"
	"github.com/pion/interceptor/pkg/nack"
	"github.com/pion/sdp/v3"
	"github.com/pion/webrtc/v4"

	"touchline/media"
	"touchline/media/wish"
)

// resend is how many packets are kept for players that lost some: seconds of an ordinary picture.
const resend = 2048

// offer is a player's offer.
type offer struct {
	*wish.Offer

	// video is how each codec is to be sent, in the player's order; audio is Opus, nil when it is not wanted.
	video []webrtc.RTPCodecParameters
	audio *webrtc.RTPCodecParameters
}

// readOffer checks an offer against what WHEP allows (sections 4.2 and 4.4 of the draft).
func readOffer(text string) (*offer, error) {
	common, err := wish.ReadOffer(text, wish.Terms{
		Wanted: "recvonly or sendrecv", Refused: []string{"sendonly", "inactive"}, Data: true, Take: take,
		None: func(kind webrtc.RTPCodecType, offered []string) error {
			want := "H264, VP8, VP9 or AV1"
			if kind == webrtc.RTPCodecTypeAudio {
				want = "Opus"
			}
			return fmt.Errorf("%w: expected %s, got %s", wish.ErrNotAcceptable, want, strings.Join(offered, ", "))
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

// take tells what can be sent, and what players may say about it.
func take(kind webrtc.RTPCodecType, c sdp.Codec) ([]webrtc.RTCPFeedback, bool) {
	if kind == webrtc.RTPCodecTypeAudio {
		return nil, wish.IsOpus(c)
	}
	return []webrtc.RTCPFeedback{{Type: "nack"}, {Type: "nack", Parameter: "pli"}, {Type: "ccm", Parameter: "fir"}}, canSend(c)
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
