// Package webcam opens a camera of this machine (V4L2 on Linux) and encodes its
// pictures in the codec process.
//
// It owns the open device, the conversion to planes, and the encoder.
package webcam

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pion/mediadevices/pkg/driver"
	_ "github.com/pion/mediadevices/pkg/driver/camera" // registers the machine's cameras
	"github.com/pion/mediadevices/pkg/io/video"
	"github.com/pion/mediadevices/pkg/prop"
	"github.com/rs/zerolog"

	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/codec"
	"touchline/media/source"
)

// Options of a Camera. Now is required.
type Options struct {
	// Device is a path (/dev/video0), a part of the device's name, or "" for the first one.
	Device string
	// Width, Height and FPS select the nearest mode of the camera; 0 is 1280, 720 and 30.
	Width, Height int
	FPS           float64
	// Codec to encode with; H264 when unset. BitRate at 1280 x 720 in bit/s, 2,500,000 when 0.
	Codec   media.Codec
	BitRate int
	// Path of the codec program; "" searches for it.
	Path string
	Now  func() time.Time
	Log  zerolog.Logger
}

// stale is the age at which a picture in the kernel's queue is dropped.
const stale = 200 * time.Millisecond

// Camera is a device.
type Camera struct {
	opts Options
	key  atomic.Bool
}

// New checks the options and opens nothing.
func New(o Options) (*Camera, error) {
	if o.Now == nil {
		return nil, errors.New("webcam.Options.Now is not set")
	}
	if o.Width == 0 || o.Height == 0 {
		o.Width, o.Height = 1280, 720
	}
	o.FPS = cmp.Or(o.FPS, 30)
	if o.Codec == media.CodecUnknown {
		o.Codec = media.H264
	}
	o.BitRate = cmp.Or(o.BitRate, 2_500_000)
	if o.Width < 16 || o.Height < 16 || o.Width > 8192 || o.Height > 8192 || o.FPS < 1 || o.FPS > 240 {
		return nil, fmt.Errorf("webcam mode %d x %d at %v pictures a second: must be 16 to 8192 pixels a side and 1 to 240 a second",
			o.Width, o.Height, o.FPS)
	}
	return &Camera{opts: o}, nil
}

// Devices lists the cameras of this machine by name.
func Devices() []string {
	var names []string
	for _, d := range cameras() {
		names = append(names, title(d))
	}
	return names
}

func cameras() []driver.Driver {
	list := driver.GetManager().Query(driver.FilterVideoRecorder())
	slices.SortFunc(list, func(a, b driver.Driver) int {
		return cmp.Or(cmp.Compare(b.Info().Priority, a.Info().Priority), strings.Compare(title(a), title(b)))
	})
	return list
}

func title(d driver.Driver) string {
	return strings.Trim(d.Info().Label+" "+strings.ReplaceAll(d.Info().Name, ";", " "), " ;")
}

// find returns the selected device.
func (c *Camera) find() (driver.Driver, error) {
	list := cameras()
	if len(list) == 0 {
		return nil, errors.New("this machine has no camera; check that /dev/video0 exists and is readable")
	}
	wanted := strings.TrimPrefix(c.opts.Device, "/dev/")
	for _, d := range list {
		// The label of V4L2 ends with the name below /dev.
		if wanted == "" || strings.Contains(strings.ToLower(title(d)), strings.ToLower(wanted)) {
			return d, nil
		}
	}
	return nil, fmt.Errorf("no camera %q; choose one of %s", c.opts.Device, strings.Join(Devices(), ", "))
}

// RequestKeyFrame implements source.KeyFramer.
func (c *Camera) RequestKeyFrame() { c.key.Store(true) }

// Pull implements source.Puller.
func (c *Camera) Pull(ctx context.Context, out source.Sink) (err error) {
	d, err := c.find()
	if err != nil {
		return err
	}
	if err := d.Open(); err != nil {
		return fmt.Errorf("open %s: %w", title(d), err)
	}
	defer func() {
		if cerr := d.Close(); cerr != nil && err == nil {
			err = fmt.Errorf("close %s: %w", title(d), cerr)
		}
	}()
	recorder, ok := d.(driver.VideoRecorder)
	if !ok {
		return source.Permanent(fmt.Errorf("%s is not a camera", title(d)))
	}
	mode, err := c.mode(d.Properties())
	if err != nil {
		return err
	}
	reader, err := recorder.VideoRecord(mode)
	if err != nil {
		return fmt.Errorf("start %s: %w", title(d), err)
	}
	c.opts.Log.Info().Str("device", title(d)).Int("width", mode.Width).Int("height", mode.Height).
		Str("format", string(mode.FrameFormat)).Msg("webcam opened")
	return c.film(ctx, reader, out)
}

