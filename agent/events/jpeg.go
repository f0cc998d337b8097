package events

import (
	"fmt"
	"image"

	"touchline/media"
	"touchline/media/window"
)

// JPEG encodes a picture, scaled down so that no side is longer than side pixels; 0 keeps its size.
func JPEG(f media.VideoFrame, side, quality int) ([]byte, error) {
	if f.Width <= 0 || f.Height <= 0 || len(f.Pix) != f.Width*f.Height*3 { // before it is scaled
		return nil, fmt.Errorf("encode picture: must have %dx%dx3 bytes, has %d", f.Width, f.Height, len(f.Pix))
	}
	w, h := fit(f.Width, f.Height, side)
	return window.JPEG(shrink(f, w, h), quality)
}

// FromImage returns an image as a picture without times, scaled down so that no side is longer than side pixels; 0 keeps its size.
func FromImage(img image.Image, side int) media.VideoFrame {
	f := window.FromImage(img)
	w, h := fit(f.Width, f.Height, side)
	return shrink(f, w, h)
}

// Thumbnail scales a JPEG down to a width in pixels. A JPEG that is not wider is returned unchanged.
func Thumbnail(data []byte, width, quality int) ([]byte, error) {
	f, err := window.FromJPEG(data)
	if err != nil {
		return nil, err
	}
	if f.Width <= width {
		return data, nil
	}
	return window.JPEG(shrink(f, width, max(1, (f.Height*width+f.Width/2)/f.Width)), quality)
}

// fit returns the size with the same shape whose longer side is at most side.
func fit(w, h, side int) (int, int) {
	long := max(w, h)
	if side <= 0 || long <= side {
		return w, h
	}
	return max(1, (w*side+long/2)/long), max(1, (h*side+long/2)/long)
}

// shrink scales a picture down: every pixel is the mean of the pixels of src that it covers.
func shrink(src media.VideoFrame, w, h int) media.VideoFrame {
	if w == src.Width && h == src.Height {
		return src
	}
	dst := media.VideoFrame{Width: w, Height: h, Pix: make([]byte, 0, w*h*3)}
	for y := range h {
		y0 := y * src.Height / h
		y1 := max((y+1)*src.Height/h, y0+1)
		for x := range w {
			x0 := x * src.Width / w
			x1 := max((x+1)*src.Width/w, x0+1)
			var r, g, b int
			for sy := y0; sy < y1; sy++ {
				row := src.Pix[(sy*src.Width+x0)*3 : (sy*src.Width+x1)*3]
				for i := 0; i < len(row); i += 3 {
					r += int(row[i])
					g += int(row[i+1])
					b += int(row[i+2])
				}
			}
			n := (x1 - x0) * (y1 - y0)
			dst.Pix = append(dst.Pix, byte(r/n), byte(g/n), byte(b/n))
		}
	}
	return dst
}
