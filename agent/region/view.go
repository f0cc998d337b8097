package region

import (
	"fmt"
	"strings"

	"touchline/inference"
)

// ShownRegion is a region and whether it is in force.
type ShownRegion struct {
	SavedRegion

	Rests bool   `json:"rests" doc:"The picture has another ratio: a mask covers all of it, a zone or line rests."`
	Note  string `json:"note,omitempty" doc:"Who sees what a mask covers, or why the region rests."`
}

// ShownRegions is the regions of a room as the API shows them.
type ShownRegions struct {
	Regions []ShownRegion `json:"regions"`
	Aspect  float64       `json:"aspect,omitempty" doc:"Ratio of the present picture; absent without a picture."`
	Delayed bool          `json:"mask_delayed" doc:"The delayed picture is masked too."`
	Covered string        `json:"covered,omitempty" doc:"Why the whole picture is covered; absent when it is not."`
}

const (
	noteLive = "Viewers who watch the camera's own track in the room still see this; it cannot be masked. The delayed picture is masked."
	noteRoom = "Viewers of the room still see this: only what Touchline reads and stores is masked. Setting mask_delayed masks the " +
		"delayed picture too."
	noteRatio = "The picture has another ratio or is turned. Confirm the regions, or draw them anew."
)

// View returns the regions with their state.
func (s *Set) View() ShownRegions {
	p := s.present()
	out := ShownRegions{Regions: []ShownRegion{}, Delayed: p.Delayed, Covered: s.covered(p)}
	if p.Height > 0 {
		out.Aspect = float64(p.Width) / float64(p.Height)
	}
	for _, r := range s.Saved().Regions {
		status := ShownRegion{SavedRegion: r, Rests: p.Height > 0 && !r.Fits(p.Width, p.Height)}
		switch {
		case status.Rests:
			status.Note = noteRatio
		case r.Kind == Mask && p.Delayed:
			status.Note = noteLive
		case r.Kind == Mask:
			status.Note = noteRoom
		}
		out.Regions = append(out.Regions, status)
	}
	return out
}

// Zones returns the zones and lines for engines, with or without those that rest.
func (s *Set) Zones(resting bool) []inference.Region {
	var out []inference.Region
	for _, r := range s.View().Regions {
		if r.Kind == Mask || r.Rests && !resting {
			continue
		}
		zone := inference.Region{Name: r.Name, Line: r.Kind == Line}
		for _, p := range r.Points {
			zone.Corners = append(zone.Corners, p)
		}
		out = append(out, zone)
	}
	return out
}

// Covered returns why the whole picture is covered; "" when it is not.
func (s *Set) Covered() string { return s.covered(s.present()) }

// Names reports whether the condition of a rule names a region in quotes, in capitals or not.
func Names(when, name string) bool {
	plain := func(s string) string { return strings.Join(strings.Fields(strings.ToLower(s)), " ") }
	return strings.Contains(plain(when), `"`+plain(name)+`"`)
}

// Resting returns why the condition of a rule cannot be decided: it names a zone or line that does not fit the present picture.
func (s *Set) Resting(when string) error {
	for _, r := range s.View().Regions {
		if r.Rests && r.Kind != Mask && Names(when, r.Name) {
			return fmt.Errorf("the %s %q rests: the picture has another ratio or is turned; confirm the regions", r.Kind, r.Name)
		}
	}
	return nil
}

func (s *Set) covered(p Picture) string {
	s.mu.Lock()
	unread := s.unread
	s.mu.Unlock()
	switch {
	case unread != nil:
		return "the whole picture is masked: the kept masks cannot be read; remove all regions, then draw them anew"
	case p.Height > 0 && s.Masks().Whole(p.Width, p.Height):
		return "the whole picture is masked: it has another ratio or is turned; confirm the masks"
	}
	return ""
}
