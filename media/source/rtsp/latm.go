package rtsp

import (
	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/bluenviron/gortsplib/v5/pkg/format/rtpfragmented"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/mpeg4audio"
	"github.com/pion/rtp"
)

// latm extracts AAC from the multiplex of RFC 6416 (MP4A-LATM). Its configuration is
// in the SDP or in the stream.
type latm struct {
	packets *rtpfragmented.Decoder
	inband  bool
	config  *mpeg4audio.StreamMuxConfig
}

func newLATM(f *format.MPEG4AudioLATM) (*latm, error) {
	packets, err := f.CreateDecoder()
	if err != nil {
		return nil, err
	}
	return &latm{packets: packets, inband: f.CPresent, config: f.StreamMuxConfig}, nil
}

// decode returns the access units that a packet completes, of the first layer of the
// first program. ok is false while more packets or the configuration are needed.
func (l *latm) decode(p *rtp.Packet) (config mpeg4audio.AudioSpecificConfig, units [][]byte, ok bool) {
	element, err := l.packets.Decode(p)
	if err != nil {
		return config, nil, false
	}
	mux := mpeg4audio.AudioMuxElement{MuxConfigPresent: l.inband, StreamMuxConfig: l.config}
	if mux.Unmarshal(element) != nil {
		return config, nil, false
	}
	l.config = mux.StreamMuxConfig
	if len(l.config.Programs) == 0 || len(l.config.Programs[0].Layers) == 0 || l.config.Programs[0].Layers[0].AudioSpecificConfig == nil {
		return config, nil, false
	}
	for _, sub := range mux.Payloads {
		if len(sub) > 0 && len(sub[0]) > 0 && len(sub[0][0]) > 0 {
			units = append(units, sub[0][0])
		}
	}
	return *l.config.Programs[0].Layers[0].AudioSpecificConfig, units, len(units) > 0
}
