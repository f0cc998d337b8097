package whip

import (
	"bytes"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"

	"touchline/media"
	"touchline/media/ingest"
	"touchline/media/packet"
	"touchline/media/source"
	"touchline/media/source/audio"
)

// layerTime is how long the active layer may be silent before another one replaces it.
const layerTime = 2 * time.Second

// reader reads one track: audio, video or one layer of simulcast.
type reader struct {
	session  *Session
	track    *webrtc.TrackRemote
	receiver *webrtc.RTPReceiver
	reports  chan *rtcp.SenderReport

	// Under the session's lock emitting.
	at     time.Time
	area   int
	epoch  uint32
	wanted bool
}

// onTrack reads a track.
func (x *Session) onTrack(track *webrtc.TrackRemote, receiver *webrtc.RTPReceiver) {
	r := &reader{session: x, track: track, receiver: receiver, reports: make(chan *rtcp.SenderReport, 4)}
	x.Go(r.readReports)
	x.Log.Debug().Str("codec", track.Codec().MimeType).Str("layer", track.RID()).Msg("WHIP track")
	if track.Kind() == webrtc.RTPCodecTypeAudio {
		x.Go(r.readAudio)
		return
	}
	x.emitting.Lock()
	x.readers = append(x.readers, r)
	x.emitting.Unlock()
	x.RequestKeyFrame()
	x.Go(r.readVideo)
}

// readReports keeps sender reports. The library needs it for its receiver reports.
func (r *reader) readReports() {
	for {
		var packets []rtcp.Packet
		var err error
		if rid := r.track.RID(); rid != "" {
			packets, _, err = r.receiver.ReadSimulcastRTCP(rid)
		} else {
			packets, _, err = r.receiver.ReadRTCP()
		}
		if err != nil {
			return
		}
		for _, p := range packets {
			if sr, ok := p.(*rtcp.SenderReport); ok && sr.SSRC == uint32(r.track.SSRC()) {
				select {
				case r.reports <- sr:
				default:
				}
			}
		}
	}
}

// read waits for the next packet. ok is false when the track has ended.
func (r *reader) read() (p *rtp.Packet, now time.Time, ok bool) {
	p, _, err := r.track.ReadRTP()
	if err != nil {
		return nil, now, false
	}
	now = r.session.server.opts.Now()
	r.session.Packets.Add(1)
	if len(p.Payload) > 0 {
		r.session.received(now)
	}
	return p, now, true
}

func (r *reader) readVideo() {
	x := r.session
	var units *ingest.Assembler
	var kind webrtc.PayloadType
	var codec media.Codec
	var turn uint8
	for p, now, ok := r.read(); ok; p, now, ok = r.read() {
		if units == nil || webrtc.PayloadType(p.PayloadType) != kind {
			kind = webrtc.PayloadType(p.PayloadType)
			c, err := media.ParseCodec(r.track.Codec().MimeType)
			if err != nil {
				continue
			}
			// A sender may change its codec at any time; another payload type for the same codec is no change.
			if epoch := uint32(0); units == nil || c != codec {
				if units != nil {
					epoch = units.Epoch() + 1
				}
				codec = c
				units = ingest.New(ingest.Options{Codec: c, Epoch: epoch, Log: x.Log})
			}
		}
		select {
		case sr := <-r.reports:
			units.SenderReport(packet.NTPTime(sr.NTPTime), sr.RTPTime)
		default:
		}
		before := units.Stats().Lost
		turn = x.upright.Turn(p, turn)
		frames := units.Push(p, now)
		if n := units.Stats().Lost - before; n > 0 {
			x.missing(r, n)
		}
		for _, f := range frames {
			f.Turn = turn
			x.emit(r, f)
		}
		if units.WantsKeyFrame(now) {
			x.RequestKeyFrame()
		}
	}
}

func (r *reader) readAudio() {
	clock := audio.NewClock(int(r.track.Codec().ClockRate))
	for p, now, ok := r.read(); ok; p, now, ok = r.read() {
		if len(p.Payload) == 0 {
			continue
		}
		clock.Packet(p.Timestamp, now)
		select {
		case sr := <-r.reports:
			clock.SenderReport(packet.NTPTime(sr.NTPTime), sr.RTPTime)
		default:
		}
		o := source.Opus{Payload: bytes.Clone(p.Payload), Timestamp: p.Timestamp, Marker: p.Marker, Received: now}
		clock.Stamp(&o)
		r.session.sound(o)
	}
}

// sound forwards a sound packet.
func (x *Session) sound(o source.Opus) {
	x.emitting.Lock()
	defer x.emitting.Unlock()
	if x.place.Sink.Opus != nil {
		x.place.Sink.Opus(o)
	}
}
