// Package codec decodes, scales and encodes pictures in a process of its own,
// touchline-codec: a Decoder for access units, a Transcoder for streams that
// browsers cannot play, an Encoder for sources that make raw pictures.
//
// It owns that process: starting it, keeping its input bounded, starting it
// again when it dies or hangs, and believing nothing it says without a look
// at the bounds. It never links a codec itself and never decides when a
// picture is wanted. The caller of Run owns the process and every goroutine;
// all of them are gone when Run returns.
//
// # Bursts
//
// Most pictures of a watched track are never looked at: at 2 samples a second, 28
// of 30. So a Decoder holds access units back until a picture is wanted (a
// sample, an encoded copy, a call of Latest) and then hands all of them over in
// one write. When a key frame comes first, what was held before it is dropped
// undecoded; so is at any time what the source marks as discardable. What is held
// is bounded by number, bytes and media time. The picture is the one that a
// decoder of every access unit would give. It comes later, by the time that the
// burst takes: 2 samples a second of 720p30 have 15 pictures in a burst.
//
// With a key frame each second and samples that fall on them (window.Grid), 16 of
// 30 pictures are decoded, and the process wakes up twice a second. With
// a single key frame in the stream all are decoded, and only the wake-ups are
// saved. touchline-bench run --only decode measures both: the processor time, beside libavcodec's
// alone, how many pictures were decoded, in how many bursts, and how long a sample
// took.
package codec

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"touchline/media"
	"touchline/media/codec/wire"
)

// MJPEG is a JPEG picture in each access unit, every one a key frame. It is
// not a codec of the room, so package media does not know it; cameras send
// it.
const MJPEG media.Codec = 0x40

var (
	// ErrBehind is returned when the codec process cannot keep up; access
	// units are dropped up to the next key frame.
	ErrBehind = errors.New("decoder is behind")
	// ErrNeedKeyFrame is returned when an access unit is dropped because
	// decoding has to begin with a key frame: at first, with another epoch or
	// codec, and after the process was started again.
	ErrNeedKeyFrame = errors.New("decoder waits for a key frame")
	// ErrNoPicture is returned when nothing was decoded yet.
	ErrNoPicture = errors.New("no picture decoded yet")
	// ErrNotRunning is returned outside of Run.
	ErrNotRunning = errors.New("codec is not running")
	// ErrRestarted is returned when the codec process died before it could
	// answer. A new one is being started.
	ErrRestarted = errors.New("codec process died")
	// ErrVersion is returned when the program found was built from other
	// sources than this one.
	ErrVersion = errors.New("touchline-codec is of another version, build it again")
)

// program is the name of the codec process's program.
const program = "touchline-codec"

// Find returns where touchline-codec is: path itself if given, else beside
// the running program, in ./bin, or on the PATH, in this order.
func Find(path string) (string, error) {
	if path != "" {
		found, err := exec.LookPath(path)
		if err != nil {
			return "", fmt.Errorf("find the codec program: %w", err)
		}
		return filepath.Abs(found)
	}
	places := []string{filepath.Join(".", "bin", program), program}
	if self, err := os.Executable(); err == nil {
		places = append([]string{filepath.Join(filepath.Dir(self), program)}, places...)
	}
	for _, p := range places {
		// A bare name is looked up on the PATH, anything else is a file.
		if p != program {
			var err error
			if p, err = filepath.Abs(p); err != nil {
				continue
			}
		}
		if found, err := exec.LookPath(p); err == nil {
			return filepath.Abs(found)
		}
	}
	return "", fmt.Errorf("find %s: it is not beside this program, in ./bin or on the PATH; run make build", program)
}

func toWire(c media.Codec) (wire.Codec, error) {
	switch c {
	case media.VP8:
		return wire.VP8, nil
	case media.VP9:
		return wire.VP9, nil
	case media.H264:
		return wire.H264, nil
	case media.H265:
		return wire.H265, nil
	case media.AV1:
		return wire.AV1, nil
	case MJPEG:
		return wire.MJPEG, nil
	case media.CodecUnknown:
	}
	return 0, fmt.Errorf("expected VP8, VP9, H264, H265, AV1 or MJPEG, got codec %d", c)
}

// fromWire knows only what is encoded.
func fromWire(c wire.Codec) media.Codec {
	if c == wire.VP8 {
		return media.VP8
	}
	return media.H264
}

// encodable checks the codec and the figures of an encoder.
func encodable(c media.Codec, fps, bitRate int) (wire.Setup, error) {
	s := wire.Setup{Codec: wire.H264}
	switch c {
	case media.H264:
	case media.VP8:
		s.Codec = wire.VP8
	default:
		return s, fmt.Errorf("cannot encode to %v; use H264 or VP8", c)
	}
	if fps < 1 || fps > 240 {
		return s, fmt.Errorf("expected 1 to 240 pictures a second, got %d", fps)
	}
	if bitRate < 10_000 || bitRate > 200_000_000 {
		return s, fmt.Errorf("expected a bit rate of 10,000 to 200,000,000 bit/s, got %d", bitRate)
	}
	s.FPS, s.BitRate = uint16(fps), uint32(bitRate)
	return s, nil
}
