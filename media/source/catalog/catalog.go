// Package catalog leads from what a person typed to the package that plays it.
//
// It knows the kinds and nothing else: it opens nothing and watches over
// nothing.
package catalog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"touchline/media/source"
	"touchline/media/source/file"
	"touchline/media/source/mjpeg"
	"touchline/media/source/rtsp"
	"touchline/media/source/webcam"
)

// Options of a source. Address and Now are required.
type Options struct {
	Address source.Address
	// Allow judges what may be opened.
	Allow source.Allow
	// Transport of RTSP.
	Transport rtsp.Transport
	// Insecure takes any certificate.
	Insecure bool
	// Loop and Start are for files.
	Loop  bool
	Start time.Duration
	// Interval between single pictures over HTTP.
	Interval time.Duration
	// Webcam says how a device is to be opened; its Device is the address's.
	Webcam webcam.Options
	Now    func() time.Time
	Log    zerolog.Logger
}

// Open returns the source of an address. It opens nothing yet.
func Open(o Options) (source.Puller, error) {
	switch o.Address.Kind {
	case source.RTSP:
		return rtsp.New(rtsp.Options{
			URL: o.Address.URL, Transport: o.Transport, Insecure: o.Insecure, Allow: o.Allow, Now: o.Now, Log: o.Log,
		})
	case source.HTTP:
		return newWeb(o)
	case source.File:
		return newFile(o)
	case source.Webcam:
		if !o.Allow.Files {
			return nil, fmt.Errorf("%w: devices of this machine are opened from its command line only", source.ErrNotAllowed)
		}
		w := o.Webcam
		w.Device, w.Now, w.Log = o.Address.Path, o.Now, o.Log
		return webcam.New(w)
	}
	return nil, errors.New("the address names no camera, stream, file or device")
}

func newFile(o Options) (*file.Clip, error) {
	return file.New(file.Options{
		Address: o.Address, Loop: o.Loop, Start: o.Start, Insecure: o.Insecure, Allow: o.Allow, Now: o.Now, Log: o.Log,
	})
}

// web is an HTTP address: JPEG pictures if the answer has some, else a video.
type web struct {
	pictures *mjpeg.Camera
	open     func() (*file.Clip, error)

	mu    sync.Mutex
	video *file.Clip // once it was found to be one
}

func newWeb(o Options) (*web, error) {
	pictures, err := mjpeg.New(mjpeg.Options{
		URL: o.Address.URL, Interval: o.Interval, Insecure: o.Insecure, Allow: o.Allow, Now: o.Now, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	return &web{pictures: pictures, open: func() (*file.Clip, error) { return newFile(o) }}, nil
}

// Pull implements source.Puller.
func (w *web) Pull(ctx context.Context, out source.Sink) error {
	w.mu.Lock()
	video := w.video
	w.mu.Unlock()
	if video == nil {
		err := w.pictures.Pull(ctx, out)
		if !errors.Is(err, mjpeg.ErrOther) {
			return err
		}
		if video, err = w.open(); err != nil {
			return source.Permanent(err)
		}
		w.mu.Lock()
		w.video = video
		w.mu.Unlock()
	}
	return video.Pull(ctx, out)
}
