package whip

import (
	"fmt"
	"strings"

	"github.com/pion/interceptor"
	"github.com/pion/interceptor/pkg/nack"
	"github.com/pion/sdp/v3"
	"github.com/pion/webrtc/v4"

	"touchline/media"
	"touchline/media/signaling"
)

// offer is an SDP offer that can be met.
type offer struct {
	*signaling.Offer

	simulcast bool
}

// readOffer checks an offer against what RFC 9725 allows (sections 4.2 and 4.4)
// and what this server does.
func readOffer(text string) (*offer, error) {
	common, err := signaling.ReadOffer(text, signaling.Terms{
		Wanted: "sendonly or sendrecv", Refused: []string{"recvonly", "inactive"}, Take: take,
		None: func(kind webrtc.RTPCodecType, offered []string) error {
			want := "H264, VP8, VP9, AV1 or H265"
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
	streams := map[string]bool{}
	for _, m := range o.Desc.MediaDescriptions {
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
	}
	if len(streams) > 1 {
		return nil, fmt.Errorf("expected one MediaStream, got %d", len(streams))
	}
	return o, nil
}

// take tells what is understood, and what this server says about it while it comes.
func take(kind webrtc.RTPCodecType, c sdp.Codec) ([]webrtc.RTCPFeedback, bool) {
	if kind == webrtc.RTPCodecTypeAudio {
		return []webrtc.RTCPFeedback{{Type: "transport-cc"}}, signaling.IsOpus(c)
	}
	return []webrtc.RTCPFeedback{
		{Type: "nack"},
		{Type: "nack", Parameter: "pli"},
		{Type: "ccm", Parameter: "fir"},
		{Type: "goog-remb"},
		{Type: "transport-cc"},
	}, canTake(c)
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
	if err := o.Register(m); err != nil {
		return nil, nil, err
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
