package main

import "touchline/media/codec/wire"

// masks are the masks of a source, with what they cover of the pictures of the last size.
type masks struct {
	wire.Masks

	width, height int
	runs          []int32
}

// of returns the covered pixels of a picture, as decoder.cover takes them.
func (m *masks) of(width, height int) []int32 {
	if width == m.width && height == m.height {
		return m.runs
	}
	m.width, m.height, m.runs = width, height, nil
	for _, r := range m.Cover(width, height) {
		m.runs = append(m.runs, int32(r.Y), int32(r.X0), int32(r.X1)) //nolint:gosec // within the picture
	}
	return m.runs
}

// mask covers the newest picture, or forgets it if that fails, so that it leaves the process in no form.
func (s *server) mask() error {
	if s.dec == nil || s.newest == 0 {
		return nil
	}
	if err := s.dec.cover(s.masks.of(s.size.width, s.size.height)); err != nil {
		id := s.newest
		s.newest = 0
		return s.failed(id, err)
	}
	return nil
}
