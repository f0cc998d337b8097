package mjpeg

import (
	"bytes"
	"image"
	"image/jpeg"
	"image/png"
	"io"

	"golang.org/x/image/bmp"
	"golang.org/x/image/webp"

	"touchline/media/source"
)

const (
	// maxStill bounds a picture that is converted, in pixels.
	maxStill = 4096 * 4096
	// stillQuality is that of cameras.
	stillQuality = 90
)

// still reads a single PNG, WebP or BMP picture to its end and converts it to JPEG. It returns nil if the stream is no such picture.
func (s *scanner) still(kind string) ([]byte, error) {
	start, _ := s.in.Peek(12) // may be shorter
	var size func(io.Reader) (image.Config, error)
	var decode func(io.Reader) (image.Image, error)
	switch {
	case bytes.HasPrefix(start, []byte("\x89PNG\r\n")):
		size, decode = png.DecodeConfig, png.Decode
	case len(start) == 12 && string(start[:4]) == "RIFF" && string(start[8:]) == "WEBP":
		size, decode = webp.DecodeConfig, webp.Decode
	case bytes.HasPrefix(start, []byte("BM")) && kind == "image/bmp":
		size, decode = bmp.DecodeConfig, bmp.Decode
	default:
		return nil, nil
	}
	data, err := io.ReadAll(io.LimitReader(s.in, maxPicture+1))
	if err != nil {
		return nil, source.Errorf("read the camera's picture: %w", err)
	}
	c, err := size(bytes.NewReader(data))
	switch {
	case err != nil:
		return nil, source.Errorf("read the camera's picture: %w", err)
	case len(data) > maxPicture:
		return nil, errLarge
	case c.Width < 1 || c.Height < 1 || c.Width*c.Height > maxStill:
		return nil, source.Errorf("the camera's picture has %d x %d pixels; the limit for PNG, WebP and BMP is %d pixels, use JPEG",
			c.Width, c.Height, maxStill)
	}
	picture, err := decode(bytes.NewReader(data))
	if err != nil {
		return nil, source.Errorf("decode the camera's picture: %w", err)
	}
	var out bytes.Buffer
	if err := jpeg.Encode(&out, picture, &jpeg.Options{Quality: stillQuality}); err != nil {
		return nil, source.Errorf("convert the camera's picture: %w", err)
	}
	return out.Bytes(), nil
}

// partType returns the type of the first part of a multipart stream if its header names one other than JPEG, "" otherwise.
func (s *scanner) partType() string {
	b, _ := s.in.Peek(512) // may be shorter
	head, _, _ := bytes.Cut(bytes.ToLower(b), []byte("\r\n\r\n"))
	for _, kind := range []string{"image/png", "image/webp", "image/gif", "text/html", "video/"} {
		if bytes.Contains(head, []byte("content-type: "+kind)) {
			return kind
		}
	}
	return ""
}
