package codec

import (
	"bytes"
	"fmt"
	"image"
	"image/jpeg"

	"touchline/media"
)

// JPEG encodes a picture as JPEG of quality 1 to 100, scaled down to a width of
// maxWidth pixels; 0 keeps the size.
func JPEG(f media.VideoFrame, quality, maxWidth int) ([]byte, error) {
	if f.Width < 1 || f.Height < 1 || len(f.Pix) != 3*f.Width*f.Height {
		return nil, fmt.Errorf("write a JPEG: expected %d x %d pixels of 3 bytes, got %d bytes", f.Width, f.Height, len(f.Pix))
	}
	if quality < 1 || quality > 100 || maxWidth < 0 {
		return nil, fmt.Errorf("write a JPEG: quality %d: must be between 1 and 100; width %d: must not be negative", quality, maxWidth)
	}
	if maxWidth > 0 && f.Width > maxWidth {
		f = shrink(f, maxWidth, max(1, (f.Height*maxWidth+f.Width/2)/f.Width))
	}
	var out bytes.Buffer
	if err := jpeg.Encode(&out, planes(f), &jpeg.Options{Quality: quality}); err != nil {
		return nil, fmt.Errorf("write a JPEG: %w", err)
	}
	return out.Bytes(), nil
}

// shrink scales f down to w x h by averaging.
func shrink(f media.VideoFrame, w, h int) media.VideoFrame {
	out := media.VideoFrame{Width: w, Height: h, Pix: make([]byte, 3*w*h)}
	sums := make([]uint32, 3*w)
	for y := range h {
		clear(sums)
		top, bottom := y*f.Height/h, (y+1)*f.Height/h
		for row := top; row < bottom; row++ {
			line := f.Pix[3*row*f.Width:]
			for x := range w {
				var r, g, b uint32
				for i := 3 * (x * f.Width / w); i < 3*((x+1)*f.Width/w); i += 3 {
					r, g, b = r+uint32(line[i]), g+uint32(line[i+1]), b+uint32(line[i+2])
				}
				sums[3*x] += r
				sums[3*x+1] += g
				sums[3*x+2] += b
			}
		}
		for x := range w {
			n := uint32(bottom-top) * uint32((x+1)*f.Width/w-x*f.Width/w) //nolint:gosec // a few pixels
			for c := range 3 {
				out.Pix[3*(y*w+x)+c] = byte((sums[3*x+c] + n/2) / n) //nolint:gosec // a mean of bytes
			}
		}
	}
	return out
}

// planes converts to the full-range BT.601 4:2:0 of JFIF, the encoder's native format.
func planes(f media.VideoFrame) *image.YCbCr {
	img := image.NewYCbCr(image.Rect(0, 0, f.Width, f.Height), image.YCbCrSubsampleRatio420)
	for y := 0; y < f.Height; y += 2 {
		for x := 0; x < f.Width; x += 2 {
			var r, g, b, n int
			for dy := y; dy < min(y+2, f.Height); dy++ {
				for dx := x; dx < min(x+2, f.Width); dx++ {
					p := f.Pix[3*(dy*f.Width+dx):]
					pr, pg, pb := int(p[0]), int(p[1]), int(p[2])
					// 16.16 fixed point of 0.299, 0.587, 0.114.
					img.Y[dy*img.YStride+dx] = byte((19595*pr + 38470*pg + 7471*pb + 1<<15) >> 16) //nolint:gosec // 0 to 255
					r, g, b, n = r+pr, g+pg, b+pb, n+1
				}
			}
			i := y/2*img.CStride + x/2
			img.Cb[i] = chroma(-11059*r-21709*g+32768*b, n)
			img.Cr[i] = chroma(32768*r-27439*g-5329*b, n)
		}
	}
	return img
}

func chroma(sum, n int) byte {
	return byte(min(max((sum/n+128<<16+1<<15)>>16, 0), 255)) //nolint:gosec // clamped
}
