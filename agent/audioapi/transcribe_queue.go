package audioapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// enter takes a place in the queue.
func (t *Transcriber) enter(ctx context.Context, w http.ResponseWriter) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if t.waiting.Add(1) > t.places() {
		t.waiting.Add(-1)
		return nil, t.full(w)
	}
	return func() { t.waiting.Add(-1) }, nil
}

// places is the number of recordings that may be heard or wait.
func (t *Transcriber) places() int64 { return int64(t.opts.Config.Parallel + t.opts.Config.Queue) }

func (t *Transcriber) full(w http.ResponseWriter) error {
	return busy(w, fmt.Sprintf("%d recordings are being transcribed or wait", t.places()))
}

// space is the share of a request in the bytes that all uploads may have: as many as recordings of the largest size in all places. A slow
// upload takes what it has sent, and no place of the recognizer.
type space struct {
	t     *Transcriber
	bytes int64
}

// errNoSpace is the error of an upload beyond the bytes for all of them.
var errNoSpace = errors.New("too much sound is being uploaded")

func (s *space) take(n int64) error {
	if s.t.uploads.Add(n) > s.t.places()*int64(s.t.opts.Config.MaxBytes) {
		s.t.uploads.Add(-n)
		return errNoSpace
	}
	s.bytes += n
	return nil
}

func (s *space) release() { s.t.uploads.Add(-s.bytes) }

// turn waits until one more recording may be heard.
func (t *Transcriber) turn(ctx context.Context) error {
	select {
	case t.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
