package whip_test

import (
	"time"

	"github.com/pion/rtp"
	"github.com/pion/rtp/codecs"
	"github.com/pion/sdp/v3"
	"github.com/pion/webrtc/v4"
)

// sendLayers sends each layer with the header extensions that identify it.
func sendLayers(stop <-chan struct{}, sender *webrtc.RTPSender, layers map[*webrtc.TrackLocalStaticRTP][][]byte) {
	var mid, rid uint8
	for _, e := range sender.GetParameters().HeaderExtensions {
		switch e.URI {
		case sdp.SDESMidURI:
			mid = uint8(e.ID)
		case sdp.SDESRTPStreamIDURI:
			rid = uint8(e.ID)
		}
	}
	packetizers := map[*webrtc.TrackLocalStaticRTP]rtp.Packetizer{}
	for track := range layers {
		packetizers[track] = rtp.NewPacketizer(1100, 0, 0, &codecs.VP8Payloader{EnablePictureID: true}, rtp.NewRandomSequencer(), 90000)
	}
	for i := 0; ; i++ {
		for track, units := range layers {
			for _, p := range packetizers[track].Packetize(units[i%len(units)], 1800) {
				_ = p.SetExtension(mid, []byte("0"))
				_ = p.SetExtension(rid, []byte(track.RID()))
				_ = track.WriteRTP(p)
			}
		}
		select {
		case <-stop:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}