// mode returns the camera's mode that is nearest to the options.
func (c *Camera) mode(have []prop.Media) (prop.Media, error) {
	best, least := prop.Media{}, math.Inf(1)
	for _, p := range have {
		if p.Width < 16 || p.Height < 16 {
			continue
		}
		far := math.Abs(float64(p.Width-c.opts.Width))/float64(c.opts.Width) +
			math.Abs(float64(p.Height-c.opts.Height))/float64(c.opts.Height)
		if p.FrameRate > 0 {
			far += max(0, c.opts.FPS-float64(p.FrameRate)) / c.opts.FPS
		}
		if far < least {
			best, least = p, far
		}
	}
	if best.Width == 0 {
		return best, source.Permanent(errors.New("the camera lists no picture format"))
	}
	best.FrameRate = cmp.Or(best.FrameRate, float32(c.opts.FPS))
	best.DiscardFramesOlderThan = stale
	return best, nil
}

// film reads, converts and encodes until ctx ends or the camera fails.
func (c *Camera) film(ctx context.Context, reader video.Reader, out source.Sink) error {
	began := c.opts.Now()
	// Drivers may choose another size, so the first picture's counts.
	first, release, err := reader.Read()
	if err != nil {
		return fmt.Errorf("read the first picture: %w", err)
	}
	p := newPlanes(first.Bounds())
	p.fill(first)
	release()
	area := p.width * p.height
	enc, err := codec.NewEncoder(codec.EncoderOptions{
		Codec: c.opts.Codec, Width: p.width, Height: p.height, FPS: int(math.Round(c.opts.FPS)),
		BitRate: max(200_000, int(float64(c.opts.BitRate)*math.Pow(float64(area)/(1280*720), 0.75))),
		OnFrame: out.Frame, Path: c.opts.Path, Log: c.opts.Log,
	})
	if err != nil {
		return source.Permanent(err)
	}
	g, gctx := rescue.WithContext(ctx)
	g.Go(func() error { return enc.Run(gctx) })
	g.Go(func() error {
		at := began
		for {
			picture := codec.Picture{Pix: p.pix, PTS: at.Sub(began), Arrival: at}
			err := enc.Encode(gctx, picture, c.key.Swap(false))
			if gctx.Err() != nil {
				return context.Cause(gctx)
			}
			if err != nil && !errors.Is(err, codec.ErrRestarted) && !errors.Is(err, codec.ErrNotRunning) {
				return fmt.Errorf("encode the webcam's picture: %w", err)
			}
			img, release, err := reader.Read()
			if err != nil {
				return fmt.Errorf("read the webcam: %w", err)
			}
			at = c.opts.Now()
			same := p.fits(img.Bounds())
			if same {
				p.fill(img)
			}
			release()
			if !same {
				return errors.New("the webcam changed the size of its picture")
			}
		}
	})
	err = g.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// planes is an I420 picture with even edges.
type planes struct {
	width, height int
	pix           []byte
}

func newPlanes(r image.Rectangle) *planes {
	p := &planes{width: r.Dx() &^ 1, height: r.Dy() &^ 1}
	p.pix = make([]byte, codec.PictureBytes(p.width, p.height))
	return p
}

func (p *planes) fits(r image.Rectangle) bool { return r.Dx()&^1 == p.width && r.Dy()&^1 == p.height }

// fill converts a picture; Y'CbCr is copied.
func (p *planes) fill(img image.Image) {
	w, h := p.width, p.height
	y, cb, cr := p.pix[:w*h], p.pix[w*h:w*h*5/4], p.pix[w*h*5/4:]
	r := img.Bounds()
	src, ok := img.(*image.YCbCr)
	if !ok {
		for j := range h {
			for i := range w {
				c := color.YCbCrModel.Convert(img.At(r.Min.X+i, r.Min.Y+j)).(color.YCbCr) //nolint:forcetypeassert // the model's own
				y[j*w+i] = c.Y
				if i&1 == 0 && j&1 == 0 {
					cb[j/2*(w/2)+i/2], cr[j/2*(w/2)+i/2] = c.Cb, c.Cr
				}
			}
		}
		return
	}
	for j := range h {
		at := src.YOffset(r.Min.X, r.Min.Y+j)
		copy(y[j*w:(j+1)*w], src.Y[at:at+w])
	}
	for j := range h / 2 {
		at := src.COffset(r.Min.X, r.Min.Y+2*j)
		switch src.SubsampleRatio {
		case image.YCbCrSubsampleRatio420, image.YCbCrSubsampleRatio422:
			copy(cb[j*w/2:(j+1)*w/2], src.Cb[at:at+w/2])
			copy(cr[j*w/2:(j+1)*w/2], src.Cr[at:at+w/2])
		default:
			for i := range w / 2 {
				at := src.COffset(r.Min.X+2*i, r.Min.Y+2*j)
				cb[j*w/2+i], cr[j*w/2+i] = src.Cb[at], src.Cr[at]
			}
		}
	}
}
