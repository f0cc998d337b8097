package audioapi

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/bluenviron/mediacommon/v2/pkg/codecs/g711"

	"touchline/inference"
	"touchline/internal/resample"
)

// The formats of live sound.
const (
	pcm16 = "pcm16"
	ulaw  = "g711_ulaw"
	alaw  = "g711_alaw"
)

// intake converts the bytes of a live stream to sound. The state of its resampler carries over from packet to packet.
type intake struct {
	format string
	rate   int
	conv   *resample.Resampler[float32]
	odd    []byte // the first byte of a sample whose second byte has not arrived
	mono   []float32
}

func newIntake(format string, rate int) (*intake, error) {
	switch format {
	case pcm16:
	case ulaw, alaw:
		rate = 8000
	default:
		return nil, fmt.Errorf("expected pcm16, g711_ulaw or g711_alaw, got %.40q", format)
	}
	switch rate {
	case 8000, 16000, 22050, 24000, 32000, 44100, 48000:
	default:
		return nil, fmt.Errorf("sample rate: expected 8000, 16000, 22050, 24000, 32000, 44100 or 48000 Hz, got %d", rate)
	}
	f, err := resample.NewFilter(rate, inference.RecognizerRate)
	if err != nil {
		return nil, err
	}
	return &intake{format: format, rate: rate, conv: resample.New[float32](f)}, nil
}

// width is the number of bytes of a sample.
func (in *intake) width() int {
	if in.format == pcm16 {
		return 2
	}
	return 1
}

// sound converts a packet.
func (in *intake) sound(b []byte) []float32 {
	in.mono = in.mono[:0]
	switch in.format {
	case ulaw:
		var wide g711.Mulaw
		wide.Unmarshal(b)
		in.append(wide, binary.BigEndian)
	case alaw:
		var wide g711.Alaw
		wide.Unmarshal(b)
		in.append(wide, binary.BigEndian)
	default:
		b = append(in.odd, b...)
		in.odd = slices.Clone(in.append(b, binary.LittleEndian))
	}
	return in.conv.Append(nil, in.mono)
}

// append adds samples of 16 bits, and returns the byte of one that is not complete.
func (in *intake) append(b []byte, order binary.ByteOrder) (rest []byte) {
	for ; len(b) > 1; b = b[2:] {
		in.mono = append(in.mono, float32(int16(order.Uint16(b)))/(1<<15)) //nolint:gosec // the same bits
	}
	return b
}
