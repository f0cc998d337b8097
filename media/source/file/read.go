package file

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/bluenviron/mediacommon/v2/pkg/codecs/av1"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h264"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h265"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/vp8"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/vp9"
	"github.com/bluenviron/mediacommon/v2/pkg/formats/mpegts"
	"github.com/bluenviron/mediacommon/v2/pkg/formats/mpegts/codecs"

	"touchline/internal/ticks"
	"touchline/media"
	"touchline/media/ingest"
)

// maxUnit bounds one access unit, in bytes.
const maxUnit = 8 << 20

// unit is an access unit of a container.
type unit struct {
	pts, dts time.Duration
	frame    media.EncodedFrame // without times
}

func isEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// readTS reads an MPEG transport stream with one video, for emit, or with Opus, for
// sound. Either may be nil. It returns io.EOF at the end.
func readTS(r io.Reader, s stream, emit func(unit) error, sound func(pts time.Duration, packets [][]byte) error) error {
	ts := &mpegts.Reader{R: bufio.NewReaderSize(r, 256<<10)}
	if err := ts.Initialize(); err != nil {
		return err
	}
	var clock mpegts.TimeDecoder
	clock.Initialize()
	clock.Decode(0) // it counts from its first input, which must be the same for both outputs
	at := func(count int64) time.Duration {
		return ticks.Duration(clock.Decode(count), media.VideoClockRate)
	}
	ts.OnDecodeError(func(error) {})
	for _, t := range ts.Tracks() {
		take := func(pts, dts int64, au [][]byte) error {
			f := s.frame(au)
			if len(f.Data) == 0 || len(f.Data) > maxUnit {
				return nil
			}
			// Only DTS is unwrapped by the decoder, by the distance to the previous one.
			u := unit{dts: at(dts), frame: f}
			const unused = 64 - 33 // both wrap at 33 bits, at different times
			u.pts = u.dts + ticks.Duration((pts-dts)<<unused>>unused, media.VideoClockRate)
			return emit(u)
		}
		switch t.Codec.(type) { // each output has one track
		case *codecs.H264:
			ts.OnDataH264(t, take)
		case *codecs.H265:
			ts.OnDataH265(t, take)
		case *codecs.Opus:
			ts.OnDataOpus(t, func(pts int64, packets [][]byte) error { return sound(at(pts), packets) })
		default:
		}
	}
	for {
		if err := ts.Read(); err != nil {
			return err
		}
	}
}

// frame joins NAL units as Annex B, without access unit delimiters, and detects key
// frames and the picture's size.
func (n *stream) frame(au [][]byte) media.EncodedFrame {
	f := media.EncodedFrame{Codec: n.codec, SpatialLayers: 1}
	size := 0
	for _, nal := range au {
		size += 4 + len(nal)
	}
	f.Data = make([]byte, 0, size)
	for _, nal := range au {
		if len(nal) < 2 {
			continue
		}
		if n.codec == media.H264 {
			switch h264.NALUType(nal[0] & 0x1f) {
			case h264.NALUTypeAccessUnitDelimiter, h264.NALUTypeFillerData:
				continue
			case h264.NALUTypeIDR:
				f.KeyFrame = true
			case h264.NALUTypeSEI:
				f.KeyFrame = f.KeyFrame || ingest.RecoveryPoint(nal)
			case h264.NALUTypeSPS:
				var sps h264.SPS
				if sps.Unmarshal(nal) == nil {
					n.width, n.height = sps.Width(), sps.Height()
				}
			default:
			}
		} else {
			switch t := h265.NALUType(nal[0] >> 1 & 0x3f); {
			case t == h265.NALUType_AUD_NUT:
				continue
			case t >= h265.NALUType_BLA_W_LP && t <= h265.NALUType_CRA_NUT:
				f.KeyFrame = true
			case t == h265.NALUType_SPS_NUT:
				var sps h265.SPS
				if sps.Unmarshal(nal) == nil {
					n.width, n.height = sps.Width(), sps.Height()
				}
			}
		}
		f.Data = append(append(f.Data, 0, 0, 0, 1), nal...)
	}
	f.Width, f.Height = n.width, n.height
	return f
}

// readIVF reads IVF, the format of libvpx and libaom: a header of 32 bytes with the
// time base, then each frame with its length and time.
func readIVF(r io.Reader, s stream, emit func(unit) error) error {
	in := bufio.NewReaderSize(r, 256<<10)
	var head [32]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return err
	}
	rate, scale := binary.LittleEndian.Uint32(head[16:]), binary.LittleEndian.Uint32(head[20:])
	if string(head[:4]) != "DKIF" || rate == 0 || scale == 0 || rate > 1e9 || scale > 1e9 {
		return errors.New("expected IVF, got something else")
	}
	for {
		var b [12]byte
		if _, err := io.ReadFull(in, b[:]); err != nil {
			return err
		}
		n := binary.LittleEndian.Uint32(b[:])
		if n == 0 || n > maxUnit {
			return fmt.Errorf("expected a frame of at most %d bytes, got %d", maxUnit, n)
		}
		data := make([]byte, n)
		if _, err := io.ReadFull(in, data); err != nil {
			return err
		}
		ticks := binary.LittleEndian.Uint64(b[4:])
		at := time.Duration(float64(ticks) * float64(scale) / float64(rate) * float64(time.Second))
		if ticks > 1<<53 || at < 0 {
			return fmt.Errorf("expected a frame's time, got %d", ticks)
		}
		err := emit(unit{pts: at, dts: at, frame: media.EncodedFrame{
			Codec: s.codec, KeyFrame: isKey(s.codec, data), Width: s.width, Height: s.height, SpatialLayers: 1, Data: data,
		}})
		if err != nil {
			return err
		}
	}
}

// isKey reports whether b is a key frame; in AV1 it begins with a sequence header.
func isKey(codec media.Codec, b []byte) bool {
	switch codec {
	case media.VP8:
		return vp8.IsRandomAccess(b)
	case media.VP9:
		var h vp9.Header
		return h.Unmarshal(b) == nil && !h.ShowExistingFrame && !h.NonKeyFrame
	case media.AV1:
		var units av1.Bitstream
		_ = units.Unmarshal(b) // the library reads no extensions, which come later
		return av1.IsRandomAccess2(units)
	default:
		return false
	}
}
