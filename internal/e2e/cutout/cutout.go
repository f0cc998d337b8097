// Package cutout makes clips in which pieces of photos move over a drawn street, so that it is known who comes and goes, and when.
package cutout

import (
	"context"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
	"os/exec"
	"strconv"
	"time"

	xdraw "golang.org/x/image/draw"
)

// Size and rate of a clip.
const (
	Width  = 640
	Height = 360
	FPS    = 10
)

// Plate returns the place of a magenta sign on the wall, in shares of the picture: a mark that a privacy mask can cover.
func Plate() (x0, y0, x1, y1 float64) { return 0.8, 0.1, 0.9, 0.25 }

// Walk is a photo that moves over the street: it waits outside at the left, walks to the middle, stays and walks out on the right.
type Walk struct {
	Photo string        // a PNG file
	Enter time.Duration // when it begins to move
	Walk  time.Duration // time of each of its two ways
	Stay  time.Duration // in the middle
}

// Leave is when it begins to walk out.
func (w Walk) Leave() time.Duration { return w.Enter + w.Walk + w.Stay }

// End is when it is out.
func (w Walk) End() time.Duration { return w.Leave() + w.Walk }

// Write encodes a clip of a length with ffmpeg, as H.264 in MP4.
func Write(ctx context.Context, path string, length time.Duration, walks ...Walk) error {
	photos := make([]image.Image, len(walks))
	for i, w := range walks {
		f, err := os.Open(w.Photo)
		if err != nil {
			return err
		}
		photos[i], err = png.Decode(f)
		_ = f.Close() // only read
		if err != nil {
			return fmt.Errorf("%s: %w", w.Photo, err)
		}
	}
	cmd := exec.CommandContext(ctx, "ffmpeg", "-v", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgba",
		"-s", fmt.Sprintf("%dx%d", Width, Height), "-r", strconv.Itoa(FPS), "-i", "pipe:0",
		"-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-g", strconv.Itoa(FPS), "-pix_fmt", "yuv420p", path)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start ffmpeg: %w", err)
	}
	street, canvas := drawStreet(), image.NewRGBA(image.Rect(0, 0, Width, Height))
	for at := time.Duration(0); at < length && err == nil; at += time.Second / FPS {
		copy(canvas.Pix, street.Pix)
		for i, w := range walks {
			w.draw(canvas, photos[i], at)
		}
		_, err = in.Write(canvas.Pix)
	}
	_ = in.Close() // Wait has its error
	if ended := cmd.Wait(); ended != nil {
		return fmt.Errorf("ffmpeg: %w", ended)
	}
	return err
}

// draw draws the photo, half as high as the picture, where it is at a time.
func (w Walk) draw(on *image.RGBA, photo image.Image, at time.Duration) {
	b := photo.Bounds()
	h := Height / 2
	wide := b.Dx() * h / b.Dy()
	from, middle := -wide, (Width-wide)/2
	x := from
	switch share := func(t time.Duration) int { return int(float64(middle-from) * float64(t) / float64(w.Walk)) }; {
	case at < w.Enter || at >= w.End():
		return
	case at < w.Enter+w.Walk:
		x += share(at - w.Enter)
	case at < w.Leave():
		x = middle
	default:
		x = middle + share(at-w.Leave())
	}
	xdraw.ApproxBiLinear.Scale(on, image.Rect(x, Height-h-8, x+wide, Height-8), photo, b, draw.Over, nil)
}

// drawStreet draws a wall with a sign, and a street, with texture.
func drawStreet() *image.RGBA {
	out := image.NewRGBA(image.Rect(0, 0, Width, Height))
	for y := range Height {
		for x := range Width {
			v := uint8(100 + (x/12*37+y/9*53)%60) // bricks
			if y > Height*7/10 {
				v = uint8(60 + (x/20*29+y/5*31)%40)
			}
			out.SetRGBA(x, y, color.RGBA{v, v, v - 10, 255})
		}
	}
	x0, y0, x1, y1 := Plate()
	sign := image.Rect(int(x0*Width), int(y0*Height), int(x1*Width), int(y1*Height))
	draw.Draw(out, sign, image.NewUniform(color.RGBA{255, 0, 255, 255}), image.Point{}, draw.Src)
	return out
}
