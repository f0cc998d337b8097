package voice_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/voice"
)

// wavFile builds a file whose data chunk has the length in its header.
func wavFile(channels, rate, bits int, length uint32, body []byte) []byte {
	b := []byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00")
	b = binary.LittleEndian.AppendUint16(b, uint16(channels))
	b = binary.LittleEndian.AppendUint32(b, uint32(rate))
	b = binary.LittleEndian.AppendUint32(b, uint32(rate*channels*bits/8))
	b = binary.LittleEndian.AppendUint16(b, uint16(channels*bits/8))
	b = binary.LittleEndian.AppendUint16(b, uint16(bits))
	b = append(b, "LIST\x03\x00\x00\x00abc\x00data"...)
	b = binary.LittleEndian.AppendUint32(b, length)
	return append(b, body...)
}

func TestParseWAV(t *testing.T) {
	body := []byte{1, 0, 255, 255, 0, 128, 9}
	tests := []struct {
		name string
		file []byte
		want []int16
		err  string
	}{
		{"plain", wavFile(1, 16000, 16, 6, body), []int16{1, -1, -32768}, ""},
		{"a length that is a lie", wavFile(1, 22050, 16, 0x7ffff000, body), []int16{1, -1, -32768}, ""},
		{"the largest length", wavFile(1, 22050, 16, 0xffffffff, body), []int16{1, -1, -32768}, ""},
		{"two channels", wavFile(2, 16000, 16, 4, body), []int16{0}, ""},
		{"no sound", wavFile(1, 16000, 16, 0, nil), []int16{}, ""},
		{"8 bits", wavFile(1, 16000, 8, 6, body), nil, "8 bits"},
		{"0 Hz", wavFile(1, 0, 16, 6, body), nil, "0 Hz"},
		{"0 channels", wavFile(0, 16000, 16, 6, body), nil, "0 channels"},
		{"empty", nil, nil, "got 0 bytes"},
		{"text", []byte("expected a RIFF file"), nil, "something else"},
		{"cut off", wavFile(1, 16000, 16, 6, body)[:40], nil, "no data"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, got, err := voice.ParseWAV(tt.file)
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

func FuzzParseWAV(f *testing.F) {
	f.Add(wavFile(1, 16000, 16, 6, []byte{1, 0, 2, 0}))
	f.Add(wavFile(2, 22050, 16, 0x7ffff000, []byte{1, 0, 2, 0}))
	f.Add([]byte("RIFF\x00\x00\x00\x00WAVEdata\xff\xff\xff\xff"))
	f.Add([]byte("RIFF\x00\x00\x00\x00WAVEfmt \xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		rate, pcm, err := voice.ParseWAV(b)
		if err != nil {
			return
		}
		require.Positive(t, rate)
		require.LessOrEqual(t, 2*len(pcm), len(b))
	})
}
