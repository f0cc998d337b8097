package remote

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/jpeg"
	"math"
	"strconv"
	"time"

	"touchline/inference"
)

// pictures encodes frames as JPEG data URLs and caches the pictures of the last prompt, because consecutive windows overlap.
type pictures struct {
	quality int
	known   map[pictureKey]string
	rgba    image.RGBA // reused
	jpeg    bytes.Buffer
}

type pictureKey struct {
	pts           time.Duration
	epoch         uint32
	width, height int
}

// maxSide is the largest edge of a JPEG.
const maxSide = 65535

// valid checks the size of a picture.
func valid(f inference.Frame) error {
	if f.Width < 1 || f.Height < 1 || f.Width > maxSide || f.Height > maxSide || len(f.Pix) != f.Width*f.Height*3 {
		return fmt.Errorf("encode picture: %d bytes are not %dx%d pixels of 3 bytes", len(f.Pix), f.Width, f.Height)
	}
	return nil
}

// urls returns the data URLs of valid frames in order and drops all others from the cache.
func (c *pictures) urls(frames []inference.Frame) ([]string, error) {
	now := make(map[pictureKey]string, len(frames))
	out := make([]string, len(frames))
	for i, f := range frames {
		key := pictureKey{f.PTS, f.Epoch, f.Width, f.Height}
		u, ok := now[key]
		if !ok {
			u, ok = c.known[key]
		}
		if !ok {
			var err error
			if u, err = c.encode(f); err != nil {
				return nil, fmt.Errorf("encode picture: %w", err)
			}
		}
		now[key], out[i] = u, u
	}
	c.known = now
	return out, nil
}

func (c *pictures) encode(f inference.Frame) (string, error) {
	n := f.Width * f.Height
	if cap(c.rgba.Pix) < n*4 {
		c.rgba.Pix = make([]byte, n*4)
	}
	c.rgba.Pix = c.rgba.Pix[:n*4]
	c.rgba.Stride = f.Width * 4
	c.rgba.Rect = image.Rect(0, 0, f.Width, f.Height)
	for i := range n {
		dst, src := c.rgba.Pix[i*4:i*4+4:i*4+4], f.Pix[i*3:i*3+3:i*3+3]
		dst[0], dst[1], dst[2], dst[3] = src[0], src[1], src[2], 0xff
	}
	c.jpeg.Reset()
	if err := jpeg.Encode(&c.jpeg, &c.rgba, &jpeg.Options{Quality: c.quality}); err != nil {
		return "", err
	}
	return "data:image/jpeg;base64," + base64.StdEncoding.EncodeToString(c.jpeg.Bytes()), nil
}

// digits are glyphs of 3x5 pixels, a row per octal digit.
var digits = [10]uint16{ //nolint:gochecknoglobals // a table
	0o75557, 0o26227, 0o71747, 0o71717, 0o55711, 0o74717, 0o74757, 0o71111, 0o75757, 0o75717,
}

// grid joins pictures to one, row by row, with a number in the corner of each. Its cells have the size of the largest.
func grid(frames []inference.Frame) inference.Frame {
	columns := int(math.Ceil(math.Sqrt(float64(len(frames)))))
	rows := (len(frames) + columns - 1) / columns
	width, height := 0, 0
	for _, f := range frames {
		width, height = max(width, f.Width), max(height, f.Height)
	}
	out := frames[len(frames)-1]
	out.Width, out.Height = columns*width, rows*height
	out.Pix = make([]byte, out.Width*out.Height*3)
	for i, f := range frames {
		x, y := i%columns*width, i/columns*height
		for row := range f.Height {
			copy(out.Pix[((y+row)*out.Width+x)*3:], f.Pix[row*f.Width*3:(row+1)*f.Width*3])
		}
		drawNumber(out, x, y, i+1, max(1, height/64))
	}
	return out
}

// drawNumber draws a number on a black box with its corner at x, y. A pixel of a glyph is scale pixels wide.
func drawNumber(f inference.Frame, x, y, number, scale int) {
	text := strconv.Itoa(number)
	for py := range min(7*scale, f.Height-y) {
		for px := range min((4*len(text)+1)*scale, f.Width-x) {
			column, row, grey := px/scale-1, py/scale-1, byte(0)
			if column >= 0 && column%4 < 3 && row >= 0 && row < 5 && digits[text[column/4]-'0']>>(14-row*3-column%4)&1 == 1 {
				grey = 255
			}
			at := ((y+py)*f.Width + x + px) * 3
			f.Pix[at], f.Pix[at+1], f.Pix[at+2] = grey, grey, grey
		}
	}
}
