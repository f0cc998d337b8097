package facts

import (
	"touchline/inference"
)

const (
	plainShare = 0.55 // of the pixels of an upper body in one colour
	wornLooks  = 4    // that agree on a colour
	wornShare  = 0.7  // of all looks
	upperTop   = 0.18 // of a person's height: the part with a shirt or a coat
	upperEnd   = 0.48
	upperSide  = 0.28 // of the width, left out on both sides
)

// worn are the votes for the colour that a person wears.
type worn struct {
	votes map[string]int
	looks int
}

func (w *worn) vote(colour string) {
	if w.looks++; colour == "" {
		return
	}
	if w.votes == nil {
		w.votes = map[string]int{}
	}
	w.votes[colour]++
}

func (w *worn) add(o worn) {
	for colour, n := range o.votes {
		for range n {
			w.vote(colour)
		}
		w.looks -= n
	}
	w.looks += o.looks
}

// colour returns the colour on which the looks agree, or "".
func (w *worn) colour() string {
	for colour, n := range w.votes {
		if n >= wornLooks && float64(n) >= wornShare*float64(w.looks) { // above a half: one at most
			return colour
		}
	}
	return ""
}

// plainColour returns the name of the colour of a person's upper body; "" if it is small, mixed or dull.
func plainColour(f *inference.Frame, box area) string {
	w, h := float64(f.Width), float64(f.Height)
	x0, x1 := int((box.x0+upperSide*box.width())*w), int((box.x1-upperSide*box.width())*w)+1
	y0, y1 := int((box.y0+upperTop*box.height())*h), int((box.y0+upperEnd*box.height())*h)+1
	x0, y0, x1, y1 = max(x0, 0), max(y0, 0), min(x1, f.Width), min(y1, f.Height)
	if x1-x0 < 4 || y1-y0 < 6 {
		return ""
	}
	counts := map[string]int{}
	for y := y0; y < y1; y++ {
		for x := x0; x < x1; x++ {
			p := f.Pix[3*(y*f.Width+x):]
			if name := colourOf(float64(p[0])/255, float64(p[1])/255, float64(p[2])/255); name != "" {
				counts[name]++
			}
		}
	}
	for name, n := range counts {
		if float64(n) >= plainShare*float64((x1-x0)*(y1-y0)) {
			return name
		}
	}
	return ""
}

// colourOf names the colour of a pixel, "" between the names.
func colourOf(r, g, b float64) string {
	hi, lo := max(r, g, b), min(r, g, b)
	c := hi - lo
	s := c / max(hi, 1e-6)
	switch {
	case hi < 0.2:
		return "black"
	case s < 0.14 && hi > 0.78:
		return "white"
	case s <= 0.45 || hi <= 0.25:
		return ""
	}
	var hue float64
	switch hi {
	case r:
		if hue = (g - b) / c; hue < 0 {
			hue += 6
		}
	case g:
		hue = (b-r)/c + 2
	default:
		hue = (r-g)/c + 4
	}
	switch hue *= 60; {
	case hue < 15 || hue >= 340:
		return "red"
	case hue < 40 && hi > 0.6:
		return "orange"
	case hue >= 45 && hue < 68 && hi > 0.5:
		return "yellow"
	case hue >= 80 && hue < 160:
		return "green"
	case hue >= 195 && hue < 255:
		return "blue"
	case hue >= 265 && hue < 320:
		return "purple"
	}
	return ""
}
