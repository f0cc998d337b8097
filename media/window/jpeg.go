package window

import (
	"bytes"
	"fmt"
	"image"
	"image/jpeg"

	"touchline/media"
)

// JPEG encodes a picture as JPEG of quality 1 to 100.
func JPEG(f media.VideoFrame, quality int) ([]byte, error) {
	if f.Width < 1 || f.Height < 1 || len(f.Pix) != 3*f.Width*f.Height {
		return nil, fmt.Errorf("write a JPEG: expected %d x %d pixels of 3 bytes, got %d bytes", f.Width, f.Height, len(f.Pix))
	}
	if quality < 1 || quality > 100 {
		return nil, fmt.Errorf("write a JPEG: quality %d: must be between 1 and 100", quality)
	}
	var out bytes.Buffer
	if err := jpeg.Encode(&out, planes(f), &jpeg.Options{Quality: quality}); err != nil {
		return nil, fmt.Errorf("write a JPEG: %w", err)
	}
	return out.Bytes(), nil
}

// Pixels returns the pixels of a JPEG, 3 bytes each.
func Pixels(data []byte) ([]byte, error) {
	img, err := jpeg.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("read a JPEG: %w", err)
	}
	from, to := img.Bounds().Min, img.Bounds().Max
	pix := make([]byte, 0, 3*(to.X-from.X)*(to.Y-from.Y))
	for y := from.Y; y < to.Y; y++ {
		for x := from.X; x < to.X; x++ {
			r, g, b, _ := img.At(x, y).RGBA()
			pix = append(pix, byte(r>>8), byte(g>>8), byte(b>>8))
		}
	}
	return pix, nil
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
