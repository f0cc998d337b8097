// Package agenttest holds scripted inputs and recording outputs for tests of
// package agent: a camera, a decoder, a voice, a screen and an engine that keep
// time by the clock alone, so that they run in a synctest bubble.
//
// They simulate latency and faults only; the real parts have their own tests.
package agenttest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"touchline/internal/polygon"
	"touchline/internal/ticks"
	"touchline/media"
)

// Camera is a VideoInput: a steady source behind a jittery network.
type Camera struct {
	FPS    int
	Jitter time.Duration // the largest lateness of a frame
	Rand   *rand.Rand

	mu       sync.Mutex
	start    time.Time
	n        int
	epoch    uint32
	paused   chan struct{} // not nil, and open, during a pause
	lastRead time.Time
	asked    int
}

// ReadFrame implements agent.VideoInput.
func (c *Camera) ReadFrame(ctx context.Context) (media.EncodedFrame, error) {
	c.mu.Lock()
	paused := c.paused
	c.mu.Unlock()
	if paused != nil {
		select {
		case <-ctx.Done():
			return media.EncodedFrame{}, ctx.Err()
		case <-paused:
		}
	}
	c.mu.Lock()
	now := time.Now()
	if c.start.IsZero() {
		c.start, c.n = now, 0
	}
	pts := ticks.Duration(int64(c.n), int64(c.FPS))
	arrival := c.start.Add(pts)
	at := arrival
	if c.Jitter > 0 {
		at = at.Add(time.Duration(c.Rand.Int64N(int64(c.Jitter))))
	}
	if at.Before(c.lastRead) {
		at = c.lastRead
	}
	c.lastRead = at
	f := media.EncodedFrame{
		Codec: media.VP8, KeyFrame: c.n%c.FPS == 0, PTS: pts, Arrival: arrival, Received: at,
		Epoch: c.epoch, Width: 640, Height: 360, SpatialLayers: 1, Data: make([]byte, 500),
	}
	c.n++
	c.mu.Unlock()
	return f, sleep(ctx, at.Sub(now))
}

// RequestKeyFrame implements agent.VideoInput.
func (c *Camera) RequestKeyFrame() {
	c.mu.Lock()
	c.asked++
	c.mu.Unlock()
}

// Pause stops the frames until the returned function is called; then another
// source begins, with a new epoch, if fresh is set.
func (c *Camera) Pause(fresh bool) (resume func()) {
	gate := make(chan struct{})
	c.mu.Lock()
	c.paused = gate
	c.mu.Unlock()
	return func() {
		c.mu.Lock()
		c.paused = nil
		c.start, c.n = time.Time{}, 0
		if fresh {
			c.epoch++
		}
		c.mu.Unlock()
		close(gate)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// Decoder is an agent.Decoder that makes a small grey picture of every access
// unit at once.
type Decoder struct {
	OnPicture func(media.VideoFrame)
	Side      int // of a picture, in pixels; 4 when 0

	mu    sync.Mutex
	luma  func(pts time.Duration) byte
	last  media.VideoFrame
	masks polygon.Masks
	any   bool

	longSide atomic.Int64
}

// Run implements agent.Decoder.
func (d *Decoder) Run(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Decode implements agent.Decoder.
func (d *Decoder) Decode(f media.EncodedFrame, sample bool) error {
	luma := byte(f.PTS / (20 * time.Millisecond))
	d.mu.Lock()
	if d.luma != nil {
		luma = d.luma(f.PTS)
	}
	d.mu.Unlock()
	side := cmp.Or(d.Side, 4)
	v := media.VideoFrame{
		PTS: f.PTS, Arrival: f.Arrival, Epoch: f.Epoch, Width: side, Height: side,
		Pix: bytes.Repeat([]byte{luma}, side*side*3),
	}
	d.mu.Lock()
	for _, r := range d.masks.Cover(side, side) {
		clear(v.Pix[3*(r.Y*side+r.X0) : 3*(r.Y*side+r.X1)])
	}
	d.last, d.any = v, true
	d.mu.Unlock()
	if sample {
		d.OnPicture(v)
	}
	return nil
}

// Latest implements agent.Decoder.
func (d *Decoder) Latest(context.Context) (media.VideoFrame, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.any {
		return media.VideoFrame{}, errors.New("no picture was decoded yet")
	}
	return d.last, nil
}

// SetLuma sets the grey of the pictures by media time; without it they change
// all the time.
func (d *Decoder) SetLuma(luma func(pts time.Duration) byte) {
	d.mu.Lock()
	d.luma = luma
	d.mu.Unlock()
}

// SetMasks implements agent.Decoder.
func (d *Decoder) SetMasks(m polygon.Masks) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.masks = m
}

// SetTranscode implements agent.Decoder; nothing is ever encoded.
func (d *Decoder) SetTranscode(bool) {}

// SetLongSide implements agent.Decoder; pictures keep their size.
func (d *Decoder) SetLongSide(pixels int) error {
	d.longSide.Store(int64(pixels))
	return nil
}

// LongSide returns the last value of SetLongSide; 0 before the first.
func (d *Decoder) LongSide() int { return int(d.longSide.Load()) }

// ForceKeyFrame implements agent.Decoder.
func (d *Decoder) ForceKeyFrame() {}
