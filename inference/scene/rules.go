package scene

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Thresholds of the rules.
const (
	cutHolds    = 5 * time.Second // after a cut, so that a look does not miss it
	stillAfter  = time.Second     // without movement
	movedWithin = 2 * time.Second // before the newest picture
	movedShare  = 0.03            // of the cells of a region
	movedCells  = 2               // at least
	darkBelow   = 40              // mean luma, 0 to 255
	brightAbove = 190
)

// RuleNames returns the named alert rules that the engine can evaluate. CheckRule also accepts movement in a rectangle.
func RuleNames() []string {
	out := []string{"cut", "still", "dark", "bright"}
	for _, name := range regionNames() {
		out = append(out, motionIn+name)
	}
	return out
}

// CheckRule returns an error for the sentence of an alert rule that the engine does
// not answer.
func CheckRule(when string) error {
	if _, ok := parseRule(when); !ok {
		return fmt.Errorf(`the scene engine answers the rules %s, and "motion in x,y,w,h" (percent of the picture), is %.60q; `+
			`for other sentences choose an engine that follows instructions`, strings.Join(RuleNames(), ", "), when)
	}
	return nil
}

const motionIn = "motion in "

// region is a part of the picture, in percent.
type region struct{ x, y, w, h float64 }

func regionNames() []string { return []string{"left", "right", "top", "bottom", "centre"} }

func regionOf(name string) (region, bool) {
	all := []region{{0, 0, 50, 100}, {50, 0, 50, 100}, {0, 0, 100, 50}, {0, 50, 100, 50}, {25, 25, 50, 50}}
	if i := slices.Index(regionNames(), name); i >= 0 {
		return all[i], true
	}
	parts := strings.Split(name, ",")
	if len(parts) != 4 {
		return region{}, false
	}
	var n [4]float64
	for i, p := range parts {
		var err error
		if n[i], err = strconv.ParseFloat(strings.TrimSpace(p), 64); err != nil || !(n[i] >= 0 && n[i] <= 100) {
			return region{}, false
		}
	}
	r := region{n[0], n[1], n[2], n[3]}
	return r, r.w > 0 && r.h > 0 && r.x+r.w <= 100 && r.y+r.h <= 100
}

// rule is an alert rule that the engine answers: a name, and a region for motion.
type rule struct {
	name string
	in   region
}

func parseRule(when string) (rule, bool) {
	when = strings.ToLower(strings.Join(strings.Fields(when), " "))
	if name, ok := strings.CutPrefix(when, motionIn); ok {
		in, ok := regionOf(name)
		return rule{"motion", in}, ok
	}
	return rule{name: when}, slices.Contains([]string{"cut", "still", "dark", "bright"}, when)
}

// Holds measures the sentence of an alert rule that CheckRule accepts, and returns the reason in a sentence.
func (a *Analyzer) Holds(when string) (reason string, ok bool) {
	r, ok := parseRule(when)
	if !ok || a.frames == 0 {
		return "", false
	}
	now := a.now.at
	switch r.name {
	case "cut":
		return "The picture cut to another view.", a.wasCut && now-a.cutAt <= cutHolds
	case "still":
		return "Nothing moves.", a.frames > 1 && now-a.movedAt >= stillAfter
	case "dark":
		return fmt.Sprintf("The picture is dark: its mean brightness is %.0f of 255.", a.now.meanBright), a.now.meanBright < darkBelow
	case "bright":
		return fmt.Sprintf("The picture is bright: its mean brightness is %.0f of 255.", a.now.meanBright), a.now.meanBright > brightAbove
	case "motion":
		moved, all := a.movedIn(r.in)
		return "Something moves there.", moved >= movedCells && float64(moved) >= movedShare*float64(all)
	}
	return "", false
}

// noteMovement notes the cells that changed in the newest picture. Flickering cells, a new view and a flash do not count.
func (a *Analyzer) noteMovement(moving bool) {
	if !moving {
		a.movedAt = a.now.at
		return
	}
	moved := 0
	for c, changed := range a.comp.changed {
		if changed && !a.skip[c] {
			a.cellMoved[c] = a.now.at
			moved++
		}
	}
	if moved >= movedCells {
		a.movedAt = a.now.at
	}
}

// movedIn returns the number of cells of a region that changed within movedWithin, and of all its cells.
func (a *Analyzer) movedIn(in region) (moved, all int) {
	v := a.now
	for c, at := range a.cellMoved {
		x := (float64(c%v.cols) + 0.5) * 100 / float64(v.cols)
		y := (float64(c/v.cols) + 0.5) * 100 / float64(v.rows)
		if x < in.x || x >= in.x+in.w || y < in.y || y >= in.y+in.h {
			continue
		}
		all++
		if at > 0 && v.at-at <= movedWithin {
			moved++
		}
	}
	return moved, all
}

// AnswerRules answers a look with alert rules, which are numbered from 1: those that hold, with their reasons, in JSON.
func AnswerRules(rules []string, holds func(when string) (reason string, ok bool)) string {
	type fired struct {
		Rule   int    `json:"rule"`
		Reason string `json:"reason"`
	}
	out := struct {
		Fired []fired `json:"fired"`
	}{Fired: []fired{}}
	for i, when := range rules {
		if reason, ok := holds(when); ok {
			out.Fired = append(out.Fired, fired{i + 1, reason})
		}
	}
	b, _ := json.Marshal(out) // numbers and texts cannot fail
	return string(b)
}
