package scene

import (
	"math"
	"slices"
)

// lightAndColour compares the view with the calm and the recent grid. The first
// finds slow changes; the second also works where much of the picture moves.
func (a *Analyzer) lightAndColour() {
	if a.afterFlash() || a.covered != nil {
		return
	}
	v := a.now
	steady := math.Abs(v.meanBright-a.before.meanBright) < steadyStep &&
		math.Abs(v.meanBlue-a.before.meanBlue)+math.Abs(v.meanRed-a.before.meanRed) < 1.5
	if !steady {
		return
	}
	for _, ref := range []*grid{a.calm, a.recent} {
		if a.shows(ref) && a.compareLight(ref) {
			a.calm, a.recent = a.grid(), a.grid()
			return
		}
	}
	if v.at-a.recent.at > recentAge {
		a.recent = a.grid()
		if !a.shows(a.calm) {
			a.calm = a.recent
		}
	}
}

// shows reports whether the present picture shows the same view as g.
func (a *Analyzer) shows(g *grid) bool {
	return fitLight(&view{bright: g.bright, meanBright: g.meanBright}, a.now).alike >= sameView
}

// compareLight states the change of light and colour that most cells agree on.
func (a *Analyzer) compareLight(ref *grid) bool {
	n := len(a.now.bright)
	ratio, part := make([]float64, 0, n), make([]float64, n)
	for c, b := range ref.bright {
		if b > 12 {
			ratio = append(ratio, float64(a.now.bright[c]/b))
		}
	}
	if len(ratio) < n/4 {
		return false
	}
	gain := median(ratio)
	for c, b := range ref.bright {
		part[c] = float64(a.now.bright[c] - b)
	}
	step := median(part)
	stated := false
	agree := 0
	for _, p := range part {
		if p*step > step*step/3 {
			agree++
		}
	}
	if math.Abs(step) > lightStep && float64(agree) > agreeing*float64(n) && (gain < 1-lightRatio || gain > 1+lightRatio) {
		kind := Brighter
		if step < 0 {
			kind = Darker
		}
		a.add(Statement{Kind: kind, Since: ref.at})
		stated = true
	}
	// A change of light alone scales all colours by its gain.
	for c, b := range ref.blue {
		part[c] = float64(a.now.blue[c]) - gain*float64(b)
	}
	blue := median(part)
	for c, r := range ref.red {
		part[c] = float64(a.now.red[c]) - gain*float64(r)
	}
	red := median(part)
	if math.Hypot(blue, red) > colourStep {
		a.add(Statement{Kind: Colour, Since: ref.at, Hue: hueOf(blue, red)})
		stated = true
	}
	return stated
}

// median sorts the values and returns their median.
func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// hueOf returns the name of the colour in the direction of (Cb, Cr).
func hueOf(blue, red float64) string {
	angle := math.Atan2(red, blue) * 180 / math.Pi
	if angle < 0 {
		angle += 360
	}
	switch {
	case angle < 20 || angle >= 305:
		return "blue"
	case angle < 75:
		return "violet"
	case angle < 140:
		return "red"
	case angle < 200:
		return "yellow"
	case angle < 260:
		return "green"
	}
	return "cyan"
}
