package worker

import (
	"context"
	"net/http"
	"testing"
	"time"
)

// ReadyEvery is the polling interval of Options.Ready.
const ReadyEvery = readyEvery

// Skew requests the rooms of a server and returns by how much its clock is ahead.
func Skew(t *testing.T, url string) time.Duration {
	t.Helper()
	a := newRoomAPI(url, Options{APIKey: "key", APISecret: "secret"})
	defer a.idle()
	_, _ = a.list(t.Context()) // every answer has a date
	return time.Until(a.now())
}

// SkewOf is skewOf.
func SkewOf(h http.Header, now time.Time) (time.Duration, bool) { return skewOf(h, now) }

// Scaled is scaledLoad.
func Scaled(taken, places int, machine float64) (float64, bool) {
	return scaledLoad(taken, places, machine)
}

// Frame handles a received message.
func (w *Worker) Frame(ctx context.Context, data []byte) { w.handle(ctx, decode(data)) }

// Rest waits for the work of Frame.
func (w *Worker) Rest() { w.work.Wait() }
