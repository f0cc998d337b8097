package console

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"touchline/agent/events"
	"touchline/internal/wake"
)

const (
	// mjpegBoundary separates the pictures.
	mjpegBoundary = "picture"
	// mjpegRetry is the pause after a source without pictures.
	mjpegRetry = 500 * time.Millisecond
)

// mjpegFan pulls delayed pictures while there are watchers and encodes each once for
// all. A slow watcher skips pictures.
type mjpegFan struct {
	source   Pictures
	quality  int
	interval time.Duration
	wake     wake.Signal

	mu       sync.Mutex
	watchers map[*watcher]struct{}
	stop     context.CancelFunc // ends the pull under way
	dropped  uint64
}

// watcher holds one picture, ready to be sent.
type watcher struct{ next chan []byte }

func (f *mjpegFan) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
		}
		for f.source != nil && ctx.Err() == nil && f.count() > 0 {
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
	none := len(f.watchers) == 0
	f.mu.Unlock()
	if none {
		return
	}
	var last time.Time
	for frame := range f.source.Delayed(ctx) {
		if ctx.Err() != nil {
			return
		}
		// A tenth of grace, or a source just as fast would lose every other picture.
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
		strconv.Itoa(len(data)) + "\r\nX-Timestamp: " + timestamp(shown) + "\r\n\r\n")
	part.Write(data)
	part.WriteString("\r\n")
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.watchers {
		select {
		case <-w.next: // not taken in time: the newer one replaces it
			f.dropped++
		default:
		}
		w.next <- part.Bytes() // only this function fills it, under the lock, so there is room
	}
}

func (f *mjpegFan) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.watchers)
}

func (f *mjpegFan) lost() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dropped
}

// join adds a watcher, or returns nil when there are too many.
func (f *mjpegFan) join() *watcher {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.watchers) >= maxStreams {
		return nil
	}
	w := &watcher{next: make(chan []byte, 1)}
	f.watchers[w] = struct{}{}
	f.wake.Set()
	return w
}

func (f *mjpegFan) leave(w *watcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watchers, w)
	if len(f.watchers) == 0 && f.stop != nil {
		f.stop()
	}
}

func (s *Server) getMJPEG(h *hosted, w http.ResponseWriter, r *http.Request) error {
	const contentType = "multipart/x-mixed-replace; boundary=" + mjpegBoundary
	if h.Pictures == nil {
		return refuse(http.StatusNotFound, "no_picture", "no delayed picture")
	}
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", contentType)
		return nil
	}
	me := h.mjpeg.join()
	if me == nil {
		return tooMany(w)
	}
	defer h.mjpeg.leave(me)
	return relay(s.openStream(w, contentType), r, h.gone, me.next, func(part []byte) []byte { return part })
}
