package scene

import "fmt"

// wordings returns sentences for a statement, of about three seconds of speech.
func wordings(s Statement) []string { //nolint:funlen // a table
	place, way, pace := s.Where.place(), s.Direction.way(), s.Pace.adverb()
	switch s.Kind {
	case Flash:
		return []string{
			"A bright flash fills the whole picture.",
			"The whole picture flashes almost white for a moment.",
			"A sudden flash of light covers everything in view.",
		}
	case Graphic:
		return []string{
			"A wide panel has come up across the picture.",
			"A big graphic now covers a large part of the picture.",
			"Something like a banner now lies across the picture.",
		}
	case Cut:
		return []string{
			"The view cuts to a different picture.",
			"A cut: this is an entirely different view.",
			"The picture switches to another view at once.",
			"A new view now, all of the picture has changed.",
		}
	case Turn:
		return []string{
			fmt.Sprintf("The movement turns round and now goes %s, %s.", way, pace),
			fmt.Sprintf("Now it all goes the other way, %s to the picture's %s.", pace, s.Direction.edge()),
			fmt.Sprintf("The main movement reverses and runs %s, %s.", way, pace),
		}
	case Darker:
		return []string{
			"The whole picture has become clearly darker.",
			"The light goes down, the picture is darker now.",
		}
	case Brighter:
		return []string{
			"The whole picture has become clearly brighter.",
			"The light comes up, the picture is brighter now.",
		}
	case Colour:
		return []string{
			fmt.Sprintf("The colour of the whole picture shifts towards %s.", s.Hue),
			fmt.Sprintf("Everything in the picture takes on more %s.", s.Hue),
		}
	case Start:
		return []string{
			fmt.Sprintf("Movement begins again, %s %s, %s.", way, place, pace),
			fmt.Sprintf("After the pause things move %s %s, %s.", way, place, pace),
		}
	case Stop:
		return []string{
			"The movement has stopped, hardly anything changes now.",
			"Almost nothing moves in the picture now.",
			"The picture has come to rest for the moment.",
		}
	case Motion:
		return []string{
			fmt.Sprintf("There is movement %s, going %s, %s.", place, way, pace),
			fmt.Sprintf("The main movement %s goes %s, %s.", place, way, pace),
			fmt.Sprintf("Things move %s %s, %s.", pace, way, place),
		}
	}
	return nil
}

func (a Area) place() string {
	return phrase(a, []string{
		Across: "across the picture", LeftSide: "on the left side", Middle: "in the middle", RightSide: "on the right side",
	})
}

func (d Direction) way() string {
	return phrase(d, []string{
		Mixed: "in several directions", Left: "to the left", Right: "to the right", Up: "upwards", Down: "downwards",
	})
}

func (d Direction) edge() string {
	return phrase(d, []string{Mixed: "edges", Left: "left", Right: "right", Up: "top", Down: "bottom"})
}

func (p Pace) adverb() string {
	return phrase(p, []string{Slow: "slowly", Brisk: "briskly", Fast: "fast"})
}
