package audioapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// enter reserves a place in the queue.
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

// places is the number of recordings that may be transcribed or wait.
func (t *Transcriber) places() int64 { return int64(t.opts.Config.Parallel + t.opts.Config.Queue) }

func (t *Transcriber) full(w http.ResponseWriter) error {
	return busy(w, fmt.Sprintf("%d recordings are being transcribed or wait", t.places()))
}

// space is a request's share of the bytes that all uploads together may use: places times the largest size. A slow upload uses only the
// bytes that it has sent, and no place in the queue.
type space struct {
	t     *Transcriber
	bytes int64
}

// errNoSpace is returned for an upload beyond the bytes for all uploads.
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

// turn waits for a slot to transcribe a recording.
func (t *Transcriber) turn(ctx context.Context) error {
	select {
	case t.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
