package audioapi

import (
	"context"
	"fmt"
	"net/http"

	"touchline/internal/limit"
)

// places is the number of recordings that may be transcribed or wait.
func (t *Transcriber) places() int64 { return int64(t.opts.Config.Parallel + t.opts.Config.Queue) }

// full is the answer to a recording for which there is no place.
func (t *Transcriber) full(w http.ResponseWriter, err error) error {
	text := fmt.Sprintf("%d recordings are being transcribed or wait", t.places())
	if err != nil {
		text = limit.Why(err, text)
	}
	return busy(w, text)
}

// errNoSpace is the text for an upload beyond the bytes for all uploads: places times the largest size. A slow upload uses only the bytes
// that it has sent, and no place in the queue.
const errNoSpace = "too much sound is being uploaded"

// turn waits for a slot to transcribe a recording.
func (t *Transcriber) turn(ctx context.Context) error {
	select {
	case t.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
