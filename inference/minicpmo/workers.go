package minicpmo

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"touchline/inference"
	"touchline/inference/internal/ort"
	"touchline/inference/internal/vision"
	"touchline/models"
)

var (
	errPixels  = errors.New("expected width*height*3 bytes of pixels")
	errTooThin = errors.New("the picture is too long and thin for the vision tower: crop it")
)

// workers prepare pictures outside the loop: resize, cut, normalise.
type workers struct {
	float     models.Type // of the patches
	seed      maphash.Seed
	embedSize int // bytes of the embeddings of one image
	ready     func(*picture)
	took      func(time.Duration)
	now       func() time.Time

	urgent, idle chan *picture
	early        int          // the most pictures that wait before a prompt shows them
	prepared     atomic.Int32 // images that wait for the vision tower
	wg           sync.WaitGroup
	buffers      chan []byte // one for each worker; a sync.Pool would lose them, 1.3 MB each, in most collections
}

// bands is the maximum number of goroutines that work on a picture. With 4, first words after a new picture of 1280x720 come 1.8 ms earlier
// on a machine with 16 cores.
const bands = 4

// start runs n workers until ctx ends.
func (w *workers) start(ctx context.Context, cfg vision.Config, n int) error {
	w.urgent, w.idle = make(chan *picture, 256), make(chan *picture, w.early)
	w.buffers = make(chan []byte, n)
	for range n {
		pre, err := vision.New(cfg, min(n, bands))
		if err != nil {
			return err
		}
		w.wg.Go(func() { w.run(ctx, pre) })
	}
	return nil
}

func (w *workers) run(ctx context.Context, pre *vision.Preprocessor) {
	var scratch []vision.Image
	for {
		var p *picture
		select { // urgent pictures, which answers wait for, go first
		case p = <-w.urgent:
		default:
			select {
			case <-ctx.Done():
				return
			case p = <-w.urgent:
			case p = <-w.idle:
			}
		}
		if !p.claimed.CompareAndSwap(false, true) {
			continue
		}
		if p.useless() {
			p.frame = inference.Frame{}
			continue
		}
		begin := w.now()
		scratch = w.prepare(pre, scratch[:0], p)
		w.took(w.now().Sub(begin))
		w.ready(p)
	}
}

func (w *workers) prepare(pre *vision.Preprocessor, scratch []vision.Image, p *picture) []vision.Image {
	f := p.frame
	p.frame = inference.Frame{}
	images, err := pre.Images(scratch, f.Width, f.Height, f.Pix, p.key.slices)
	if err == nil && len(images) != len(p.images) {
		err = fmt.Errorf("expected %d images, has %d", len(p.images), len(images))
	}
	if err != nil {
		p.err = &ImageError{Width: f.Width, Height: f.Height, Err: err}
		return images
	}
	for i, m := range images {
		to := p.images[i]
		to.patches = w.patches(pre, m)
		content := maphash.Comparable(w.seed, [3]uint64{uint64(to.rows), uint64(to.cols), maphash.Bytes(w.seed, to.patches)})
		to.content = int64(content | 1<<63)
		w.prepared.Add(1)
		to.embeds = make([]byte, w.embedSize)
	}
	return images
}

// patches returns the patches of an image.
func (w *workers) patches(pre *vision.Preprocessor, m vision.Image) []byte {
	b := w.buffer(w.float.Size() * m.Patches() * pre.PatchLen())
	switch w.float {
	case models.Float16:
		pre.HalfPatches(ort.Slice[uint16](b), m)
	case models.BFloat16:
		pre.BFloat16Patches(ort.Slice[uint16](b), m)
	default:
		pre.Patches(ort.Slice[float32](b), m)
	}
	return b
}

// behind reports whether the vision tower has a full backlog, so that further pictures wait until a prompt shows them.
func (w *workers) behind() bool { return len(w.idle)+int(w.prepared.Load()) >= w.early }

// buffer returns n bytes, if possible of a used buffer.
func (w *workers) buffer(n int) []byte {
	select {
	case b := <-w.buffers:
		if cap(b) >= n {
			return b[:n]
		}
	default:
	}
	return make([]byte, n)
}

// done recycles the patches of an image.
func (w *workers) done(m *image) {
	if b := m.patches; b != nil {
		m.patches = nil
		w.prepared.Add(-1)
		select {
		case w.buffers <- b:
		default:
		}
	}
}
