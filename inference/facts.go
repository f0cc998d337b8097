package inference

import "time"

// Seer is an optional interface of a Session that finds things in the pictures.
type Seer interface {
	// Forget drops what was found, and looks in flight: a mask may cover it now.
	Forget()
	// Sight returns what is in the newest picture that was looked at; false before the first. It may be called at any time.
	Sight() (Sight, bool)
	// Watch makes the session call f after each look, with what it found. Call it before the first Observe. f returns quickly and calls
	// no method of the session.
	Watch(f func(Sight))
}

// Sight is what an engine found in one picture.
type Sight struct {
	PTS    time.Duration
	Epoch  uint32
	Things []Thing
	// Facts are the last measured events, oldest first.
	Facts []Fact
	// Texts are the lines that can be read in the picture.
	Texts []string
}

// Thing is something in a picture.
type Thing struct {
	// Name of its kind, or its text.
	Name string `json:"name"`
	// Track is the number of a thing that is followed from picture to picture; 0 for another.
	Track int     `json:"track,omitempty"`
	Score float32 `json:"score"` // 0 to 1
	Box
}

// Box is a part of a picture in shares of it, 0 to 1, from the top left corner.
type Box struct {
	X0 float32 `json:"x0"`
	Y0 float32 `json:"y0"`
	X1 float32 `json:"x1"`
	Y1 float32 `json:"y1"`
}

// Judge is an optional interface of a Session that decides alert rules by facts. A Sensor has it.
type Judge interface {
	// Judge returns what the last look means for rules that Capabilities.CheckRule accepts; false before the first look. It may be called
	// at any time.
	Judge(rules []string, regions []Region) (Judgement, bool)
}

// Judgement is what one look means for some rules.
type Judgement struct {
	// PTS of the picture that was looked at.
	PTS   time.Duration
	Epoch uint32
	// Findings has one for each rule, in their order.
	Findings []Finding
}

// Finding is whether a rule holds, and why.
type Finding struct {
	Holds bool
	// Unknown is set while the view is too new to decide, or a number is not clear; Holds is false then.
	Unknown bool
	// Reason is a sentence in English, for people.
	Reason string
	// PTS of the picture that shows it: of the event, or of the last look.
	PTS time.Duration
	// Box is the thing that the rule is about, in that picture; nil without one.
	Box *Box
}

// Fact is a measured event.
type Fact struct {
	PTS  time.Duration // of the event
	Kind string        // such as "enter"; the names are the engine's
	Text string        // such as "enter: person 3 left"; the same again if it happens to the same thing again
}

// Sensor measures the pictures of a room for an engine that does not. Safe for concurrent use.
type Sensor interface {
	Judge

	// Observe receives every sampled frame. It returns quickly and may drop frames.
	Observe(f Frame)
	// Facts returns the measurement of the newest picture that was looked at; false before the first.
	Facts() (Facts, bool)
	// Close releases the sensor's resources.
	Close() error
}

// Facts are a measurement of one picture.
type Facts struct {
	PTS   time.Duration
	Epoch uint32
	// News changes when something happened that is worth a comment.
	News uint64
	// Things are the things in the picture, in English: "3 people, 1 car"; "" for none.
	Things string
	// Texts are the lines that can be read in the picture.
	Texts []string
}

// Region is a zone or a line over the picture, which rules name.
type Region struct {
	Name string
	Line bool
	// Corners are [x, y] in shares of the picture. A line goes from the first to the last; those of a zone are a polygon.
	Corners [][2]float64
}
