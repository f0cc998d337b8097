package whip

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pion/interceptor"
	"github.com/pion/interceptor/pkg/nack"
	"github.com/pion/webrtc/v4"

	"touchline/media"
	"touchline/media/packet"
	"touchline/media/signaling"
)

// offer is an SDP offer that can be answered.
type offer struct {
	*signaling.Offer

	simulcast bool
	// upright is read, but not accepted: senders that follow the answer turn their pictures themselves.
	upright packet.Orientation
}

// readOffer parses an offer and checks it against RFC 9725 (sections 4.2 and 4.4)
// and the codecs that package ingest reads.
func readOffer(text string) (*offer, error) {
	common, err := signaling.ReadOffer(text, signaling.Terms{
		Receive: true, Names: "H264, VP8, VP9, AV1 or H265",
		Video: func(codec media.Codec, fmtp string) bool {
			return codec != media.H264 || !strings.Contains(fmtp, "packetization-mode=2") // interleaved
		},
		AudioFeedback: []webrtc.RTCPFeedback{{Type: "transport-cc"}},
		VideoFeedback: []webrtc.RTCPFeedback{
			{Type: "nack"}, {Type: "nack", Parameter: "pli"}, {Type: "ccm", Parameter: "fir"}, {Type: "goog-remb"}, {Type: "transport-cc"},
		},
	})
	if err != nil {
		return nil, err
	}
	if len(common.Codecs[webrtc.RTPCodecTypeVideo]) == 0 {
		return nil, errors.New("expected a video section, got sound only; add a picture at the sender")
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
			case "extmap":
				o.upright = max(o.upright, packet.ReadOrientation(a.Value))
			}
		}
	}
	if len(streams) > 1 {
		return nil, fmt.Errorf("expected one MediaStream, got %d", len(streams))
	}
	return o, nil
}

// engines returns a media engine with the offer's codecs, and the interceptors.
func (o *offer) engines() (*webrtc.MediaEngine, *interceptor.Registry, error) {
	generator, err := nack.NewGeneratorInterceptor()
	if err != nil {
		return nil, nil, err
	}
	m, r, err := o.Engines(generator)
	if err != nil {
		return nil, nil, err
	}
	if o.simulcast {
		// Without them, the tracks of senders that declare no SSRC are distinguished by payload type.
		if err := webrtc.ConfigureSimulcastExtensionHeaders(m); err != nil {
			return nil, nil, err
		}
	}
	return m, r, webrtc.ConfigureTWCCSender(m, r)
}
