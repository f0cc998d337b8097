package truth

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"touchline/internal/quantile"
	"touchline/media/toyworld/claims"
)

// mostExamples is the number of wrong comments that are printed.
const mostExamples = 12

// print writes the figures as text.
func (c *Command) print(out io.Writer, r *Result) error {
	p := r.Report
	fmt.Fprintf(out, "%s on the %s, %d films of %d min from seed %d, language %s; %.0f s, an answer takes %.0f ms\n\n",
		r.Engine, r.World, r.Seeds, c.Minutes, r.FirstSeed, r.Language, r.Took, 1000*r.Answer)
	per := func(n int) float64 { return float64(n) / p.Minutes }
	line(out, "looks, comments a minute", "%.1f, %.1f", per(p.Looks), per(p.Comments))
	line(out, "answered by silence", "%s", percent(claims.Share{Right: p.Silent, Of: p.Looks}))
	line(out, "comments with anything wrong", "%s", percent(claims.Share{Right: p.Wrong, Of: p.Comments}))
	line(out, "comments with nothing to judge", "%s", percent(claims.Share{Right: p.Unjudged, Of: p.Comments}))
	line(out, "wrong events a minute", "%.2f", per(p.WrongEvents))
	line(out, "the score, where it is said, is right", "%s", percent(p.Score))
	line(out, "told goals with their new score", "%s", percent(p.GoalScore))
	line(out, "same comment twice running, in 10 min", "%.2f", 10*per(p.Repeats))
	distinct := 0
	for _, n := range p.Distinct {
		distinct += n
	}
	line(out, "distinct sentences in 10 min, mean", "%.0f", float64(distinct)/float64(max(1, len(p.Distinct))))

	fmt.Fprintf(out, "\n%-14s %22s %14s\n", "event", "told (recall)", "median lag")
	for _, kind := range slices.Sorted(maps.Keys(p.Events)) {
		k := p.Events[kind]
		lag := "-"
		if len(k.Lags) > 0 {
			lag = fmt.Sprintf("%.1f s", quantile.Of(k.Lags, 0.5))
		}
		fmt.Fprintf(out, "%-14s %22s %14s\n", kind, percent(k.Share), lag)
	}
	fmt.Fprintf(out, "\n%-14s %22s\n", "claim", "true (precision)")
	for _, kind := range slices.Sorted(maps.Keys(p.Claims)) {
		fmt.Fprintf(out, "%-14s %22s\n", kind, percent(p.Claims[kind]))
	}
	examples := p.Examples
	if every := (len(examples) + mostExamples - 1) / mostExamples; every > 1 {
		some := examples[:0:0]
		for i := 0; i < len(examples); i += every {
			some = append(some, examples[i])
		}
		examples = some
	}
	if len(examples) > 0 {
		fmt.Fprintln(out, "\nwrong")
	}
	for _, e := range examples {
		fmt.Fprintln(out, "  "+e)
	}
	return nil
}
