package packet

import (
	"github.com/pion/rtp"
	"github.com/pion/rtp/codecs"

	"touchline/media"
)

// BaseLayer returns the lowest spatial layer of a VP9 access unit, as a frame of one layer with the layer's size, 0 if unknown. Frames of
// other codecs, and those without packets of that layer, are returned unchanged.
func BaseLayer(f media.EncodedFrame) media.EncodedFrame {
	if f.Codec != media.VP9 {
		return f
	}
	base := f
	base.SpatialLayers, base.Width, base.Height = 1, 0, 0
	base.Packets, base.Data = make([]*rtp.Packet, 0, len(f.Packets)), nil
	for _, p := range f.Packets {
		var d codecs.VP9Packet
		body, err := d.Unmarshal(p.Payload)
		if err != nil || d.SID > 0 {
			continue
		}
		if d.V && d.Y && len(d.Width) > 0 && len(d.Height) > 0 {
			base.Width, base.Height = int(d.Width[0]), int(d.Height[0])
		}
		base.Packets, base.Data = append(base.Packets, p), append(base.Data, body...)
	}
	if len(base.Packets) == 0 {
		return f
	}
	return base
}
