package bench

import (
	"encoding/json"
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

// Report prints tables as text, Markdown or JSON, and collects errors.
type Report struct {
	Out      io.Writer
	Markdown bool // as in docs/benchmarks.md
	JSON     bool

	tables []table
	errs   []error
}

// table is the result of one scenario.
type table struct {
	Title   string   `json:"title"`
	Command string   `json:"command"`
	Figures []Figure `json:"figures"`
	Error   string   `json:"error,omitempty"`
}

// Begin prints date, commit and machine.
func (r *Report) Begin(now time.Time, commit, machine string) {
	switch {
	case r.JSON:
	case r.Markdown:
		fmt.Fprintf(r.Out, "Measured %s at commit %s. Machine: %s.\n", now.Format(time.DateOnly), commit, machine)
	default:
		fmt.Fprintf(r.Out, "Touchline at commit %s, measured %s. Machine: %s\n", commit, now.Format(time.DateOnly), machine)
	}
}

// Table prints the figures of a command, all or those before its error. A figure that misses its goal is an error.
func (r *Report) Table(title, command string, figures []Figure, err error) {
	t := table{Title: title, Command: command, Figures: figures}
	for _, f := range figures {
		if !f.Met {
			r.errs = append(r.errs, fmt.Errorf("%s: %s is %s; the goal is %s", command, f.Name, f.Text, f.Goal))
		}
	}
	if err != nil {
		t.Error = err.Error()
		r.errs = append(r.errs, fmt.Errorf("%s: %w", command, err))
	}
	if r.tables = append(r.tables, t); !r.JSON {
		r.print(t)
	}
}

func (r *Report) print(t table) {
	if r.Markdown {
		fmt.Fprintf(r.Out, "\n### %s\n\n`%s`\n\n", t.Title, t.Command)
		cells := [][]string{{"figure", "measured"}}
		for _, f := range t.Figures {
			cells = append(cells, []string{f.Name, f.Text})
		}
		WriteMarkdown(r.Out, cells)
	} else {
		fmt.Fprintf(r.Out, "\n%s (%s)\n", t.Title, t.Command)
		w := tabwriter.NewWriter(r.Out, 0, 4, 2, ' ', 0)
		for _, f := range t.Figures {
			verdict := ""
			switch {
			case !f.Met:
				verdict = "MISSED"
			case f.Goal != "":
				verdict = "ok"
			}
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", f.Name, f.Text, f.Goal, verdict)
		}
		_ = w.Flush() // the writer below is a terminal or a file
	}
	if t.Error != "" {
		fmt.Fprintf(r.Out, "\n%s failed: %v\n", t.Command, t.Error)
	}
}

// End prints the remaining figures and returns all errors; nil when every part ran and every figure met its goal.
func (r *Report) End() error {
	if r.JSON {
		out := json.NewEncoder(r.Out)
		out.SetIndent("", " ")
		r.errs = append(r.errs, out.Encode(r.tables))
	}
	return errors.Join(r.errs...)
}

// WriteMarkdown writes a table, the names of its columns first.
func WriteMarkdown(w io.Writer, cells [][]string) {
	escape := strings.NewReplacer("|", `\|`, "\n", " ").Replace
	for i, row := range cells {
		for _, cell := range row {
			fmt.Fprintf(w, "| %s ", escape(cell))
		}
		fmt.Fprintln(w, "|")
		if i == 0 {
			fmt.Fprintln(w, "|"+strings.Repeat("---|", len(row)))
		}
	}
}

// Commit returns the abbreviated commit of a build, "unknown" without version control.
func Commit(info *debug.BuildInfo) string {
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

// Machine describes the processor, from /proc/cpuinfo.
func Machine() string {
	b, err := os.ReadFile(filepath.Join("/proc", "cpuinfo"))
	if err != nil {
		return "unknown"
	}
	return describe(string(b))
}

func describe(cpuinfo string) string {
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
