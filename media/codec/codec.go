// Package codec decodes, scales and encodes pictures in a child process,
// touchline-codec: a Decoder for access units, which also encodes streams that
// browsers cannot play, and an Encoder for raw pictures.
//
// It owns that process: it starts it, bounds its input, restarts it when it ends or
// hangs, and checks all its output. It links no codec and does not decide when a
// picture is needed. When Run returns, the process and all goroutines have ended.
//
// # Bursts
//
// Most pictures of a watched track are not used: at 2 samples a second, 28 of 30.
// A Decoder therefore holds access units until a picture is needed (a sample, an
// encoded copy, a call of Latest) and then sends them all in one write. When a key
// frame comes first, the held units before it are dropped undecoded, and so are
// units that the source marks as discardable. The held units are bounded in number,
// bytes and media time. The picture is the same as when every access unit is
// decoded. It comes later by the time of the burst: 2 samples a second of 720p30
// have 15 pictures in a burst.
//
// With a key frame each second and samples on them (window.Grid), 16 of 30 pictures
// are decoded, and the process wakes up twice a second. With a single key frame in
// the stream all are decoded, and only wake-ups are saved. BenchmarkDecodeSample
// compares the processor time with libavcodec alone.
package codec

import (
	"bytes"
	"errors"
	"fmt"
	"image/jpeg"
	"os"
	"os/exec"
	"path/filepath"

	"touchline/media"
	"touchline/media/codec/wire"
)

// MJPEG is a JPEG picture in each access unit, each a key frame. Cameras send it;
// rooms do not carry it, so it is not in package media.
const MJPEG media.Codec = 0x40

// JPEG returns the access unit of a JPEG picture, without times.
func JPEG(picture []byte) (media.EncodedFrame, error) {
	size, err := jpeg.DecodeConfig(bytes.NewReader(picture))
	return media.EncodedFrame{
		Codec: MJPEG, KeyFrame: true, Width: size.Width, Height: size.Height, SpatialLayers: 1, Data: picture,
	}, err
}

// MaxPixels is the largest picture that is decoded, in pixels: 8192 x 4320.
const MaxPixels = wire.MaxPixels

var (
	// ErrBehind is returned when the codec process cannot keep up; access
	// units are dropped up to the next key frame.
	ErrBehind = errors.New("decoder is behind")
	// ErrNeedKeyFrame is returned for an access unit that is dropped because
	// decoding has to begin with a key frame: at the start, with another epoch or
	// codec, and after a restart of the process.
	ErrNeedKeyFrame = errors.New("decoder waits for a key frame")
	// ErrNoPicture is returned before the first decoded picture.
	ErrNoPicture = errors.New("no picture decoded yet")
	// ErrNotRunning is returned outside of Run.
	ErrNotRunning = errors.New("codec is not running")
	// ErrRestarted is returned when the codec process ended before it answered. It
	// is restarted.
	ErrRestarted = errors.New("codec process ended")
	// ErrVersion is returned when the program was built from other sources.
	ErrVersion = errors.New("touchline-codec has another version; run make build")
)

// program is the name of the executable.
const program = "touchline-codec"

// Find returns the path of touchline-codec: path if given, or else beside the running
// program, or on the PATH, in this order.
func Find(path string) (string, error) {
	if path != "" {
		found, err := exec.LookPath(path)
		if err != nil {
			return "", fmt.Errorf("find the codec program: %w", err)
		}
		return filepath.Abs(found)
	}
	if self, err := os.Executable(); err == nil {
		if found, err := exec.LookPath(filepath.Join(filepath.Dir(self), program)); err == nil {
			return found, nil
		}
	}
	if found, err := exec.LookPath(program); err == nil {
		return filepath.Abs(found)
	}
	return "", fmt.Errorf("find %s: it is neither beside this program nor on the PATH; run make build", program)
}

func toWire(c media.Codec) (wire.Codec, error) {
	codecs := map[media.Codec]wire.Codec{
		media.VP8: wire.VP8, media.VP9: wire.VP9, media.H264: wire.H264, media.H265: wire.H265, media.AV1: wire.AV1, MJPEG: wire.MJPEG,
	}
	if w, ok := codecs[c]; ok {
		return w, nil
	}
	return 0, fmt.Errorf("expected VP8, VP9, H264, H265, AV1 or MJPEG, got codec %d", c)
}

// fromWire converts the codec of an encoder.
func fromWire(c wire.Codec) media.Codec {
	if c == wire.VP8 {
		return media.VP8
	}
	return media.H264
}

// encodable checks the settings of an encoder.
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
		return s, fmt.Errorf("FPS %d: must be between 1 and 240 pictures a second", fps)
	}
	if bitRate < 10_000 || bitRate > 200_000_000 {
		return s, fmt.Errorf("bit rate %d: must be between 10,000 and 200,000,000 bit/s", bitRate)
	}
	s.FPS, s.BitRate = uint16(fps), uint32(bitRate)
	return s, nil
}
