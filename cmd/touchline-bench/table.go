package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// row is one measured figure.
type row struct {
	Name   string
	Figure string
	Bound  string // what it should be; "" when there is no bound
	Holds  bool   // within the bound; true when there is none

	// Got is the number behind Figure; 0 in a row without a bound.
	Got float64
}

// atMost makes a row of a figure that should not exceed its bound.
func atMost(name string, got, most float64, unit string) row {
	return row{
		Name: name, Figure: number(got) + " " + unit, Bound: "<= " + number(most) + " " + unit, Holds: got <= most,
		Got: got,
	}
}

// between makes a row of a figure that should lie between two.
func between(name string, got, least, most float64, unit string) row {
	return row{
		Name: name, Figure: number(got) + " " + unit, Bound: number(least) + " to " + number(most) + " " + unit,
		Holds: got >= least && got <= most, Got: got,
	}
}

// note makes a row of a figure without a bound.
func note(name, figure string) row { return row{Name: name, Figure: figure, Holds: true} }

func number(v float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", v), "0"), ".")
}

// printTable writes rows as a table and returns how many do not hold.
func printTable(w io.Writer, title string, rows []row) (bad int) {
	fmt.Fprintf(w, "\n%s\n", title)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, r := range rows {
		verdict := ""
		switch {
		case !r.Holds:
			verdict = "NOT MET"
			bad++
		case r.Bound != "":
			verdict = "ok"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", r.Name, r.Figure, r.Bound, verdict)
	}
	_ = t.Flush() // the writer below is a terminal or a file
	return bad
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
