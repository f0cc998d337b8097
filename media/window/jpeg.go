package window

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
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
	return bytes.Clone(out.Bytes()), nil // without the buffer's spare half: the caller may keep many
}

// FromJPEG decodes a JPEG to a picture without times.
func FromJPEG(data []byte) (media.VideoFrame, error) {
	img, err := jpeg.Decode(bytes.NewReader(data))
	if err != nil {
		return media.VideoFrame{}, fmt.Errorf("read a JPEG: %w", err)
	}
	return FromImage(img), nil
}

// FromImage returns an image as a picture without times.
func FromImage(img image.Image) media.VideoFrame {
	at, size := img.Bounds().Min, img.Bounds().Size()
	f := media.VideoFrame{Width: size.X, Height: size.Y, Pix: make([]byte, 0, 3*size.X*size.Y)}
	coded, _ := img.(*image.YCbCr)
	for y := at.Y; y < at.Y+size.Y; y++ {
		for x := at.X; x < at.X+size.X; x++ {
			if coded != nil { // without an allocation for each pixel
				c := coded.COffset(x, y)
				r, g, b := color.YCbCrToRGB(coded.Y[coded.YOffset(x, y)], coded.Cb[c], coded.Cr[c])
				f.Pix = append(f.Pix, r, g, b)
				continue
			}
			r, g, b, _ := img.At(x, y).RGBA()
			f.Pix = append(f.Pix, byte(r>>8), byte(g>>8), byte(b>>8))
		}
	}
	return f
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
					img.Y[dy*img.YStride+dx] = byte((19595*pr + 38470*pg + 7471*pb + 1<<15) >> 16) // 0 to 255
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
	return byte(min(max((sum/n+128<<16+1<<15)>>16, 0), 255)) // clamped
}
