package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"text/tabwriter"
	"time"
)

// row is one measured figure.
type row struct {
	Name   string
	Figure string
	Goal   string  // "" without one
	Met    bool    // true without a goal
	Got    float64 // the number behind Figure; 0 without a goal
}

// atMost makes a row of a figure whose goal is not to exceed a bound.
func atMost(name string, got, most float64, unit string) row {
	return row{Name: name, Figure: number(got, unit), Goal: "<= " + number(most, unit), Met: got <= most, Got: got}
}

// atLeast makes a row of a figure whose goal is not to fall below a bound.
func atLeast(name string, got, least float64, unit string) row {
	return row{Name: name, Figure: number(got, unit), Goal: ">= " + number(least, unit), Met: got >= least, Got: got}
}

// between makes a row of a figure whose goal is to lie between two bounds.
func between(name string, got, least, most float64, unit string) row {
	return row{
		Name: name, Figure: number(got, unit), Goal: number(least, "") + " to " + number(most, unit),
		Met: got >= least && got <= most, Got: got,
	}
}

// note makes a row of a figure without a goal.
func note(name, figure string) row { return row{Name: name, Figure: figure, Met: true} }

func number(v float64, unit string) string {
	return strings.TrimSpace(strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", v), "0"), ".") + " " + unit)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// report prints tables as text, or as Markdown for docs/benchmarks.md, and collects errors.
type report struct {
	out      io.Writer
	markdown bool
	errs     []error
}

// begin prints date, commit and machine.
func (r *report) begin(now time.Time, commit, machine string) {
	if r.markdown {
		fmt.Fprintf(r.out, "Measured %s at commit %s. Machine: %s.\n", now.Format(time.DateOnly), commit, machine)
		return
	}
	fmt.Fprintf(r.out, "Touchline at commit %s, measured %s. Machine: %s\n", commit, now.Format(time.DateOnly), machine)
}

// table prints the rows of a command, all or those before its error. A figure that misses its goal is an error.
func (r *report) table(title, command string, rows []row, err error) {
	if r.markdown {
		r.markdownTable(title, command, rows)
	} else {
		r.textTable(title, command, rows)
	}
	for _, row := range rows {
		if !row.Met {
			r.errs = append(r.errs, fmt.Errorf("%s: %s is %s; the goal is %s", command, row.Name, row.Figure, row.Goal))
		}
	}
	if err != nil {
		fmt.Fprintf(r.out, "\n%s failed: %v\n", command, err)
		r.errs = append(r.errs, fmt.Errorf("%s: %w", command, err))
	}
}

func (r *report) markdownTable(title, command string, rows []row) {
	fmt.Fprintf(r.out, "\n### %s\n\n`%s`\n\n| figure | measured |\n|---|---|\n", title, command)
	cell := strings.NewReplacer("|", `\|`, "\n", " ").Replace
	for _, row := range rows {
		fmt.Fprintf(r.out, "| %s | %s |\n", cell(row.Name), cell(row.Figure))
	}
}

func (r *report) textTable(title, command string, rows []row) {
	fmt.Fprintf(r.out, "\n%s (%s)\n", title, command)
	t := tabwriter.NewWriter(r.out, 0, 4, 2, ' ', 0)
	for _, row := range rows {
		verdict := ""
		switch {
		case !row.Met:
			verdict = "MISSED"
		case row.Goal != "":
			verdict = "ok"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", row.Name, row.Figure, row.Goal, verdict)
	}
	_ = t.Flush() // the writer below is a terminal or a file
}

// err returns all errors; nil when every part ran and every figure met its goal.
func (r *report) err() error { return errors.Join(r.errs...) }

// commit returns the abbreviated commit of a build, "unknown" without version control.
func commit(info *debug.BuildInfo) string {
	revision, modified := "unknown", ""
	if info == nil {
		return revision
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && s.Value != "":
			revision = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = " with changes"
		}
	}
	return revision + modified
}

// machine describes the processor, from /proc/cpuinfo.
func machine() string {
	b, err := os.ReadFile(filepath.Join("/proc", "cpuinfo"))
	if err != nil {
		return "unknown"
	}
	return describeProcessor(string(b))
}

func describeProcessor(cpuinfo string) string {
	model, cores := "an unknown processor", 0
	for line := range strings.Lines(cpuinfo) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "model name":
			model = strings.TrimSpace(value)
		case "processor":
			cores++
		}
	}
	return fmt.Sprintf("%d cores of %s", cores, model)
}
