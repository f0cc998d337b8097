package agent

import (
	"context"
	"errors"

	"touchline/agent/region"
	"touchline/media"
)

// errCovered is the answer to a look while masks cover the whole picture.
var errCovered = errors.New("the whole picture is masked")

// Masked puts the masks of Options.Regions in force. Pictures from before are forgotten. It is called after each change.
func (s *Session) Masked() {
	s.mask()
	s.Looks.Forget()
	s.publishStatus()
}

func (s *Session) mask() {
	if s.opts.Regions == nil {
		return
	}
	s.masking.Lock()
	defer s.masking.Unlock()
	m := s.opts.Regions.Masks()
	s.masks.Store(&m)
	s.dec.SetMasks(m)
}

// PictureOfRegions returns the newest picture's size, for region.Set.
func (s *Session) PictureOfRegions() region.Picture {
	size := s.size.Load()
	return region.Picture{Width: size.X, Height: size.Y, Delayed: s.relays() && s.maskDelayed.Load()}
}

// masksDelayed reports whether the delayed picture is to be masked.
func (s *Session) masksDelayed() bool { return s.maskDelayed.Load() && s.masks.Load().Any() }

// covered returns why the whole picture is masked; "" when it is not.
func (s *Session) covered() string {
	if s.opts.Regions == nil {
		return ""
	}
	return s.opts.Regions.Covered()
}

// newest returns the newest decoded picture for a look.
func (s *Session) newest(ctx context.Context) (media.VideoFrame, error) {
	f, err := s.dec.Latest(ctx)
	if err == nil && s.masks.Load().Whole(f.Width, f.Height) {
		err = errCovered
	}
	return f, err
}
