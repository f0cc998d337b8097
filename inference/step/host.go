package step

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"github.com/rs/zerolog"

	"touchline/inference"
	"touchline/inference/internal/ort"
)

// Host has the thread of an engine that owns a device, and the engine's status. Its methods are safe for concurrent use.
type Host struct {
	log    zerolog.Logger
	cancel context.CancelFunc
	ended  chan struct{}
	lost   chan struct{}
	wg     sync.WaitGroup

	mu     sync.Mutex
	err    error // of the failure, or of closing
	status inference.Status
}

// NewHost returns a host without a thread.
func NewHost(log zerolog.Logger) *Host {
	return &Host{log: log, cancel: func() {}, ended: make(chan struct{}), lost: make(chan struct{})}
}

// Thread is the work of a thread that owns a device. Open gets the context of Run, which ends with Host.Close. Close is called last, also
// after a failure of Open.
type Thread struct {
	Open, Run func(ctx context.Context) error
	Close     func() error
}

// Start runs the thread until Close, and returns when it is open, with the error of Open.
func (h *Host) Start(ctx context.Context, t Thread) error {
	ctx, h.cancel = context.WithCancel(context.WithoutCancel(ctx))
	opened := make(chan error, 1)
	h.wg.Go(func() {
		runtime.LockOSThread() // Never unlocked: captured graphs belong to the thread, which ends with the goroutine.
		if err := t.Open(ctx); err != nil {
			opened <- errors.Join(err, t.Close())
			return
		}
		opened <- nil
		if err := t.Run(ctx); err != nil {
			h.fail(err)
		}
		close(h.ended)
		err := t.Close()
		h.mu.Lock()
		h.err = errors.Join(h.err, err)
		h.mu.Unlock()
	})
	err := <-opened
	if err != nil {
		h.cancel()
		h.wg.Wait()
	}
	return err
}

// fail marks the engine as failed.
func (h *Host) fail(err error) {
	h.log.Error().Err(err).Msg("device lost; restart the process")
	h.mu.Lock()
	h.err = err
	h.status = inference.Status{Phase: inference.PhaseFailed, Detail: err.Error()}
	h.mu.Unlock()
	close(h.lost)
}

// Ready sets the status of a host that has not failed meanwhile.
func (h *Host) Ready(s inference.Status) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		h.status = s
	}
}

// Status returns the status of Ready, or failed after the device was lost.
func (h *Host) Status() inference.Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.status
}

// Lost is closed when the device is lost. The process should then exit.
func (h *Host) Lost() <-chan struct{} { return h.lost }

// Ended is closed when the engine is closed or lost.
func (h *Host) Ended() <-chan struct{} { return h.ended }

// Close ends all work and frees everything. Later calls return the error of the first.
func (h *Host) Close() error {
	h.cancel()
	h.wg.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = inference.Status{Phase: inference.PhaseUnloaded, Detail: "closed"}
	if Lost(h.err) {
		return nil // already returned by every answer and by Status
	}
	return h.err
}

// OpenDevice opens ONNX Runtime from a folder and a device of it: "cpu" or a GPU. On a GPU, recognition goes after commentary. The caller
// closes both by release.
func OpenDevice(library, kind string, gpu int, p Priority) (rt *ort.Runtime, dev *ort.Device, release func() error, err error) {
	if rt, err = ort.Open(library); err != nil {
		return nil, nil, nil, err
	}
	k := ort.CUDA
	if kind == "cpu" {
		k = ort.CPU
	}
	if p < Commentary {
		dev, err = rt.NewDeviceBehind(k, gpu)
	} else {
		dev, err = rt.NewDevice(k, gpu)
	}
	if err != nil {
		return nil, nil, nil, errors.Join(err, rt.Close())
	}
	return rt, dev, func() error { return errors.Join(dev.Close(), rt.Close()) }, nil
}
