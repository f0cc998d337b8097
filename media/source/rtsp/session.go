package rtsp

import (
	"bytes"
	"fmt"
	"image/jpeg"
	"sync"
	"time"

	"github.com/bluenviron/gortsplib/v5"
	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/bluenviron/gortsplib/v5/pkg/format/rtpmjpeg"
	"github.com/bluenviron/gortsplib/v5/pkg/format/rtpmpeg4audio"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/mpeg4audio"
	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/rs/zerolog"

	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/codec"
	"touchline/media/ingest"
	"touchline/media/packet"
	"touchline/media/source"
	"touchline/media/source/audio"
)

// session is one conversation that plays. The library calls back from several
// goroutines; mu orders them.
type session struct {
	client *gortsplib.Client
	out    source.Sink
	now    func() time.Time
	log    zerolog.Logger
	// crashed ends the conversation with the panic of a callback.
	crashed func(err error)

	video, audio   *description.Media
	telephone      *audio.G711 // nil when the sound is no G.711
	aac            *audio.AAC  // nil when it is no AAC
	units4         *rtpmpeg4audio.Decoder
	latm           *latm        // nil when it is not in LATM
	heard          *audio.Clock // nil without sound
	format, sounds format.Format

	mu    sync.Mutex
	units *ingest.Assembler
	sets  *parameterSets
	pictures
}

// pictures is the state of RTP/JPEG (RFC 2435).
type pictures struct {
	decoder *rtpmjpeg.Decoder
	clock   ingest.Clock
	ticks   int64
	last    uint32
	began   bool
}

// choose takes the first video that can be read, and the first sound that can
// be made Opus if sound is wanted.
func (s *session) choose(desc *description.Session) ([]*description.Media, error) {
	for _, m := range desc.Medias {
		if m.IsBackChannel {
			continue
		}
		for _, f := range m.Formats {
			if s.video == nil && m.Type == description.MediaTypeVideo && s.take(f) {
				s.video, s.format = m, f
			}
			if s.audio == nil && s.out.Opus != nil && s.prepareSound(f) {
				s.audio, s.sounds = m, f
			}
		}
	}
	if s.video == nil {
		return nil, source.Permanent(fmt.Errorf(
			"the camera offers %s; one of H264, H265, VP8, VP9, AV1 and MJPEG is needed", offered(desc)))
	}
	medias := []*description.Media{s.video}
	if s.audio != nil {
		medias = append(medias, s.audio)
	}
	return medias, nil
}

// take prepares for one format, if it can be read.
func (s *session) take(f format.Format) bool {
	o := ingest.Options{ClockRate: uint32(f.ClockRate()), Log: s.log} //nolint:gosec // a rate from the library's parser
	switch f := f.(type) {
	case *format.H264:
		o.Codec = media.H264
		s.sets = newParameterSets(media.H264, f.SPS, f.PPS)
	case *format.H265:
		if f.MaxDONDiff > 0 {
			return false // decoding order numbers, which no camera was seen to send
		}
		o.Codec = media.H265
		s.sets = newParameterSets(media.H265, f.VPS, f.SPS, f.PPS)
	case *format.VP8:
		o.Codec = media.VP8
	case *format.VP9:
		o.Codec = media.VP9
	case *format.AV1:
		o.Codec = media.AV1
	case *format.MJPEG:
		decoder, err := f.CreateDecoder()
		s.decoder = decoder
		return err == nil
	default:
		return false
	}
	if o.ClockRate == 0 {
		o.ClockRate = media.VideoClockRate
	}
	s.units = ingest.New(o)
	return true
}

// prepareSound prepares for the format of a sound, if it can be made Opus.
func (s *session) prepareSound(f format.Format) bool {
	switch f := f.(type) {
	case *format.Opus:
		return f.ChannelCount <= 2
	case *format.G711:
		g, err := audio.NewG711(f.MULaw, f.SampleRate, f.ChannelCount, s.emit)
		s.telephone = g
		return err == nil
	case *format.MPEG4Audio:
		if f.Config == nil {
			return false
		}
		decoder, err := f.CreateDecoder()
		if err != nil {
			return false
		}
		s.units4 = decoder
		return s.code(f.ClockRate())
	case *format.MPEG4AudioLATM:
		elements, err := newLATM(f)
		if err != nil {
			return false
		}
		s.latm = elements
		return s.code(f.ClockRate())
	}
	return false
}

