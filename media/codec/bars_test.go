package codec_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media"
)

const (
	clipFPS  = 30
	frameGap = time.Second / clipFPS
)

// barColours are the bars of the test picture, from left to right.
var barColours = [...][3]byte{
	{235, 235, 235}, {200, 200, 20}, {20, 200, 200}, {20, 200, 20}, {200, 20, 200}, {200, 20, 20}, {20, 20, 200}, {40, 40, 40},
}

// drawBars draws frame n of the test picture: upright bars, and along the
// bottom ninth eight fields, white for the set bits of n.
func drawBars(w, h, n int) []byte {
	pix := make([]byte, 0, 3*w*h)
	for y := range h {
		for x := range w {
			i := x * 8 / w
			c := barColours[i]
			if y >= h-h/9 {
				c = [3]byte{16, 16, 16}
				if n>>i&1 != 0 {
					c = [3]byte{240, 240, 240}
				}
			}
			pix = append(pix, c[:]...)
		}
	}
	return pix
}

// readBars checks the colours of a test picture and returns its frame number.
func readBars(tb testing.TB, f media.VideoFrame) int {
	tb.Helper()
	require.Len(tb, f.Pix, 3*f.Width*f.Height)
	at := func(i int, y float64) [3]byte {
		p := 3 * (int(y*float64(f.Height))*f.Width + (2*i+1)*f.Width/16)
		return [3]byte(f.Pix[p:])
	}
	number := 0
	for i, want := range barColours {
		got := at(i, 0.4)
		for c := range 3 {
			require.InDelta(tb, want[c], got[c], 14, "bar %d of %d x %d is %v, not %v", i, f.Width, f.Height, got, want)
		}
		if at(i, 0.95)[1] > 128 {
			number |= 1 << i
		}
	}
	return number
}
