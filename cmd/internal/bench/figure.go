// Package bench holds the shared parts of the benchmarks: the scenario runner, the figures and the table printer. It owns no measurement.
package bench

import (
	"fmt"
	"strings"
	"time"

	"touchline/internal/quantile"
)

// Figure is one measured figure.
type Figure struct {
	Name string `json:"name"`
	// Text is the entry in tables, Value its number, 0 if it has none or several.
	Text  string  `json:"text"`
	Value float64 `json:"value,omitempty"`
	Unit  string  `json:"unit,omitempty"`
	// Spread is the range from 5 to 95 % of the runs of a median.
	Spread string `json:"spread,omitempty"`
	// Goal is "" without one; Met is true then.
	Goal string `json:"goal,omitempty"`
	Met  bool   `json:"met"`
	// Key is the name of the figure in the results of other programs.
	Key string `json:"key,omitempty"`
}

// Note adds a figure without a goal.
func (r *Run) Note(name, format string, args ...any) {
	r.Figures = append(r.Figures, Figure{Name: name, Text: fmt.Sprintf(format, args...), Met: true})
}

// AtMost adds a figure whose goal is not to exceed a bound.
func (r *Run) AtMost(name string, got, most float64, unit string) {
	r.add(name, got, unit, "<= "+Number(most, unit), got <= most)
}

// AtLeast adds a figure whose goal is not to fall below a bound.
func (r *Run) AtLeast(name string, got, least float64, unit string) {
	r.add(name, got, unit, ">= "+Number(least, unit), got >= least)
}

// Between adds a figure whose goal is to lie between two bounds.
func (r *Run) Between(name string, got, least, most float64, unit string) {
	r.add(name, got, unit, Number(least, "")+" to "+Number(most, unit), got >= least && got <= most)
}

func (r *Run) add(name string, got float64, unit, goal string, met bool) {
	r.Figures = append(r.Figures, Figure{Name: name, Text: Number(got, unit), Value: got, Unit: unit, Goal: goal, Met: met})
}

// Median adds the median of some runs with their spread, nothing without runs. goal is a lower bound, an upper one of less-is-better
// figures, 0 for none.
func (r *Run) Median(name, unit, key string, runs []float64, goal float64, less bool) {
	if len(runs) == 0 {
		return
	}
	f := Figure{Name: name, Value: quantile.Of(runs, .5), Unit: unit, Key: key, Met: true}
	f.Text = Digits(f.Value) + " " + unit
	if high := quantile.Of(runs, .95); high > 0 {
		f.Spread = Digits(quantile.Of(runs, .05)) + " to " + Digits(high)
	}
	switch {
	case goal <= 0:
	case less:
		f.Goal, f.Met = "at most "+Digits(goal), f.Value <= goal
	default:
		f.Goal, f.Met = "at least "+Digits(goal), f.Value >= goal
	}
	r.Figures = append(r.Figures, f)
}

// Number formats a number with two decimals at most.
func Number(v float64, unit string) string {
	return strings.TrimSpace(strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", v), "0"), ".") + " " + unit)
}

// Digits formats a number with three digits or more.
func Digits(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// MS returns a duration in ms.
func MS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// AllMS returns durations in ms.
func AllMS(all []time.Duration) []float64 {
	out := make([]float64, len(all))
	for i, d := range all {
		out[i] = MS(d)
	}
	return out
}
