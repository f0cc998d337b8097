package region

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"touchline/internal/polygon"
)

// Errors of a change.
var (
	ErrNoRegion  = errors.New("no such region")
	ErrTooMany   = fmt.Errorf("a room has at most %d regions; remove one first", MaxRegions)
	ErrNameTaken = errors.New("another region has this name")
	ErrInUse     = errors.New("alert rules name it; change or remove them first")
	ErrUnread    = errors.New("the kept regions cannot be read, and so the whole picture is covered; remove all regions, then draw them anew")
	ErrNoPicture = errors.New("there is no picture yet")
)

// Picture is what a Set needs to know of the room.
type Picture struct {
	// Width and Height of the newest picture; 0 without one.
	Width, Height int
	// Delayed reports that the delayed picture is masked as well.
	Delayed bool
}

// Set is the regions of one room. It is safe for concurrent use.
type Set struct {
	mu      sync.Mutex
	list    []SavedRegion
	unread  error  // of the kept regions
	version uint32 // of the regions

	picture func() Picture             // may be nil
	users   func(name string) []string // may be nil
	changed func()                     // may be nil
}

// NewSet returns a room's regions, beginning with those of the settings.
func NewSet(cfg Config) (*Set, error) {
	s := &Set{version: 1}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	for _, r := range cfg.regions() {
		s.list = append(s.list, SavedRegion{Region: r})
	}
	return s, nil
}

// Attach sets what the Set asks and calls without its lock: the present picture, the names of the rules that name a region, and
// a function after each change. Call it before the Set is shared.
func (s *Set) Attach(picture func() Picture, users func(name string) []string, changed func()) {
	s.picture, s.users, s.changed = picture, users, changed
}

// Masks returns the masks in force.
func (s *Set) Masks() polygon.Masks {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := polygon.Masks{Version: s.version, All: s.unread != nil}
	for _, r := range s.list {
		if r.Kind == Mask {
			m.Shapes = append(m.Shapes, r.Shape)
		}
	}
	return m
}

// Saved returns the regions.
func (s *Set) Saved() Saved {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Saved{append([]SavedRegion{}, s.list...)}
}

// Restore replaces all regions with saved ones. If one is invalid, or there is an error of reading them, the whole picture is covered
// until Clear, and the reason is returned.
func (s *Set) Restore(k Saved, err error) error {
	list := make(List, len(k.Regions))
	for i, r := range k.Regions {
		list[i] = r.Region
	}
	err = errors.Join(err, list.Validate())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	if s.unread = err; err == nil {
		s.list = k.Regions
	}
	return err
}

// Unread reports that Restore failed, and that the regions were not removed since.
func (s *Set) Unread() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unread != nil
}

// change replaces the list by the one that edit returns.
func (s *Set) change(edit func(list []SavedRegion) ([]SavedRegion, error)) error {
	err := func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.unread != nil {
			return ErrUnread
		}
		list, err := edit(slices.Clone(s.list))
		if err == nil {
			s.list, s.version = list, s.version+1
		}
		return err
	}()
	if err == nil && s.changed != nil {
		s.changed()
	}
	return err
}

// find returns the index of a name; -1 for none.
func find(list []SavedRegion, name string) int {
	return slices.IndexFunc(list, func(r SavedRegion) bool { return strings.EqualFold(r.Name, name) })
}

// Put replaces the region with a name, or adds one. Without an aspect the shape is for the present picture. It returns all that is
// wrong with the region, joined.
func (s *Set) Put(name string, r Region, by string, now time.Time) error {
	if r.Name == "" {
		r.Name = name
	}
	if r.Aspect == 0 {
		p := s.present()
		if p.Height == 0 {
			return fmt.Errorf("aspect: is missing, and %w", ErrNoPicture)
		}
		r.Aspect = float64(p.Width) / float64(p.Height)
	}
	if err := r.Validate(); err != nil {
		return err
	}
	users := s.usersOf(name)
	return s.change(func(list []SavedRegion) ([]SavedRegion, error) {
		i, other := find(list, name), find(list, r.Name)
		switch {
		case other >= 0 && other != i:
			return nil, fmt.Errorf("%q: %w", r.Name, ErrNameTaken)
		case i < 0 && !strings.EqualFold(name, r.Name):
			return nil, fmt.Errorf("%q: %w", name, ErrNoRegion)
		case i < 0 && len(list) >= MaxRegions:
			return nil, ErrTooMany
		case i < 0:
			return append(list, SavedRegion{r, by, now}), nil
		case len(users) > 0 && list[i].Kind != Mask && (other != i || list[i].Kind != r.Kind):
			return nil, inUse(list[i].Name, users)
		}
		list[i] = SavedRegion{r, by, now}
		return list, nil
	})
}

// Remove removes a region. It returns ErrNoRegion for an unknown name.
func (s *Set) Remove(name string) error {
	users := s.usersOf(name)
	return s.change(func(list []SavedRegion) ([]SavedRegion, error) {
		i := find(list, name)
		switch {
		case i < 0:
			return nil, fmt.Errorf("%q: %w", name, ErrNoRegion)
		case len(users) > 0 && list[i].Kind != Mask:
			return nil, inUse(list[i].Name, users)
		}
		return slices.Delete(list, i, i+1), nil
	})
}

// Clear removes all regions, also those that cannot be read.
func (s *Set) Clear() error {
	for _, r := range s.Saved().Regions {
		if users := s.usersOf(r.Name); len(users) > 0 && r.Kind != Mask {
			return inUse(r.Name, users)
		}
	}
	s.mu.Lock()
	s.unread, s.list, s.version = nil, nil, s.version+1
	s.mu.Unlock()
	if s.changed != nil {
		s.changed()
	}
	return nil
}

// Confirm makes all regions fit the present picture, with the same shares of it.
func (s *Set) Confirm(by string, now time.Time) error {
	p := s.present()
	if p.Height == 0 {
		return ErrNoPicture
	}
	return s.change(func(list []SavedRegion) ([]SavedRegion, error) {
		for i, r := range list {
			if !r.Fits(p.Width, p.Height) {
				r.Aspect, r.By, r.At = float64(p.Width)/float64(p.Height), by, now
				list[i] = r
			}
			if err := list[i].Validate(); err != nil {
				return nil, err
			}
		}
		return list, nil
	})
}

func inUse(name string, users []string) error {
	return fmt.Errorf("%q: %w: %s", name, ErrInUse, strings.Join(users, ", "))
}

func (s *Set) usersOf(name string) []string {
	if s.users == nil {
		return nil
	}
	return s.users(name)
}

func (s *Set) present() Picture {
	if s.picture == nil {
		return Picture{}
	}
	return s.picture()
}
