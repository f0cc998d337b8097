//go:build integration

package webcam_test

import (
	"context"
	"errors"
	"image"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/mediadevices/pkg/driver"
	_ "github.com/pion/mediadevices/pkg/driver/videotest" // the library's own virtual camera
	"github.com/pion/mediadevices/pkg/frame"
	"github.com/pion/mediadevices/pkg/io/video"
	"github.com/pion/mediadevices/pkg/prop"
	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/codec/codectest"
	"touchline/media/source"
	"touchline/media/source/webcam"
)

func TestMain(m *testing.M) { codectest.Main(m) }

// fake implements the library's driver interface with unusual behaviour.
type fake struct {
	modes  []prop.Media
	img    func(p prop.Media) image.Image
	open   atomic.Int32
	broken atomic.Bool
	asked  prop.Media
}

func (f *fake) Open() error { f.open.Add(1); return nil }

func (f *fake) Close() error { f.open.Add(-1); return nil }

func (f *fake) Properties() []prop.Media { return f.modes }

func (f *fake) VideoRecord(p prop.Media) (video.Reader, error) {
	f.asked = p
	return video.ReaderFunc(func() (image.Image, func(), error) {
		if f.broken.Load() {
			return nil, func() {}, io.EOF
		}
		time.Sleep(10 * time.Millisecond)
		return f.img(p), func() {}, nil
	}), nil
}

func register(t *testing.T, label string, f *fake) {
	t.Helper()
	m := driver.GetManager()
	require.NoError(t, m.Register(f, driver.Info{Label: label, DeviceType: driver.Camera}))
	t.Cleanup(func() {
		for _, d := range m.Query(func(d driver.Driver) bool { return d.Info().Label == label }) {
			m.Delete(d.ID())
		}
	})
}

func mode(w, h int, fps float32, format frame.Format) prop.Media {
	return prop.Media{Video: prop.Video{Width: w, Height: h, FrameRate: fps, FrameFormat: format}}
}

var errEnough = errors.New("enough pictures")

func pull(t *testing.T, o webcam.Options, n int) (frames []media.EncodedFrame, err error) {
	t.Helper()
	o.Now, o.Path = time.Now, codectest.Program()
	cam, err := webcam.New(o)
	require.NoError(t, err)
	ctx, stop := context.WithCancelCause(t.Context())
	timer := time.AfterFunc(20*time.Second, func() { stop(errors.New("no end in 20 s")) })
	defer timer.Stop()
	err = cam.Pull(ctx, source.Sink{Frame: func(f media.EncodedFrame) {
		if len(frames) == n/2 {
			cam.RequestKeyFrame()
		}
		if frames = append(frames, f); len(frames) == n {
			stop(errEnough)
		}
	}})
	return frames, err
}

func TestVirtualCamera(t *testing.T) {
	require.NotEmpty(t, webcam.Devices())
	frames, err := pull(t, webcam.Options{Device: "VideoTest", Width: 640, Height: 480}, 30)
	require.ErrorIs(t, err, errEnough)
	keys := 0
	for i, f := range frames {
		require.Equal(t, media.H264, f.Codec)
		require.Equal(t, 640, f.Width)
		if f.KeyFrame {
			keys++
		}
		if i > 0 {
			require.Greater(t, f.PTS, frames[i-1].PTS)
		}
	}
	require.True(t, frames[0].KeyFrame)
	require.GreaterOrEqual(t, keys, 2, "a key frame on demand")
}

func TestKindsOfPictures(t *testing.T) {
	ycc := func(ratio image.YCbCrSubsampleRatio) func(prop.Media) image.Image {
		return func(p prop.Media) image.Image { return image.NewYCbCr(image.Rect(0, 0, p.Width, p.Height), ratio) }
	}
	for name, img := range map[string]func(prop.Media) image.Image{
		"4:2:0": ycc(image.YCbCrSubsampleRatio420), "4:2:2": ycc(image.YCbCrSubsampleRatio422),
		"4:4:4": ycc(image.YCbCrSubsampleRatio444),
		"RGB":   func(p prop.Media) image.Image { return image.NewRGBA(image.Rect(0, 0, p.Width, p.Height)) },
		"smaller, odd": func(prop.Media) image.Image {
			return image.NewYCbCr(image.Rect(0, 0, 161, 121), image.YCbCrSubsampleRatio420)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{img: img, modes: []prop.Media{
				mode(160, 120, 30, frame.FormatYUYV), mode(640, 480, 30, frame.FormatMJPEG), mode(640, 480, 5, frame.FormatYUYV),
			}}
			register(t, "fake", f)
			frames, err := pull(t, webcam.Options{Device: "fake", Width: 600, Height: 450}, 10)
			require.ErrorIs(t, err, errEnough)
			require.EqualValues(t, frame.FormatMJPEG, f.asked.FrameFormat, "the nearest size that is quick enough")
			require.Zero(t, f.asked.Width%2)
			require.Positive(t, f.asked.DiscardFramesOlderThan)
			require.Positive(t, frames[0].Width)
			require.Zero(t, f.open.Load(), "closed")
		})
	}
}

func TestTroubles(t *testing.T) {
	_, err := pull(t, webcam.Options{Device: "no such thing"}, 1)
	require.ErrorContains(t, err, `no camera "no such thing"; choose one of`)
	require.False(t, source.IsPermanent(err), "it may be plugged in")

	f := &fake{img: func(p prop.Media) image.Image {
		return image.NewYCbCr(image.Rect(0, 0, p.Width, p.Height), image.YCbCrSubsampleRatio420)
	}, modes: []prop.Media{mode(160, 120, 30, frame.FormatI420)}}
	register(t, "pulled out", f)
	time.AfterFunc(200*time.Millisecond, func() { f.broken.Store(true) })
	_, err = pull(t, webcam.Options{Device: "pulled out"}, 1000)
	require.ErrorIs(t, err, io.EOF)
	require.Zero(t, f.open.Load())

	f.modes = nil
	_, err = pull(t, webcam.Options{Device: "pulled out"}, 1)
	require.ErrorContains(t, err, "lists no picture format")

	for _, bad := range []webcam.Options{{}, {Now: time.Now, Width: 4, Height: 4}, {Now: time.Now, FPS: 1000}} {
		_, err := webcam.New(bad)
		require.Error(t, err)
	}
}
