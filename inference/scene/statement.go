package scene

import "time"

// Kind of a statement, the most important first.
type Kind uint8

// The kinds of statements.
const (
	// Flash: the whole picture turned bright within one sample.
	Flash Kind = iota
	// Graphic: a wide rectangle appeared over the picture.
	Graphic
	// Cut: the view changed at once.
	Cut
	// Turn: the main movement reversed.
	Turn
	// Darker and Brighter: the same view under another light.
	Darker
	Brighter
	// Colour: the same view in another colour.
	Colour
	// Start: movement after a rest.
	Start
	// Stop: the end of all movement.
	Stop
	// Motion: movement in another place or at another speed.
	Motion
)

// phrase returns the phrase of a value, "unknown" for a value without one.
func phrase[T ~uint8](v T, phrases []string) string {
	if int(v) < len(phrases) {
		return phrases[v]
	}
	return "unknown"
}

// Direction of movement on the picture.
type Direction uint8

// The directions; Mixed is movement without a common direction.
const (
	Mixed Direction = iota
	Left
	Right
	Up
	Down
)

func (d Direction) opposite() Direction {
	return [...]Direction{Mixed: Mixed, Left: Right, Right: Left, Up: Down, Down: Up}[d]
}

// Pace of movement.
type Pace uint8

// The paces, in picture widths a second.
const (
	Slow  Pace = iota // below BriskFrom
	Brisk             // below FastFrom
	Fast
)

// Limits of the paces in picture widths a second.
const (
	BriskFrom = 0.035
	FastFrom  = 0.1
)

func paceOf(speed float64) Pace {
	switch {
	case speed < BriskFrom:
		return Slow
	case speed < FastFrom:
		return Brisk
	}
	return Fast
}

// Area of the picture: a third of its width.
type Area uint8

// The areas; Across is more than one third.
const (
	Across Area = iota
	LeftSide
	Middle
	RightSide
)

// Statement is one measured event.
type Statement struct {
	Kind Kind
	// At is the media time of the picture that confirmed the event, Since the media time of its start.
	At, Since time.Duration
	// Direction, Pace and Where of the movement (Turn, Start, Motion). Speed is in picture widths a second.
	Direction Direction
	Pace      Pace
	Speed     float64
	Where     Area
	// Hue is the new colour (Colour): red, yellow, green, cyan, blue or violet.
	Hue string
}
