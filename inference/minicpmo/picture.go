package minicpmo

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"

	"touchline/inference"
	"touchline/inference/internal/vision"
)

// image is one input of the vision tower: a picture or one of its cells.
type image struct {
	rows, cols int    // in patches
	patches    []byte // [rows*cols, 3*patch*patch] in the tower's type; nil once embedded
	embeds     []byte // [queries, hidden] in the decoder's type
	content    int64  // equal for equal images, negative; set with patches
	owner      *picture
}

type pictureState uint8

const (
	picturePending pictureState = iota // not prepared
	pictureWaiting                     // prepared, not embedded
	pictureDone
	pictureFailed
)

// pictureKey identifies a frame and its slice setting.
type pictureKey struct {
	source        uint64
	pts           time.Duration
	epoch         uint32
	width, height int
	slices        int
}

// picture is a frame and its embeddings.
type picture struct {
	key    pictureKey
	frame  inference.Frame // until prepared
	images []*image

	claimed atomic.Bool  // by a worker
	wanted  atomic.Int32 // unfinished answers that show it
	dropped atomic.Bool  // not in the cache, so no further answer can use it
	early   bool         // embedded before a prompt showed it

	// Written by a worker, and by the loop once it has the picture.
	err   error
	state pictureState
	left  int // images not embedded yet
}

// newPicture plans the images of a frame.
func newPicture(cfg vision.Config, key pictureKey, f inference.Frame, maxSide int) (*picture, error) {
	fail := func(err error) (*picture, error) {
		return nil, &ImageError{Width: f.Width, Height: f.Height, Err: err}
	}
	layout, err := cfg.Layout(f.Width, f.Height, key.slices)
	if err != nil {
		return fail(err)
	}
	if len(f.Pix) != f.Width*f.Height*3 {
		return fail(errPixels)
	}
	p := &picture{key: key, frame: f}
	add := func(s vision.Size) error {
		m := &image{rows: s.H / cfg.PatchSize, cols: s.W / cfg.PatchSize, owner: p}
		if m.rows > maxSide || m.cols > maxSide {
			return errTooThin
		}
		p.images = append(p.images, m)
		return nil
	}
	if err := add(layout.Overview); err != nil {
		return fail(err)
	}
	for range layout.Grid.Images() - 1 {
		if err := add(layout.Cell); err != nil {
			return fail(err)
		}
	}
	p.left = len(p.images)
	return p, nil
}

// pictures is the cache of embeddings, which drops the least recently used.
// Safe for concurrent use.
type pictures struct {
	limit int // images; 0 keeps none

	mu    sync.Mutex
	byKey map[pictureKey]*list.Element
	order *list.List // front is the most recent
	held  int
}

func newPictures(limit int) *pictures {
	return &pictures{limit: limit, byKey: map[pictureKey]*list.Element{}, order: list.New()}
}

// get returns the picture of a key, which fill creates if it is missing. want
// counts it as wanted at once: a picture that is dropped and not wanted is never
// embedded.
func (c *pictures) get(key pictureKey, want bool, fill func() (*picture, error)) (p *picture, fresh bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() {
		if want && err == nil {
			p.wanted.Add(1)
		}
	}()
	if e, ok := c.byKey[key]; ok {
		c.order.MoveToFront(e)
		return e.Value.(*picture), false, nil //nolint:forcetypeassert // only pictures are put in
	}
	if p, err = fill(); err != nil {
		return nil, false, err
	}
	if c.limit == 0 || key.source == 0 {
		p.dropped.Store(true)
		return p, true, nil
	}
	c.byKey[key] = c.order.PushFront(p)
	c.held += len(p.images)
	for c.held > c.limit && c.order.Len() > 1 {
		c.removeLocked(c.order.Back())
	}
	return p, true, nil
}

// remove removes a picture, unless its key has another one.
func (c *pictures) remove(p *picture) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byKey[p.key]; ok && e.Value == any(p) {
		c.removeLocked(e)
	}
}

// removeSource removes all pictures of a source.
func (c *pictures) removeSource(source uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.order.Front(); e != nil; {
		next := e.Next()
		if e.Value.(*picture).key.source == source { //nolint:forcetypeassert // only pictures are put in
			c.removeLocked(e)
		}
		e = next
	}
}

func (c *pictures) removeLocked(e *list.Element) {
	p := e.Value.(*picture) //nolint:forcetypeassert // only pictures are put in
	p.dropped.Store(true)
	c.order.Remove(e)
	delete(c.byKey, p.key)
	c.held -= len(p.images)
}

// size returns the number of images.
func (c *pictures) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

// useless reports whether no answer can use the picture.
func (p *picture) useless() bool { return p.dropped.Load() && p.wanted.Load() == 0 }

// early reports, once per picture, whether it was added before a prompt showed it.
func (c *pictures) early(key pictureKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byKey[key]
	if !ok {
		return false
	}
	p := e.Value.(*picture) //nolint:forcetypeassert // only pictures are put in
	was := p.early
	p.early = false
	return was
}
