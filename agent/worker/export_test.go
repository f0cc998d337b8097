package worker

import (
	"context"
	"testing"
	"time"
)

// ReadyEvery spaces the questions whether jobs can be served.
const ReadyEvery = readyEvery

// Skew asks the server at an address for its rooms and returns how far its clock is ahead.
func Skew(t *testing.T, url string) time.Duration {
	t.Helper()
	a := newRoomAPI(url, "key", "secret")
	defer a.idle()
	_, _ = a.list(t.Context()) // whatever it answers has a date
	return time.Until(a.now())
}

// Scaled is scaledLoad.
func Scaled(taken, places int, machine float64) (float64, bool) {
	return scaledLoad(taken, places, machine)
}

// Frame has a worker act on a message as it came from the wire.
func (w *Worker) Frame(ctx context.Context, data []byte) { w.handle(ctx, decode(data)) }

// Rest waits for what Frame began.
func (w *Worker) Rest() { w.work.Wait() }
