package wav_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/internal/wav"
)

// file builds a file. extension is the number in an extended format, if not 0.
func file(kind, channels, rate, bits int, extension uint16, length uint32, body ...byte) []byte {
	u16, u32 := binary.LittleEndian.AppendUint16, binary.LittleEndian.AppendUint32
	format := u16(u16(nil, uint16(kind)), uint16(channels))
	format = u32(u32(format, uint32(rate)), uint32(rate*channels*bits/8))
	format = u16(u16(format, uint16(channels*bits/8)), uint16(bits))
	if extension != 0 {
		format = u16(append(format, 22, 0, byte(bits), 0, 0, 0, 0, 0), extension)
		format = append(format, "\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71"...)
	}
	b := u32([]byte("RIFF\x00\x00\x00\x00WAVEfmt "), uint32(len(format)))
	b = append(append(b, format...), "LIST\x03\x00\x00\x00abc\x00data"...)
	return append(u32(b, length), body...)
}

const pcm, float, extensible = 1, 3, 0xfffe

func floats(values ...float32) (b []byte) {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// big turns a file of 16 or 32 bits into a big-endian one.
func big(b []byte, bits int) []byte {
	b = slices.Clone(b)
	copy(b, "RIFX")
	swap := func(at, n int) { slices.Reverse(b[at : at+n]) }
	length := int(binary.LittleEndian.Uint32(b[16:]))
	for _, field := range [][2]int{{16, 4}, {20, 2}, {22, 2}, {24, 4}, {28, 4}, {32, 2}, {34, 2}} {
		swap(field[0], field[1])
	}
	if length > 16 {
		swap(44, 4)
	}
	at := 20 + length
	swap(at+4, 4)
	swap(at+16, 4)
	for at += 20; at < len(b); at += bits / 8 {
		swap(at, bits/8)
	}
	return b
}

func TestParse(t *testing.T) {
	half := binary.LittleEndian.AppendUint64(nil, math.Float64bits(-0.5))
	tests := []struct {
		name string
		file []byte
		want []float32
		err  string
	}{
		{"8 bits", file(pcm, 1, 8000, 8, 0, 3, 0, 128, 192), []float32{-1, 0, 0.5}, ""},
		{"16 bits", file(pcm, 1, 16000, 16, 0, 4, 0, 128, 0, 64), []float32{-1, 0.5}, ""},
		{"24 bits", file(pcm, 1, 48000, 24, 0, 6, 0, 0, 128, 0, 0, 64), []float32{-1, 0.5}, ""},
		{"32 bits", file(pcm, 1, 44100, 32, 0, 4, 0, 0, 0, 192), []float32{-0.5}, ""},
		{"floats", file(float, 1, 44100, 32, 0, 8, floats(0.25, -1.5)...), []float32{0.25, -1.5}, ""},
		{"long floats", file(float, 1, 44100, 64, 0, 8, half...), []float32{-0.5}, ""},
		{"extended PCM", file(extensible, 1, 16000, 16, pcm, 2, 0, 64), []float32{0.5}, ""},
		{"extended floats", file(extensible, 1, 16000, 32, float, 4, floats(0.125)...), []float32{0.125}, ""},
		{"extended, without its extension", file(extensible, 1, 16000, 16, 0, 2, 0, 64), []float32{0.5}, ""},
		{"six channels", file(pcm, 6, 16000, 8, 0, 6, 128, 128, 128, 128, 128, 224), []float32{0.125}, ""},
		{"a length that is a lie", file(pcm, 1, 16000, 16, 0, 0xffffffff, 0, 64, 9), []float32{0.5}, ""},
		{"a length of 0", file(pcm, 1, 16000, 16, 0, 0, 0, 64), []float32{0.5}, ""},
		{"bytes behind the sound", file(pcm, 1, 16000, 16, 0, 2, 0, 64, 'x', 'y'), []float32{0.5}, ""},
		{"big-endian", big(file(pcm, 1, 16000, 16, 0, 4, 0, 128, 0, 64), 16), []float32{-1, 0.5}, ""},
		{"big-endian floats", big(file(extensible, 1, 16000, 32, float, 8, floats(0.25, -1.5)...), 32), []float32{0.25, -1.5}, ""},
		{"an odd chunk without padding", bytes.Replace(file(pcm, 1, 16000, 16, 0, 2, 0, 64), []byte("abc\x00"), []byte("abc"), 1), []float32{0.5}, ""},
		{"no sound", file(pcm, 1, 16000, 16, 0, 0), []float32{}, ""},

		{"12 bits", file(pcm, 1, 16000, 12, 0, 2, 1, 2), nil, "12 bits"},
		{"ADPCM", file(2, 1, 16000, 4, 0, 2, 1, 2), nil, "format 2"},
		{"an unknown extension", file(extensible, 1, 16000, 16, 6, 2, 1, 2), nil, "format 65534"},
		{"0 Hz", file(pcm, 1, 0, 16, 0, 2, 1, 2), nil, "0 Hz"},
		{"0 channels", file(pcm, 0, 16000, 16, 0, 2, 1, 2), nil, "0 channels"},
		{"empty", nil, nil, "got 0 bytes"},
		{"text", []byte("expected a RIFF file"), nil, "something else"},
		{"cut off", file(pcm, 1, 16000, 16, 0, 2)[:40], nil, "no data"},
		{"no format", []byte("RIFF\x00\x00\x00\x00WAVEdata\x00\x00\x00\x00"), nil, "before the format"},
		{"a short format", []byte("RIFF\x00\x00\x00\x00WAVEfmt \x04\x00\x00\x00abcd"), nil, "a format of 4 bytes"},
		{
			"endless chunks", append([]byte("RIFF\x00\x00\x00\x00WAVELIST\x00\x00\x10\x00"), bytes.Repeat([]byte{1}, 1<<20)...), nil,
			"in the first 65536 bytes",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, rate, err := wav.Parse(tt.file)
			if tt.err != "" {
				require.ErrorIs(t, err, wav.ErrFormat)
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
			require.Positive(t, rate)
		})
	}
}

func TestEncode(t *testing.T) {
	got, rate, err := wav.Parse(wav.Encode([]float32{-1, 0.5, 2, -7, float32(math.NaN())}, 16000))
	require.NoError(t, err)
	require.Equal(t, 16000, rate)
	require.Equal(t, []float32{-1, 0.5, 32767.0 / 32768, -1, 0}, got)
}

func TestEncodePCM(t *testing.T) {
	for _, pcm := range [][]int16{{}, {0, 1, -1, 32767, -32768}} {
		file := wav.EncodePCM(pcm, 22050)
		require.Len(t, file, 44+2*len(pcm))
		got, rate, err := wav.Parse(file)
		require.NoError(t, err)
		require.Equal(t, 22050, rate)
		require.Equal(t, pcm, wav.PCM(got))
	}
}

func FuzzParse(f *testing.F) {
	f.Add(file(pcm, 1, 16000, 16, 0, 6, 1, 0, 2, 0))
	f.Add(file(pcm, 3, 48000, 24, 0, 9, 1, 0, 2, 0, 1, 2, 3, 4, 5))
	f.Add(file(extensible, 2, 22050, 32, float, 0xffffffff, floats(1, 2)...))
	f.Add([]byte("RIFF\x00\x00\x00\x00WAVEdata\xff\xff\xff\xff"))
	f.Add([]byte("RIFF\x00\x00\x00\x00WAVEfmt \xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		samples, rate, err := wav.Parse(b)
		if err != nil {
			require.ErrorIs(t, err, wav.ErrFormat)
			return
		}
		require.Positive(t, rate)
		require.LessOrEqual(t, len(samples), len(b))
	})
}
