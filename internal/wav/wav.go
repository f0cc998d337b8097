// Package wav reads WAV files with samples of any usual format, and writes simple ones.
package wav

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// ErrFormat is returned for bytes that are not a WAV file, or of an unsupported format.
var ErrFormat = errors.New("expected a RIFF WAVE file")

// Format describes samples. The samples of several channels alternate.
type Format struct {
	Rate, Channels int
	Bits           int  // of a sample: 8, 16, 24 or 32; 32 or 64 of a float
	Float          bool // from -1 to 1
	BigEndian      bool // in a RIFX file
}

// maxSkipped bounds the chunks before the samples, in bytes.
const maxSkipped = 64 << 10

// ReadHead reads a WAV file up to its samples, and returns their length in bytes according to the file. Programs that write to a stream
// do not know the length: then it is 0 or larger than the data.
func ReadHead(in io.Reader) (f Format, size int64, err error) {
	var head [12]byte
	n, err := io.ReadFull(in, head[:])
	order, known := byteOrder(string(head[:4]))
	if err != nil || !known || string(head[8:]) != "WAVE" {
		return f, 0, fmt.Errorf("%w, got %d bytes of something else", ErrFormat, n)
	}
	chunk := head[:8]
	for skipped, begun := int64(0), 0; ; {
		if _, err := io.ReadFull(in, chunk[begun:]); err != nil {
			return f, 0, fmt.Errorf("%w, got no data", ErrFormat)
		}
		id, rest := string(chunk[:4]), int64(order.Uint32(chunk[4:]))
		odd := rest&1 == 1
		switch id {
		case "fmt ":
			var fields [28]byte // an extension of the format begins with the format's number
			n := min(int(rest), len(fields))
			if got, err := io.ReadFull(in, fields[:n]); err != nil || n < 16 {
				return f, 0, fmt.Errorf("%w, got a format of %d bytes", ErrFormat, got)
			}
			if f, err = parseFormat(fields, n, order); err != nil {
				return f, 0, err
			}
			rest -= int64(n)
		case "data":
			if f.Channels == 0 {
				return f, 0, fmt.Errorf("%w, got data before the format", ErrFormat)
			}
			return f, rest, nil
		}
		if skipped += rest; skipped > maxSkipped {
			return f, 0, fmt.Errorf("%w, got no data in the first %d bytes", ErrFormat, maxSkipped)
		}
		if _, err := io.CopyN(io.Discard, in, rest); err != nil {
			return f, 0, fmt.Errorf("%w, got no data", ErrFormat)
		}
		begun = 0
		if odd { // A zero follows, which some programs leave out.
			if _, err := io.ReadFull(in, chunk[:1]); err == nil && chunk[0] != 0 {
				begun = 1
			}
		}
	}
}

// byteOrder returns the order of a file's numbers by its first four bytes.
func byteOrder(id string) (order binary.ByteOrder, known bool) {
	switch id {
	case "RIFF":
		return binary.LittleEndian, true
	case "RIFX":
		return binary.BigEndian, true
	}
	return nil, false
}

// parseFormat reads the first n bytes of the format chunk.
func parseFormat(b [28]byte, n int, order binary.ByteOrder) (Format, error) {
	const pcm, float, extensible = 1, 3, 0xfffe
	kind := order.Uint16(b[:])
	number := uint32(kind)
	if kind == extensible {
		number = pcm
		if n == len(b) {
			number = order.Uint32(b[24:])
		}
	}
	f := Format{
		Channels: int(order.Uint16(b[2:])), Rate: int(order.Uint32(b[4:])),
		Bits: int(order.Uint16(b[14:])), Float: number == float, BigEndian: order == binary.BigEndian,
	}
	known := false
	switch number {
	case pcm:
		known = f.Bits == 8 || f.Bits == 16 || f.Bits == 24 || f.Bits == 32
	case float:
		known = f.Bits == 32 || f.Bits == 64
	}
	if !known || f.Channels == 0 || f.Rate == 0 || f.Rate > math.MaxInt32 {
		return Format{}, fmt.Errorf("%w of PCM (8 to 32 bits) or floats, got format %d, %d bits, %d channels, %d Hz",
			ErrFormat, kind, f.Bits, f.Channels, f.Rate)
	}
	return f, nil
}

