package main

import (
	"bytes"
	"errors"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRows(t *testing.T) {
	for _, tt := range []struct {
		row row
		met bool
	}{
		{atMost("gap", 90, 100, "ms"), true},
		{atMost("gap", 101, 100, "ms"), false},
		{atMost("frames lost", 0, 0, ""), true},
		{atMost("frames lost", 1, 0, ""), false},
		{between("silence", 350, 200, 800, "ms"), true},
		{between("silence", 810, 200, 800, "ms"), false},
		{between("silence", 199, 200, 800, "ms"), false},
		{note("pictures", "7"), true},
	} {
		require.Equal(t, tt.met, tt.row.Met, "%+v", tt.row)
	}
}

func TestReport(t *testing.T) {
	rows := []row{
		atMost("gap", 90, 100, "ms"), atMost("jitter", 6.254, 5, "ms"), between("silence", 350, 200, 800, "ms"), note("a|b", "7"),
	}
	at := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name     string
		markdown bool
		want     string
	}{
		{"text", false, "Touchline at commit 0123456789ab, measured 2026-05-01. Machine: 2 cores of a processor\n" +
			"\nRelay (touchline-bench run --only relay)\n" +
			"  gap      90 ms    <= 100 ms      ok\n" +
			"  jitter   6.25 ms  <= 5 ms        MISSED\n" +
			"  silence  350 ms   200 to 800 ms  ok\n" +
			"  a|b      7                       \n"},
		{"markdown", true, "Measured 2026-05-01 at commit 0123456789ab. Machine: 2 cores of a processor.\n" +
			"\n### Relay\n\n`touchline-bench run --only relay`\n\n| figure | measured |\n|---|---|\n" +
			"| gap | 90 ms |\n| jitter | 6.25 ms |\n| silence | 350 ms |\n| a\\|b | 7 |\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			r := report{out: &out, markdown: tt.markdown}
			r.begin(at, "0123456789ab", "2 cores of a processor")
			r.table("Relay", "touchline-bench run --only relay", rows, nil)
			require.Equal(t, tt.want, out.String())
			require.EqualError(t, r.err(), "touchline-bench run --only relay: jitter is 6.25 ms; the goal is <= 5 ms")
			r.table("Cost", "touchline-bench run --only cost", nil, errors.New("no such program"))
			require.ErrorContains(t, r.err(), "touchline-bench run --only cost: no such program")
			require.Contains(t, out.String(), "no such program")
		})
	}
	var out bytes.Buffer
	r := report{out: &out}
	r.table("Relay", "", rows[:1], nil)
	require.NoError(t, r.err())
}

func TestReportNamesItsOrigin(t *testing.T) {
	require.Equal(t, "unknown", commit(nil))
	require.Equal(t, "unknown", commit(&debug.BuildInfo{}))
	info := &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "false"}}}
	require.Equal(t, "0123456789ab", commit(info))
	info.Settings[1].Value = "true"
	require.Equal(t, "0123456789ab with changes", commit(info))
	require.Equal(t, "2 cores of Some CPU", describeProcessor("processor : 0\nmodel name : Some CPU\n\nprocessor : 1\nmodel name : Some CPU\n"))
}
