package scene

import "slices"

// String returns the kind in lower case.
func (k Kind) String() string {
	return phrase(k, []string{
		Flash: "flash", Graphic: "graphic", Cut: "cut", Turn: "turn", Darker: "darker", Brighter: "brighter",
		Colour: "colour", Start: "start", Stop: "stop", Motion: "motion",
	})
}

// String returns the direction in lower case.
func (d Direction) String() string {
	return phrase(d, []string{Mixed: "mixed", Left: "left", Right: "right", Up: "up", Down: "down"})
}

// String returns the pace in lower case.
func (p Pace) String() string { return phrase(p, []string{Slow: "slow", Brisk: "brisk", Fast: "fast"}) }

// String returns the area in lower case.
func (a Area) String() string {
	return phrase(a, []string{Across: "across", LeftSide: "left", Middle: "middle", RightSide: "right"})
}

// Said returns the statements of the last answer, one for each sentence; none after silence.
func (s *Session) Said() []Statement {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.said)
}
