package judge

import (
	"fmt"
	"image"
	_ "image/jpeg" // formats of --pictures
	_ "image/png"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"touchline/media"
	"touchline/media/window"
	"touchline/worlds/paint"
)

// boxed shrinks pictures by a number of percent and puts black bars around them.
func boxed(frames []window.Frame, percent int) []window.Frame {
	const epoch = 1 << 31 // distinguishes them from the same pictures without bars
	out := slices.Clone(frames)
	for i, f := range out {
		w, h := f.Width*(100-percent)/100, f.Height*(100-percent)/100
		pix := make([]byte, len(f.Pix))
		left, top := (f.Width-w)/2, (f.Height-h)/2
		for y := range h {
			for x := range w {
				fromX, fromY := float64(x)*float64(f.Width)/float64(w), float64(y)*float64(f.Height)/float64(h)
				for c := range 3 {
					pix[((top+y)*f.Width+left+x)*3+c] = between(f.Pix, f.Width, f.Height, fromX, fromY, c)
				}
			}
		}
		out[i].Pix, out[i].Epoch = pix, f.Epoch|epoch
	}
	return out
}

// between interpolates a channel between four pixels.
func between(pix []byte, w, h int, x, y float64, c int) byte {
	x0, y0 := int(x), int(y)
	x1, y1 := min(x0+1, w-1), min(y0+1, h-1)
	kx, ky := x-float64(x0), y-float64(y0)
	at := func(x, y int) float64 { return float64(pix[(y*w+x)*3+c]) }
	return byte((at(x0, y0)*(1-kx)+at(x1, y0)*kx)*(1-ky) + (at(x0, y1)*(1-kx)+at(x1, y1)*kx)*ky + 0.5)
}

// stranger draws picture n of pictures that show neither match nor yard: gradients, textures, drawings, screens of text.
func stranger(n, width, height int) media.VideoFrame {
	dice := rand.New(rand.NewPCG(uint64(n), 0x737472616e6765))
	colour := func() paint.RGB {
		return paint.RGB{byte(dice.IntN(256)), byte(dice.IntN(256)), byte(dice.IntN(256))}
	}
	buf := make([]byte, paint.I420Size(width, height))
	canvas := paint.NewCanvas(buf, width, height)
	canvas.Light = paint.Daylight()
	f := media.VideoFrame{Width: width, Height: height, Pix: make([]byte, width*height*3)}
	a, b := colour(), colour()
	fill := func(share func(x, y int) float64) {
		for y := range height {
			for x := range width {
				m := a.Mix(b, share(x, y))
				copy(f.Pix[(y*width+x)*3:], m[:])
			}
		}
	}
	switch n % 5 {
	case 0: // gradient
		kx, ky := dice.Float64(), dice.Float64()
		fill(func(x, y int) float64 {
			return (kx*float64(x)/float64(width) + ky*float64(y)/float64(height)) / (kx + ky)
		})
	case 1: // noise in blocks
		size := 1 << dice.IntN(6)
		cells := make([]float64, (width/size+1)*(height/size+1))
		for i := range cells {
			cells[i] = dice.Float64()
		}
		fill(func(x, y int) float64 { return cells[y/size*(width/size+1)+x/size] })
	case 2: // stripes or a chessboard
		size, chess := 4+dice.IntN(60), dice.IntN(2)
		fill(func(x, y int) float64 { return float64((x/size + chess*(y/size)) % 2) })
	case 3: // a drawing of shapes
		canvas.Rect(0, 0, float64(width), float64(height), a, 1)
		for range 3 + dice.IntN(12) {
			x, y := dice.Float64()*float64(width), dice.Float64()*float64(height)
			canvas.Rect(x, y, x+dice.Float64()*120, y+dice.Float64()*90, colour(), 1)
		}
		f.Pix = shrink(buf, width, height, width, height)
	default: // a screen of text
		canvas.Rect(0, 0, float64(width), float64(height), a, 1)
		words := strings.Fields("REPORT FILE 2024 ERROR OPEN TOTAL 17 SALES NORTH PAGE 3 MENU 12:40 NOTES")
		for y := 10.0; y < float64(height)-16; y += 22 {
			dice.Shuffle(len(words), func(i, j int) { words[i], words[j] = words[j], words[i] })
			canvas.Text(12, y, 12, strings.Join(words[:2+dice.IntN(4)], " "), b, 0.1)
		}
		f.Pix = shrink(buf, width, height, width, height)
	}
	return f
}

// readPictures reads the PNG and JPEG files of a folder, scaled to fit.
func readPictures(dir string, width, height int) (out []media.VideoFrame, err error) {
	for _, pattern := range []string{"*.png", "*.jpg", "*.jpeg"} {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, fmt.Errorf("list the pictures: %w", err)
		}
		for _, name := range names {
			f, err := readPicture(name, width, height)
			if err != nil {
				return nil, fmt.Errorf("read picture %s: %w", name, err)
			}
			out = append(out, f)
		}
	}
	return out, nil
}

func readPicture(name string, width, height int) (media.VideoFrame, error) {
	file, err := os.Open(name)
	if err != nil {
		return media.VideoFrame{}, err
	}
	defer func() { _ = file.Close() }()
	img, _, err := image.Decode(file)
	if err != nil {
		return media.VideoFrame{}, err
	}
	b := img.Bounds()
	whole := make([]byte, 0, b.Dx()*b.Dy()*3)
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			r, g, bl, _ := img.At(x, y).RGBA()
			whole = append(whole, byte(r>>8), byte(g>>8), byte(bl>>8))
		}
	}
	f := media.VideoFrame{Width: width, Height: height, Pix: make([]byte, 0, width*height*3)}
	for y := range height { // the mean of the pixels below each one
		y0, y1 := y*b.Dy()/height, max((y+1)*b.Dy()/height, y*b.Dy()/height+1)
		for x := range width {
			x0, x1 := x*b.Dx()/width, max((x+1)*b.Dx()/width, x*b.Dx()/width+1)
			for c := range 3 {
				sum := 0
				for py := y0; py < y1; py++ {
					for px := x0; px < x1; px++ {
						sum += int(whole[(py*b.Dx()+px)*3+c])
					}
				}
				f.Pix = append(f.Pix, byte(sum/((x1-x0)*(y1-y0))))
			}
		}
	}
	return f, nil
}
