package codec

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzPieces reads the sound that touchline-codec decoded.
func FuzzPieces(f *testing.F) {
	f.Add([]byte{0x80, 0x3e, 0, 0, 1, 0, 0, 0, 0, 0, 0x80, 0x3f})
	f.Add([]byte{0x80, 0x3e, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, out []byte) {
		n := 0
		_ = readPieces(bytes.NewReader(out), func(mono []float32, rate int) error {
			require.Positive(t, rate)
			n += 8 + 4*len(mono)
			return nil
		})
		require.LessOrEqual(t, n, len(out))
	})
}
