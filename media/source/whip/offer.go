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

// offer is an SDP offer that can be answered.
type offer struct {
	*signaling.Offer

	simulcast bool
}

// readOffer parses an offer and checks it against RFC 9725 (sections 4.2 and 4.4)
// and the codecs of this server.
func readOffer(text string) (*offer, error) {
	common, err := signaling.ReadOffer(text, signaling.Terms{
		Wanted: "sendonly or sendrecv", Refused: []string{"recvonly", "inactive"}, Codec: supports,
		Unsupported: func(kind webrtc.RTPCodecType, offered []string) error {
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

// supports returns whether a codec can be received, and the feedback that is sent.
func supports(kind webrtc.RTPCodecType, c sdp.Codec) ([]webrtc.RTCPFeedback, bool) {
	if kind == webrtc.RTPCodecTypeAudio {
		return []webrtc.RTCPFeedback{{Type: "transport-cc"}}, signaling.IsOpus(c)
	}
	return []webrtc.RTCPFeedback{
		{Type: "nack"},
		{Type: "nack", Parameter: "pli"},
		{Type: "ccm", Parameter: "fir"},
		{Type: "goog-remb"},
		{Type: "transport-cc"},
	}, canReceive(c)
}

// canReceive reports whether package ingest reads a video codec.
func canReceive(c sdp.Codec) bool {
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

// engines returns a media engine with the offer's codecs, and the interceptors.
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
		// Without them, the tracks of senders that declare no SSRC are distinguished by payload type.
		if err := webrtc.ConfigureSimulcastExtensionHeaders(m); err != nil {
			return nil, nil, err
		}
	}
	return m, r, nil
}
