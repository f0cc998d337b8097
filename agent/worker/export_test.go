package worker

import "context"

// Scaled is scaledLoad.
func Scaled(taken, places int, machine float64) (float64, bool) {
	return scaledLoad(taken, places, machine)
}

// Frame has a worker act on a message as it came from the wire.
func (w *Worker) Frame(ctx context.Context, data []byte) { w.handle(ctx, decode(data)) }

// Rest waits for what Frame began.
func (w *Worker) Rest() { w.work.Wait() }
