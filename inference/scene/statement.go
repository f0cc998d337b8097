package scene

import (
	"time"
)

// Kind of a statement, the most important first.
type Kind uint8

// What can be measured.
const (
	// Flash: the whole picture turned bright within one sample.
	Flash Kind = iota
	// Graphic: a wide rectangle came to lie over the picture.
	Graphic
	// Cut: the view changed at once.
	Cut
	// Turn: the main movement goes the other way.
	Turn
	// Darker and Brighter: the same view under another light.
	Darker
	Brighter
	// Colour: the same view in another colour.
	Colour
	// Start: something moves after a rest.
	Start
	// Stop: nothing moves any more.
	Stop
	// Motion: the movement goes on elsewhere, or at another speed.
	Motion
)

// String names the kind in plain words.
func (k Kind) String() string {
	switch k {
	case Flash:
		return "flash"
	case Graphic:
		return "graphic"
	case Cut:
		return "cut"
	case Turn:
		return "turn"
	case Darker:
		return "darker"
	case Brighter:
		return "brighter"
	case Colour:
		return "colour"
	case Start:
		return "start"
	case Stop:
		return "stop"
	case Motion:
		return "motion"
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

// String returns the direction in lower case.
func (d Direction) String() string {
	switch d {
	case Left:
		return "left"
	case Right:
		return "right"
	case Up:
		return "up"
	case Down:
		return "down"
	case Mixed:
	}
	return "mixed"
}

func (d Direction) opposite() Direction {
	switch d {
	case Left:
		return Right
	case Right:
		return Left
	case Up:
		return Down
	case Down:
		return Up
	case Mixed:
	}
	return Mixed
}

// Pace of movement.
type Pace uint8

// The paces, in picture widths a second.
const (
	Slow  Pace = iota // below 0.035
	Brisk             // up to 0.1
	Fast
)

// Limits of the paces in picture widths a second.
const (
	BriskFrom = 0.035
	FastFrom  = 0.1
)

// String returns the pace in lower case.
func (p Pace) String() string {
	switch p {
	case Slow:
		return "slow"
	case Brisk:
		return "brisk"
	case Fast:
		return "fast"
	}
	return "unknown"
}

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

// String names the area in plain words.
func (a Area) String() string {
	switch a {
	case LeftSide:
		return "left"
	case Middle:
		return "middle"
	case RightSide:
		return "right"
	case Across:
	}
	return "across"
}

// Statement is one thing that was measured.
type Statement struct {
	Kind Kind
	// At is the media time of the picture on which it was settled; Since is when it began.
	At, Since time.Duration
	// Direction, Pace and Where of the movement (Turn, Start, Motion). Speed is in picture widths a second.
	Direction Direction
	Pace      Pace
	Speed     float64
	Where     Area
	// Hue is the colour that came in (Colour): red, yellow, green, cyan, blue or violet.
	Hue string
}
