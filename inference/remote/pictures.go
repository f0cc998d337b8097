package remote

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/jpeg"
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

// urls returns the data URLs of the frames in order and drops all others from the cache.
func (c *pictures) urls(frames []inference.Frame) ([]string, error) {
	now := make(map[pictureKey]string, len(frames))
	out := make([]string, len(frames))
	for i, f := range frames {
		if f.Width < 1 || f.Height < 1 || f.Width > maxSide || f.Height > maxSide || len(f.Pix) != f.Width*f.Height*3 {
			return nil, fmt.Errorf("encode picture: %d bytes are not %dx%d pixels of 3 bytes", len(f.Pix), f.Width, f.Height)
		}
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
