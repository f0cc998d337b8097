package voice

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"touchline/internal/wav"
)

// The accepted rates, in Hz.
const minRate, maxRate = 4000, 192000

// parseWAV parses a WAV file of 16-bit PCM with one or two channels, of which it
// returns the mean. Lengths beyond the data mean "to the end", as espeak-ng
// writes the header first.
func parseWAV(b []byte) (rate int, pcm []int16, err error) {
	in := bytes.NewReader(b)
	rate, channels, size, err := readWAV(in)
	if err != nil {
		return 0, nil, err
	}
	rest := b[len(b)-in.Len():]
	return rate, samples16(rest[:min(size, int64(len(rest)))], channels), nil
}

// endless is the length of sound that lasts to the end of its stream.
const endless = math.MaxInt64

// readWAVHead reads a WAV stream up to its samples, and returns their length in bytes, endless if the head does not have it.
func readWAVHead(in io.Reader) (rate, channels int, size int64, err error) {
	rate, channels, size, err = readWAV(in)
	const lies = 0x7ff00000
	if size == 0 || size >= lies {
		size = endless
	}
	return rate, channels, size, err
}

// readWAV reads a WAV file up to its samples, and returns their length in bytes from the head.
func readWAV(in io.Reader) (rate, channels int, size int64, err error) {
	f, size, err := wav.ReadHead(in)
	if err != nil {
		return 0, 0, 0, err
	}
	if f.Float || f.Bits != 16 || f.Channels > 2 || f.Rate < minRate || f.Rate > maxRate {
		kind := "PCM"
		if f.Float {
			kind = "floats"
		}
		return 0, 0, 0, fmt.Errorf("%w with 16-bit PCM, 1 or 2 channels, 4 to 192 kHz, got %s of %d bits, %d channels, %d Hz",
			wav.ErrFormat, kind, f.Bits, f.Channels, f.Rate)
	}
	return f.Rate, f.Channels, size, nil
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
	_, err := w.Write(wav.EncodePCM(pcm, rate))
	return err
}
