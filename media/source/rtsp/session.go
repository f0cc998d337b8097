package rtsp

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bluenviron/gortsplib/v5"
	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/bluenviron/gortsplib/v5/pkg/format/rtpmjpeg"
	"github.com/bluenviron/gortsplib/v5/pkg/headers"
	"github.com/bluenviron/gortsplib/v5/pkg/liberrors"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/mpeg4audio"
	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/rs/zerolog"

	"touchline/internal/rescue"
	"touchline/internal/ticks"
	"touchline/media"
	"touchline/media/codec"
	"touchline/media/ingest"
	"touchline/media/packet"
	"touchline/media/source"
	"touchline/media/source/audio"
)

// session is one RTSP session. The library calls its methods from several goroutines.
type session struct {
	client *gortsplib.Client
	out    source.Sink
	now    func() time.Time
	log    zerolog.Logger
	// crashed ends the session after a panic in a callback.
	crashed func(err error)

	playing  bool
	received atomic.Uint64 // video packets

	video, audio             *description.Media
	videoFormat, audioFormat format.Format
	sound                    func(p *rtp.Packet, now time.Time) // takes a packet of the sound
	aac                      *audio.AAC                         // nil for other codecs
	audioClock               *audio.Clock                       // nil without sound

	mu       sync.Mutex
	units    *ingest.Assembler
	annexB   *annexB // nil for other codecs
	times    retimer
	frames   int
	accepted uint8         // payload type beside the SDP's, 0 for none
	strange  map[uint8]int // packets of payload types that the SDP does not have
	keys     *keyRequests
	upright  packet.Orientation
	turn     uint8
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

// anyFormat is the RTPMa of a format for packets of another payload type than the SDP's.
const anyFormat = "X/90000"

// accept adds a payload type to the picture's.
func (s *session) accept(payloadType uint8) {
	s.accepted = payloadType
	f := &format.Generic{PayloadTyp: payloadType, RTPMa: anyFormat}
	if f.Init() == nil {
		s.video.Formats = append(s.video.Formats, f)
	}
}

// choose selects the first supported video and, if the sink takes sound, the first
// supported sound.
func (s *session) choose(desc *description.Session) ([]*description.Media, error) {
	encrypted := false
	for _, m := range desc.Medias {
		if m.IsBackChannel {
			continue
		}
		if m.Profile == headers.TransportProfileSAVP && s.client.Scheme == "rtsp" {
			encrypted = encrypted || m.Type == description.MediaTypeVideo
			continue
		}
		for _, f := range m.Formats {
			if s.video == nil && m.Type == description.MediaTypeVideo && s.prepareVideo(f) {
				s.video, s.videoFormat = m, f
			}
			if s.audio == nil && s.out.Opus != nil && s.prepareAudio(f) {
				s.audio, s.audioFormat = m, f
			}
		}
	}
	if s.video == nil && encrypted {
		return nil, source.Refused(source.Errorf("the camera encrypts its picture (SRTP); open it with rtsps in front of ://"))
	}
	if s.video == nil {
		return nil, source.Refused(source.Errorf(
			"the camera offers %s; one of H264, H265, VP8, VP9, AV1 and MJPEG is needed", offered(desc)))
	}
	medias := []*description.Media{s.video}
	if s.audio != nil {
		medias = append(medias, s.audio)
	}
	return medias, nil
}

// prepareVideo prepares for a format. It returns false for an unsupported one.
func (s *session) prepareVideo(f format.Format) bool {
	o := ingest.Options{ClockRate: uint32(f.ClockRate()), Log: s.log} //nolint:gosec // 90000 for these formats
	switch f := f.(type) {
	case *format.H264:
		o.Codec = media.H264
		s.annexB, o.Sets = newAnnexB(media.H264), parameterSets(f.SPS, f.PPS)
	case *format.H265:
		if f.MaxDONDiff > 0 {
			return false // decoding order numbers are not supported
		}
		o.Codec = media.H265
		s.annexB, o.Sets = newAnnexB(media.H265), parameterSets(f.VPS, f.SPS, f.PPS)
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
	o.ClockRate = cmp.Or(o.ClockRate, media.VideoClockRate)
	s.units = ingest.New(o)
	return true
}

// parameterSets returns the sets of an SDP; nil if one is missing, as all are needed.
func parameterSets(sets ...[]byte) [][]byte {
	if slices.ContainsFunc(sets, func(s []byte) bool { return len(s) == 0 }) {
		return nil
	}
	return sets
}

// prepareAudio prepares for a format. It returns false for an unsupported one.
func (s *session) prepareAudio(f format.Format) bool {
	switch f := f.(type) {
	case *format.Opus:
		s.sound = func(p *rtp.Packet, now time.Time) {
			s.audioClock.Packet(p.Timestamp, now)
			s.emit(source.Opus{Payload: bytes.Clone(p.Payload), Timestamp: p.Timestamp, Marker: p.Marker, Received: now})
		}
		return f.ChannelCount <= 2
	case *format.G711:
		g, err := audio.NewG711(f.MULaw, f.SampleRate, f.ChannelCount, s.emit)
		s.sound = func(p *rtp.Packet, now time.Time) {
			s.audioClock.Packet(p.Timestamp, now)
			g.Write(p.Payload, p.Timestamp, now)
		}
		return err == nil
	case *format.MPEG4Audio:
		if f.Config == nil {
			return false
		}
		decoder, err := f.CreateDecoder()
		return err == nil && s.prepareAAC(f.ClockRate(), func(p *rtp.Packet) (mpeg4audio.AudioSpecificConfig, [][]byte, bool) {
			units, err := decoder.Decode(p)
			return *f.Config, units, err == nil && len(units) > 0
		})
	case *format.MPEG4AudioLATM:
		elements, err := newLATM(f)
		return err == nil && s.prepareAAC(f.ClockRate(), elements.decode)
	}
	return false
}

// prepareAAC prepares for AAC. decode returns the access units that a packet completes; its last result is false while more are needed.
func (s *session) prepareAAC(clockRate int, decode func(*rtp.Packet) (mpeg4audio.AudioSpecificConfig, [][]byte, bool)) bool {
	coder, err := audio.NewAAC(clockRate, s.now, s.opus)
	if err != nil {
		s.log.Warn().Err(err).Msg("camera sound unavailable")
		return false
	}
	s.aac = coder
	s.sound = func(p *rtp.Packet, now time.Time) {
		if config, units, ok := decode(p.Clone()); ok { // the library reuses its buffers
			s.audioClock.Packet(audio.Last(config, len(units), p.Timestamp, clockRate), now)
			coder.Write(config, units, p.Timestamp)
		}
	}
	return true
}

// explain adds what came to the reason why the session was ended.
func (s *session) explain(cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frames > 0 || !s.playing {
		return cause
	}
	stats := ingest.Stats{}
	if s.units != nil {
		stats = s.units.Stats()
	}
	switch {
	case s.received.Load() == 0:
		return source.Errorf("%w: no packet of the picture came", cause)
	case stats.Setless > 0:
		return source.Errorf("%w: pictures came, but no SPS and PPS, neither in the SDP nor in the stream", cause)
	case stats.Waiting > 0:
		return source.Errorf("%w: pictures came, but no key frame; set its interval at the camera to one second", cause)
	case stats.Blanks > 0:
		return source.Errorf("%w: its pictures are smaller than 32 x 32", cause)
	}
	return source.Errorf("%w: %d packets came, but no complete picture (%d malformed, %d packets lost)",
		cause, s.received.Load(), stats.Broken, stats.Lost)
}

// undecodable counts packets of an unknown payload type. If no other came, they are the picture's.
func (s *session) undecodable(err error) {
	s.log.Debug().Err(err).Msg("packet unreadable")
	strange, ok := errors.AsType[liberrors.ErrClientRTPPacketUnknownPayloadType](err)
	if !ok || s.received.Load() > 0 || strange.PayloadType == s.accepted {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.strange == nil {
		s.strange = map[uint8]int{}
	}
	if s.strange[strange.PayloadType]++; s.strange[strange.PayloadType] == strangeEnough {
		s.crashed(payloadError(strange.PayloadType))
	}
}

// strangeEnough is the number of packets that decide about their payload type.
const strangeEnough = 8

// payloadError is a payload type that the SDP does not have.
type payloadError uint8

func (e payloadError) Error() string {
	return fmt.Sprintf("packets have the payload type %d", uint8(e))
}

// listen registers the callbacks, before Play.
func (s *session) listen() {
	s.client.OnPacketRTP(s.video, s.videoFormat, s.videoPacket)
	for _, f := range s.video.Formats {
		if g, ok := f.(*format.Generic); ok && g.RTPMa == anyFormat {
			s.client.OnPacketRTP(s.video, f, s.videoPacket)
		}
	}
	s.client.OnPacketRTCP(s.video, s.videoReport)
	if s.audio != nil {
		s.audioClock = audio.NewClock(s.audioFormat.ClockRate())
		s.client.OnPacketRTP(s.audio, s.audioFormat, s.audioPacket)
		s.client.OnPacketRTCP(s.audio, s.audioReport)
	}
}

func (s *session) videoPacket(p *rtp.Packet) {
	defer rescue.Guard(s.crashed)
	s.received.Add(1)
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	p = p.Clone() // the library reuses its buffers
	wrong := s.times.wrong
	s.times.packet(p, now)
	if s.times.wrong && !wrong {
		s.log.Warn().Msg("camera clock is wrong, pictures are timed by arrival")
	}
	s.turn = s.upright.Turn(p, s.turn)
	if s.decoder != nil {
		s.jpegPacket(p, now)
		return
	}
	for _, q := range s.annexB.packets(p) {
		s.assemble(q, now)
	}
	if s.units.WantsKeyFrame(now) {
		s.keys.ask(now)
	}
	if s.keys.overdue(now) {
		s.log.Info().Msg("no key frame, the camera is opened again for one")
		s.crashed(errReopen)
	}
}

// assemble emits the pictures that a packet completes.
func (s *session) assemble(p *rtp.Packet, now time.Time) {
	before := s.units.Stats().Lost
	frames := s.units.Push(p, now)
	if n := s.units.Stats().Lost - before; n > 0 && s.out.Missing != nil {
		s.out.Missing(n)
	}
	for _, f := range frames {
		if f.KeyFrame {
			s.keys.came()
		}
		if s.times.wrong {
			f.NTP = time.Time{} // reports tell the time of its clock
		}
		s.frames++
		f.Turn = s.turn
		s.out.Frame(f)
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
	if s.units != nil && !s.times.wrong {
		s.units.SenderReport(packet.NTPTime(sr.NTPTime), sr.RTPTime)
	}
}

func (s *session) audioPacket(p *rtp.Packet) {
	defer rescue.Guard(s.crashed)
	if len(p.Payload) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sound(p, s.now())
}

func (s *session) audioReport(p rtcp.Packet) {
	defer rescue.Guard(s.crashed)
	if sr, ok := p.(*rtcp.SenderReport); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.audioClock.SenderReport(packet.NTPTime(sr.NTPTime), sr.RTPTime)
	}
}

// opus emits a packet from another goroutine.
func (s *session) opus(o source.Opus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.emit(o)
}

func (s *session) emit(o source.Opus) {
	s.audioClock.Stamp(&o)
	s.out.Opus(o)
}

// jpegPacket emits a picture with its last packet.
func (s *session) jpegPacket(p *rtp.Packet, now time.Time) {
	picture, err := s.decoder.Decode(p)
	if err != nil {
		return // more packets are needed, or one is missing
	}
	f, err := codec.JPEG(picture)
	if err != nil {
		s.log.Debug().Err(err).Msg("picture is not a JPEG")
		return
	}
	if s.began {
		s.ticks += int64(int32(p.Timestamp - s.last)) //nolint:gosec // modulo 2^32
	}
	s.began, s.last = true, p.Timestamp
	f.PTS = ticks.Duration(s.ticks, media.VideoClockRate)
	f.Arrival, f.Received, f.Turn = s.clock.Map(f.PTS, now), now, s.turn
	s.frames++
	s.out.Frame(f)
}
