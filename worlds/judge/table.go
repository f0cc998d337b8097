package judge

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"touchline/internal/quantile"
	"touchline/worlds/claims"
)

// mostExamples is the maximum number of printed wrong comments.
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
	c.printMore(out, r)
	some("wrong", out, p.Examples)
	some("not told", out, p.Missed)
	some("not obeyed", out, r.Disobeyed)
	some("strangers taken for the world", out, r.Taken)
	return nil
}

// printMore writes the results of orders, alert rules and strangers.
func (c *Command) printMore(out io.Writer, r *Result) {
	fmt.Fprintln(out)
	var all claims.Share
	for _, kind := range slices.Sorted(maps.Keys(r.Orders)) {
		s := r.Orders[kind]
		if !strings.HasSuffix(kind, inBars) {
			all = all.Plus(s)
		}
		line(out, "order "+kind, "%s", percent(s))
	}
	if all.Of > 0 {
		line(out, "orders, all", "%s", percent(all))
	}
	if a := r.Alerts; a != nil {
		line(out, "alerts: fired within two looks", "%s", percent(a.Fired))
		line(out, "alerts: false in 1000 looks", "%.1f", 1000*float64(a.False)/float64(max(1, a.Looks)))
		line(out, "alerts: answers that are no JSON", "%s", percent(claims.Share{Right: a.Broken, Of: a.Looks}))
		for _, kind := range slices.Sorted(maps.Keys(a.Kinds)) {
			line(out, "  rule about "+kind, "%s", percent(a.Kinds[kind]))
		}
		some("alerts that were missed or false", out, a.Examples)
	}
	if r.Strangers.Of > 0 {
		line(out, "strange pictures, not taken for the world", "%s", percent(r.Strangers))
	}
}

// some prints a selection of examples, evenly spaced.
func some(title string, out io.Writer, examples []string) {
	if len(examples) == 0 {
		return
	}
	fmt.Fprintf(out, "\n%s\n", title)
	every := (len(examples) + mostExamples - 1) / mostExamples
	for i := 0; i < len(examples); i += every {
		fmt.Fprintln(out, "  "+examples[i])
	}
}
