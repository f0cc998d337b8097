package audioapi

import (
	"encoding/binary"
	"fmt"

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

// sound converts a packet.
func (in *intake) sound(b []byte) []float32 {
	in.mono = in.mono[:0]
	switch in.format {
	case ulaw:
		for _, v := range b {
			in.mono = append(in.mono, fromULaw(v))
		}
	case alaw:
		for _, v := range b {
			in.mono = append(in.mono, fromALaw(v))
		}
	default:
		if len(in.odd) > 0 && len(b) > 0 {
			in.mono = append(in.mono, sample16([]byte{in.odd[0], b[0]}))
			in.odd, b = in.odd[:0], b[1:]
		}
		for ; len(b) > 1; b = b[2:] {
			in.mono = append(in.mono, sample16(b))
		}
		in.odd = append(in.odd, b...)
	}
	return in.conv.Append(nil, in.mono)
}

func sample16(b []byte) float32 { return float32(int16(binary.LittleEndian.Uint16(b))) / (1 << 15) } //nolint:gosec // the same bits

// fromULaw and fromALaw decode a sample of ITU-T G.711.
func fromULaw(b byte) float32 {
	b = ^b
	v := (int(b&15)<<3+0x84)<<(b>>4&7) - 0x84
	if b&0x80 != 0 {
		v = -v
	}
	return float32(v) / (1 << 15)
}

func fromALaw(b byte) float32 {
	b ^= 0x55
	v := int(b&15)<<4 + 8
	if e := b >> 4 & 7; e > 0 {
		v = (v + 0x100) << (e - 1)
	}
	if b&0x80 == 0 {
		v = -v
	}
	return float32(v) / (1 << 15)
}