// Parse reads a WAV file. The samples are the mean of the channels, from -1 to 1; floats may exceed this range. A length of 0 or larger
// than the data means "to the end".
func Parse(b []byte) (samples []float32, rate int, err error) {
	in := bytes.NewReader(b)
	f, size, err := ReadHead(in)
	if err != nil {
		return nil, 0, err
	}
	body := b[len(b)-in.Len():]
	if size > 0 && size < int64(len(body)) {
		body = body[:size]
	}
	return f.Mono(make([]float32, 0, len(body)/f.Frame()), body), f.Rate, nil
}

// Frame is the length of one sample of all channels, in bytes.
func (f Format) Frame() int { return f.Bits / 8 * f.Channels }

// Mono appends the means of the channels of raw samples to dst. Bytes after the last complete sample are ignored.
func (f Format) Mono(dst []float32, raw []byte) []float32 {
	width := f.Bits / 8
	for range len(raw) / f.Frame() {
		sum := 0.0
		for range f.Channels {
			sum += f.sample(raw)
			raw = raw[width:]
		}
		dst = append(dst, float32(sum/float64(f.Channels)))
	}
	return dst
}

// sample returns the first sample of b.
func (f Format) sample(b []byte) float64 {
	le := binary.LittleEndian
	if f.BigEndian {
		var swapped [8]byte
		copy(swapped[:], b[:f.Bits/8])
		slices.Reverse(swapped[:f.Bits/8])
		b = swapped[:]
	}
	switch {
	case f.Float && f.Bits == 32:
		return float64(math.Float32frombits(le.Uint32(b)))
	case f.Float:
		return math.Float64frombits(le.Uint64(b))
	case f.Bits == 8:
		return (float64(b[0]) - 128) / 128
	case f.Bits == 16:
		return float64(int16(le.Uint16(b))) / (1 << 15) //nolint:gosec // the same bits
	case f.Bits == 24:
		return float64(int32(uint32(b[0])<<8|uint32(b[1])<<16|uint32(b[2])<<24)) / (1 << 31) //nolint:gosec // the same bits
	}
	return float64(int32(le.Uint32(b))) / (1 << 31) //nolint:gosec // the same bits
}

// Encode returns a file of one channel with the samples as in PCM.
func Encode(samples []float32, rate int) []byte { return EncodePCM(PCM(samples), rate) }

// PCM returns samples with 16 bits. Samples outside [-1, 1] are clipped, NaN becomes 0.
func PCM(samples []float32) []int16 {
	pcm := make([]int16, len(samples))
	for i, v := range samples {
		if v := float64(v); !math.IsNaN(v) {
			pcm[i] = int16(math.Round(min(max(v*(1<<15), math.MinInt16), math.MaxInt16)))
		}
	}
	return pcm
}

// EncodePCM returns a file of one channel with 16 bits.
func EncodePCM(pcm []int16, rate int) []byte {
	b := Head(uint32(min(2*uint64(len(pcm)), math.MaxUint32)), rate) // a file beyond 4 GB has no length, like a stream
	b, _ = binary.Append(b, binary.LittleEndian, pcm)                // has a fixed size
	return b
}

// Head returns the head of a file of one channel with 16 bits and samples of a length in bytes; 0xffffffff for a stream.
func Head(length uint32, rate int) []byte {
	u16, u32 := binary.LittleEndian.AppendUint16, binary.LittleEndian.AppendUint32
	b := u32([]byte("RIFF"), max(length, 36+length))
	b = u32(append(b, "WAVEfmt "...), 16)
	b = u32(u16(u16(b, 1), 1), uint32(rate))    //nolint:gosec // a rate of this program, not of a file
	b = u16(u16(u32(b, uint32(2*rate)), 2), 16) //nolint:gosec // as above
	return u32(append(b, "data"...), length)
}
