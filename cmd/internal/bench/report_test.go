package bench

import (
	"bytes"
	"context"
	"errors"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFigures(t *testing.T) {
	var r Run
	r.AtMost("gap", 90, 100, "ms")
	r.AtMost("gap", 101, 100, "ms")
	r.AtMost("frames lost", 0, 0, "")
	r.AtMost("frames lost", 1, 0, "")
	r.AtLeast("heard", 90, 90, "%")
	r.AtLeast("heard", 89, 90, "%")
	r.Between("silence", 350, 200, 800, "ms")
	r.Between("silence", 810, 200, 800, "ms")
	r.Between("silence", 199, 200, 800, "ms")
	r.Note("pictures", "%d", 7)
	r.Median("cycle", "ms", "", []float64{3, 1, 2}, 2, true)
	r.Median("cycle", "ms", "", []float64{3, 1, 2}, 1, true)
	r.Median("rate", "tok/s", "", []float64{3, 1, 2}, 3, false)
	r.Median("rate", "tok/s", "", []float64{3, 1, 2}, 0, false)
	r.Median("nothing", "ms", "", nil, 1, true)
	var met []bool
	for _, f := range r.Figures {
		met = append(met, f.Met)
	}
	require.Equal(t, []bool{true, false, true, false, true, false, true, false, false, true, true, false, false, true}, met)
	require.Equal(t, Figure{
		Name: "rate", Text: "2.00 tok/s", Value: 2, Unit: "tok/s", Spread: "1.00 to 3.00", Goal: "at least 3.00",
	}, r.Figures[12])
	require.Equal(t, []string{"123", "12.3", "1.23"}, []string{Digits(123.4), Digits(12.34), Digits(1.234)})
}

// TestMeasure: an error ends a scenario; what its parts opened is closed, the last one first.
func TestMeasure(t *testing.T) {
	var order []string
	figures, err := Measure(t.Context(), func(r *Run) {
		r.Cleanup(func() { order = append(order, "scenario") })
		r.Part(func() {
			r.Cleanup(func() { order = append(order, "first") })
			r.Cleanup(func() { order = append(order, "second") })
			r.Note("one", "1")
		})
		r.Wait(0)
		r.Fail(errors.New("not yet"))
		r.Check(nil)
		r.Part(func() {
			r.Cleanup(func() { order = append(order, "third") })
			r.Check(errors.New("over"))
		})
		r.Note("two", "2")
	})
	require.EqualError(t, err, "not yet\nover")
	require.Len(t, figures, 1)
	require.Equal(t, []string{"second", "first", "third", "scenario"}, order)

	ctx, cancel := context.WithCancel(t.Context())
	_, err = Measure(ctx, func(r *Run) { cancel(); r.Wait(time.Hour) })
	require.ErrorIs(t, err, context.Canceled)
}

func TestReport(t *testing.T) {
	var r Run
	r.AtMost("gap", 90, 100, "ms")
	r.AtMost("jitter", 6.254, 5, "ms")
	r.Between("silence", 350, 200, 800, "ms")
	r.Note("a|b", "7")
	at := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name string
		Report
		want string
	}{
		{"text", Report{}, "Touchline at commit 0123456789ab, measured 2026-05-01. Machine: 2 cores of a processor\n" +
			"\nRelay (touchline-bench run --only relay)\n" +
			"  gap      90 ms    <= 100 ms      ok\n" +
			"  jitter   6.25 ms  <= 5 ms        MISSED\n" +
			"  silence  350 ms   200 to 800 ms  ok\n" +
			"  a|b      7                       \n"},
		{"markdown", Report{Markdown: true}, "Measured 2026-05-01 at commit 0123456789ab. Machine: 2 cores of a processor.\n" +
			"\n### Relay\n\n`touchline-bench run --only relay`\n\n| figure | measured |\n|---|---|\n" +
			"| gap | 90 ms |\n| jitter | 6.25 ms |\n| silence | 350 ms |\n| a\\|b | 7 |\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			tt.Out = &out
			tt.Begin(at, "0123456789ab", "2 cores of a processor")
			tt.Table("Relay", "touchline-bench run --only relay", r.Figures, nil)
			require.Equal(t, tt.want, out.String())
			require.EqualError(t, tt.End(), "touchline-bench run --only relay: jitter is 6.25 ms; the goal is <= 5 ms")
			tt.Table("Cost", "touchline-bench run --only cost", nil, errors.New("no such program"))
			require.ErrorContains(t, tt.End(), "touchline-bench run --only cost: no such program")
			require.Contains(t, out.String(), "no such program")
		})
	}
	var out bytes.Buffer
	one := Report{Out: &out}
	one.Table("Relay", "", r.Figures[:1], nil)
	require.NoError(t, one.End())
}

func TestReportAsJSON(t *testing.T) {
	var r Run
	r.AtMost("gap", 90, 100, "ms")
	var out bytes.Buffer
	report := Report{Out: &out, JSON: true}
	report.Begin(time.Now(), "", "")
	report.Table("Relay", "relay", r.Figures, errors.New("the end"))
	require.ErrorContains(t, report.End(), "relay: the end")
	require.JSONEq(t, `[{"title": "Relay", "command": "relay", "error": "the end", "figures": [
		{"name": "gap", "text": "90 ms", "value": 90, "unit": "ms", "goal": "<= 100 ms", "met": true}]}]`, out.String())
}

func TestReportNamesItsOrigin(t *testing.T) {
	require.Equal(t, "unknown", Commit(nil))
	require.Equal(t, "unknown", Commit(&debug.BuildInfo{}))
	info := &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "false"}}}
	require.Equal(t, "0123456789ab", Commit(info))
	info.Settings[1].Value = "true"
	require.Equal(t, "0123456789ab with changes", Commit(info))
	require.Equal(t, "2 cores of Some CPU", describe("processor : 0\nmodel name : Some CPU\n\nprocessor : 1\nmodel name : Some CPU\n"))
}