// code makes ready for AAC.
func (s *session) code(clockRate int) bool {
	coder, err := audio.NewAAC(clockRate, s.now, s.opus)
	if err != nil {
		s.log.Warn().Err(err).Msg("camera sound unavailable")
		return false
	}
	s.aac = coder
	return true
}

// listen registers the callbacks. It goes before Play.
func (s *session) listen() {
	s.client.OnPacketRTP(s.video, s.format, s.videoPacket)
	s.client.OnPacketRTCP(s.video, s.videoReport)
	if s.audio != nil {
		s.heard = audio.NewClock(s.sounds.ClockRate())
		s.client.OnPacketRTP(s.audio, s.sounds, s.audioPacket)
		s.client.OnPacketRTCP(s.audio, s.audioReport)
	}
}

func (s *session) videoPacket(p *rtp.Packet) {
	defer rescue.Guard(s.crashed)
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.decoder != nil {
		s.jpegPacket(p, now)
		return
	}
	own := p.Clone() // the library uses its buffers again
	for _, q := range s.sets.complete(own) {
		before := s.units.Stats().Lost
		frames := s.units.Push(q, now)
		if n := s.units.Stats().Lost - before; n > 0 && s.out.Missing != nil {
			s.out.Missing(n)
		}
		for _, f := range frames {
			s.out.Frame(f)
		}
	}
}

func (s *session) videoReport(p rtcp.Packet) {
	defer rescue.Guard(s.crashed)
	sr, ok := p.(*rtcp.SenderReport)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.units != nil {
		s.units.SenderReport(packet.NTPTime(sr.NTPTime), sr.RTPTime, s.now())
	}
}

func (s *session) audioPacket(p *rtp.Packet) {
	defer rescue.Guard(s.crashed)
	if len(p.Payload) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if s.aac != nil {
		if config, units, ok := s.accessUnits(p.Clone()); ok { // parts are kept, and the library uses its buffers again
			s.heard.Packet(audio.Last(config, len(units), p.Timestamp, s.sounds.ClockRate()), now)
			s.aac.Write(config, units, p.Timestamp)
		}
		return
	}
	s.heard.Packet(p.Timestamp, now)
	if s.telephone != nil {
		s.telephone.Write(p.Payload, p.Timestamp, now)
		return
	}
	s.emit(source.Opus{Payload: bytes.Clone(p.Payload), Timestamp: p.Timestamp, Marker: p.Marker, Received: now})
}

// accessUnits are those of AAC that a packet completes. There are none while more packets are needed, or one is missing.
func (s *session) accessUnits(p *rtp.Packet) (config mpeg4audio.AudioSpecificConfig, units [][]byte, ok bool) {
	if s.latm != nil {
		return s.latm.decode(p)
	}
	units, err := s.units4.Decode(p)
	return *s.sounds.(*format.MPEG4Audio).Config, units, err == nil && len(units) > 0 //nolint:forcetypeassert // prepareSound checked it
}

func (s *session) audioReport(p rtcp.Packet) {
	defer rescue.Guard(s.crashed)
	if sr, ok := p.(*rtcp.SenderReport); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.heard.SenderReport(packet.NTPTime(sr.NTPTime), sr.RTPTime)
	}
}

// opus hands on what another goroutine made of the sound.
func (s *session) opus(o source.Opus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.emit(o)
}

func (s *session) emit(o source.Opus) {
	s.heard.Stamp(&o)
	s.out.Opus(o)
}

// jpegPacket hands on a picture when its last packet is there.
func (s *session) jpegPacket(p *rtp.Packet, now time.Time) {
	picture, err := s.decoder.Decode(p)
	if err != nil {
		return // more packets are needed, or one is missing
	}
	size, err := jpeg.DecodeConfig(bytes.NewReader(picture))
	if err != nil {
		s.log.Debug().Err(err).Msg("picture is not a JPEG")
		return
	}
	if s.began {
		s.ticks += int64(int32(p.Timestamp - s.last))
	}
	s.began, s.last = true, p.Timestamp
	pts := media.TicksToDuration(s.ticks, media.VideoClockRate)
	s.out.Frame(media.EncodedFrame{
		Codec: codec.MJPEG, KeyFrame: true, PTS: pts, Arrival: s.clock.Map(pts, now), Received: now,
		Width: size.Width, Height: size.Height, SpatialLayers: 1, Data: picture,
	})
}
