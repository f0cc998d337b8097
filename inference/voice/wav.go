package voice

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// errNotWAV is returned for bytes that are not a supported WAV file.
var errNotWAV = errors.New("expected a RIFF WAVE file with 16-bit PCM")

// parseWAV parses a WAV file of 16-bit PCM with one or two channels, of which it
// returns the mean. Lengths beyond the data mean "to the end", as espeak-ng
// writes the header first.
func parseWAV(b []byte) (rate int, pcm []int16, err error) {
	if len(b) < 12 || string(b[:4]) != "RIFF" || string(b[8:12]) != "WAVE" {
		return 0, nil, fmt.Errorf("%w, got %d bytes of something else", errNotWAV, len(b))
	}
	channels := 0
	for b = b[12:]; len(b) >= 8; {
		id, size := string(b[:4]), uint64(binary.LittleEndian.Uint32(b[4:]))
		b = b[8:]
		body := b[:min(size, uint64(len(b)))]
		switch id {
		case "fmt ":
			if len(body) < 16 {
				return 0, nil, fmt.Errorf("%w, got a format of %d bytes", errNotWAV, len(body))
			}
			format := binary.LittleEndian.Uint16(body)
			channels = int(binary.LittleEndian.Uint16(body[2:]))
			rate = int(binary.LittleEndian.Uint32(body[4:]))
			bits := binary.LittleEndian.Uint16(body[14:])
			if (format != 1 && format != 0xfffe) || bits != 16 || channels < 1 || channels > 2 || rate < 4000 || rate > 192000 {
				return 0, nil, fmt.Errorf("%w, 1 or 2 channels, 4 to 192 kHz, got format %d, %d bits, %d channels, %d Hz",
					errNotWAV, format, bits, channels, rate)
			}
		case "data":
			if channels == 0 {
				return 0, nil, fmt.Errorf("%w, got data before the format", errNotWAV)
			}
			return rate, samples16(body, channels), nil
		}
		b = b[min(size+size&1, uint64(len(b))):]
	}
	return 0, nil, fmt.Errorf("%w, got no data", errNotWAV)
}

func samples16(body []byte, channels int) []int16 {
	pcm := make([]int16, len(body)/2/channels)
	for i := range pcm {
		sum := 0
		for c := range channels {
			sum += int(int16(binary.LittleEndian.Uint16(body[2*(i*channels+c):])))
		}
		pcm[i] = int16(sum / channels)
	}
	return pcm
}

// WriteWAV writes mono 16-bit sound as a WAV file.
func WriteWAV(w io.Writer, rate int, pcm []int16) error {
	const header, sample = 44, 2
	if len(pcm) > (math.MaxUint32-header)/sample {
		return fmt.Errorf("write WAV: %d samples do not fit", len(pcm))
	}
	size := uint32(len(pcm) * sample) //nolint:gosec // checked
	b := make([]byte, 0, header+len(pcm)*sample)
	u16, u32 := binary.LittleEndian.AppendUint16, binary.LittleEndian.AppendUint32
	b = u32(append(b, "RIFF"...), header-8+size)
	b = u32(append(b, "WAVEfmt "...), 16)
	b = u16(u16(b, 1), 1)                                     // PCM, one channel
	b = u32(u32(b, uint32(rate)), uint32(rate*sample))        //nolint:gosec // a rate in Hz
	b = u32(append(u16(u16(b, sample), 16), "data"...), size) // bytes and bits of a sample
	for _, s := range pcm {
		b = u16(b, uint16(s)) //nolint:gosec // the same bits
	}
	_, err := w.Write(b)
	return err
}
