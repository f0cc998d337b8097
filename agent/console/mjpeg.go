package console

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"touchline/agent/events"
	"touchline/internal/wake"
	"touchline/media/fanout"
)

const (
	// mjpegBoundary separates the pictures.
	mjpegBoundary = "picture"
	// mjpegRetry is the pause after a source without pictures.
	mjpegRetry = 500 * time.Millisecond
)

// mjpegFan pulls delayed pictures while there are watchers, and encodes each picture once for all. A slow watcher skips pictures.
type mjpegFan struct {
	source   Pictures
	quality  int
	interval time.Duration
	zero     time.Time // of the timestamps
	wake     wake.Signal

	parts   fanout.Fanout[[]byte] // pictures, ready to be sent
	dropped atomic.Uint64

	mu   sync.Mutex         // held while watchers join and leave
	stop context.CancelFunc // ends the present pull
}

func (f *mjpegFan) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
		}
		for f.source != nil && ctx.Err() == nil && f.parts.Len() > 0 {
			f.pull(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(mjpegRetry):
			}
		}
	}
}

// pull takes pictures until the source ends or the last watcher leaves.
func (f *mjpegFan) pull(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.mu.Lock()
	f.stop = cancel
	none := f.parts.Len() == 0
	f.mu.Unlock()
	if none {
		return
	}
	var last time.Time
	for frame := range f.source.Delayed(ctx) {
		if ctx.Err() != nil {
			return
		}
		// With a tenth of tolerance; otherwise a source of the same rate would lose every other picture.
		now := time.Now()
		if now.Sub(last) < f.interval*9/10 {
			continue
		}
		last = now
		if data, err := events.JPEG(frame, 0, f.quality); err == nil {
			f.send(data, frame.Arrival)
		}
	}
}

func (f *mjpegFan) send(data []byte, shown time.Time) {
	var part bytes.Buffer
	part.WriteString("--" + mjpegBoundary + "\r\nContent-Type: image/jpeg\r\nContent-Length: " +
		strconv.Itoa(len(data)) + "\r\nX-Timestamp: " + timestamp(shown, f.zero) + "\r\n\r\n")
	part.Write(data)
	part.WriteString("\r\n")
	f.dropped.Add(f.parts.Replace(part.Bytes())) // a newer picture replaces one that was not read in time
}

// join adds a watcher.
func (f *mjpegFan) join() (parts <-chan []byte, leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	parts, cancel := f.parts.Subscribe(1)
	f.wake.Set()
	return parts, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if cancel(); f.parts.Len() == 0 && f.stop != nil {
			f.stop()
		}
	}
}

func (s *Server) getMJPEG(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	const contentType = "multipart/x-mixed-replace; boundary=" + mjpegBoundary
	if h.Pictures == nil {
		return refuse(http.StatusNotFound, "no_picture", "no delayed picture")
	}
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", contentType)
		return nil
	}
	r, seat, err := s.seat(r, "mjpeg "+h.Name)
	if err != nil {
		return err
	}
	defer seat.Leave()
	parts, leave := h.mjpeg.join()
	defer leave()
	return relay(s.openStream(w, contentType), r, h.gone, parts, func(part []byte) []byte { return part })
}
