// Package catalog returns the source for an address.
//
// It selects the package for each kind of address, and opens nothing.
package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"touchline/media"
	"touchline/media/source"
	"touchline/media/source/file"
	"touchline/media/source/mjpeg"
	"touchline/media/source/rtsp"
	"touchline/media/source/webcam"
)

// Options of a source.
type Options struct {
	source.Access

	// Transport of RTSP.
	Transport rtsp.Transport
	// Loop and Start are for files.
	Loop  bool
	Start time.Duration
	// Interval between single pictures over HTTP.
	Interval time.Duration
	// Height is the most rows of an HLS stream's variant, 0 for the default of package file.
	Height int
	// Copy passes the codecs of files and streams that a room carries, also with key frames that are far apart.
	Copy bool
	// Webcam configures a device; its Device is the address's.
	Webcam webcam.Options
}

// Open returns the source of an address. The source is not opened yet.
func Open(o Options) (source.Puller, error) {
	switch o.Address.Kind {
	case source.RTSP:
		return rtsp.New(rtsp.Options{Access: o.Access, Transport: o.Transport})
	case source.HTTP:
		return newWeb(o)
	case source.File:
		return newFile(o)
	case source.Webcam:
		if !o.Allow.Files {
			return nil, fmt.Errorf("%w: devices of this machine can be opened from its command line only", source.ErrNotAllowed)
		}
		w := o.Webcam
		w.Device, w.Now, w.Log = o.Address.Path, o.Now, o.Log
		return webcam.New(w)
	}
	return nil, errors.New("the address names no camera, stream, file or device")
}

func newFile(o Options) (*file.Clip, error) {
	return file.New(file.Options{Access: o.Access, Loop: o.Loop, Start: o.Start, Height: o.Height, Copy: o.Copy})
}

// web is an HTTP address: JPEG pictures if the response has some, or else a video. After a failure that is chosen anew: a camera that
// starts answers with pages.
type web struct {
	pictures *mjpeg.Camera
	open     func() (*file.Clip, error)
	video    *file.Clip // after the first response without pictures
	steady   bool       // the video was played for steadyTime
	now      func() time.Time
}

// steadyTime is the playing time after which a video is reopened without a look for pictures.
const steadyTime = 5 * time.Second

func newWeb(o Options) (*web, error) {
	pictures, err := mjpeg.New(mjpeg.Options{Access: o.Access, Interval: o.Interval})
	if err != nil {
		return nil, err
	}
	return &web{pictures: pictures, open: func() (*file.Clip, error) { return newFile(o) }, now: o.Now}, nil
}

// Pull implements source.Puller.
func (w *web) Pull(ctx context.Context, out source.Sink) error {
	if !w.steady {
		err := w.pictures.Pull(ctx, out)
		if !errors.Is(err, mjpeg.ErrOther) {
			return err
		}
	}
	if w.video == nil {
		var err error
		if w.video, err = w.open(); err != nil {
			return source.Permanent(err)
		}
	}
	var first time.Time
	next := out.Frame
	out.Frame = func(f media.EncodedFrame) {
		if first.IsZero() {
			first = w.now()
		}
		next(f)
	}
	err := w.video.Pull(ctx, out)
	w.steady = !first.IsZero() && w.now().Sub(first) >= steadyTime
	return err
}
