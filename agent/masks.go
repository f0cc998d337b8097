package agent

import (
	"context"
	"errors"
	"image"
	"sync"
	"sync/atomic"

	"touchline/agent/region"
	"touchline/internal/polygon"
	"touchline/media"
)

// errCovered is the answer to a look while masks cover the whole picture.
var errCovered = errors.New("the whole picture is masked")

// cover has the masks in force, and the size of the picture that they lie on.
type cover struct {
	regions *region.Set // nil for none
	decoder Decoder

	changing sync.Mutex // orders changes of the masks
	masks    atomic.Pointer[polygon.Masks]
	delayed  atomic.Bool                 // the setting mask_delayed
	size     atomic.Pointer[image.Point] // of the newest sampled picture
}

func newCover(regions *region.Set, decoder Decoder) *cover {
	c := &cover{regions: regions, decoder: decoder}
	c.size.Store(&image.Point{})
	c.masks.Store(&polygon.Masks{})
	return c
}

// change puts the masks of the room in force.
func (c *cover) change() {
	if c.regions == nil {
		return
	}
	c.changing.Lock()
	defer c.changing.Unlock()
	m := c.regions.Masks()
	c.masks.Store(&m)
	c.decoder.SetMasks(m)
}

// masksDelayed reports whether the delayed picture is to be masked.
func (c *cover) masksDelayed() bool { return c.delayed.Load() && c.masks.Load().Any() }

// whole reports whether the masks cover a whole picture.
func (c *cover) whole(f media.VideoFrame) bool { return c.masks.Load().Whole(f.Width, f.Height) }

// reason returns why the whole picture is masked; "" when it is not.
func (c *cover) reason() string {
	if c.regions == nil {
		return ""
	}
	return c.regions.Covered()
}

// version returns the version of the regions; 0 for none.
func (c *cover) version() uint32 {
	if c.regions == nil {
		return 0
	}
	return c.regions.Masks().Version
}

// newest returns the newest decoded picture for a look.
func (c *cover) newest(ctx context.Context) (media.VideoFrame, error) {
	f, err := c.decoder.Latest(ctx)
	if err == nil && c.whole(f) {
		err = errCovered
	}
	return f, err
}

// Masked puts the masks of Options.Regions in force. Pictures from before are forgotten. It is called after each change.
func (s *Session) Masked() {
	s.cover.change()
	s.Looks.Forget()
	s.publishStatus()
}

// PictureOfRegions returns the newest picture's size, for region.Set.
func (s *Session) PictureOfRegions() region.Picture {
	size := s.cover.size.Load()
	return region.Picture{Width: size.X, Height: size.Y, Delayed: s.relays() && s.cover.delayed.Load()}
}
