package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRowsHoldWithinAFactor(t *testing.T) {
	for _, tt := range []struct {
		row                   row
		once, twice, fourfold bool
	}{
		{atMost("gap", 90, 100, "ms"), true, true, true},
		{atMost("gap", 199, 100, "ms"), false, true, true},
		{atMost("gap", 201, 100, "ms"), false, false, true},
		{atMost("frames lost", 0, 0, ""), true, true, true},
		{atMost("frames lost", 1, 0, ""), false, false, false},
		{between("silence", 350, 200, 800, "ms"), true, true, true},
		{between("silence", 1000, 200, 800, "ms"), false, true, true},
		{between("silence", -200, 200, 800, "ms"), false, false, true},
		{note("pictures", "7"), true, true, true},
	} {
		require.Equal(t, tt.once, tt.row.Holds, "%+v", tt.row)
		require.Equal(t, tt.once, tt.row.holdsWithin(1), "%+v", tt.row)
		require.Equal(t, tt.twice, tt.row.holdsWithin(2), "%+v", tt.row)
		require.Equal(t, tt.fourfold, tt.row.holdsWithin(4), "%+v", tt.row)
	}
}

func TestPrintMarksWhatDoesNotHold(t *testing.T) {
	var b bytes.Buffer
	bad := printTable(&b, "Title", []row{
		atMost("gap", 90, 100, "ms"), atMost("jitter", 6.254, 5, "ms"), note("pictures", "7"),
	})
	require.Equal(t, 1, bad)
	require.Equal(t, "\nTitle\n"+
		"  gap       90 ms    <= 100 ms  ok\n"+
		"  jitter    6.25 ms  <= 5 ms    NOT MET\n"+
		"  pictures  7                   \n", b.String())
}
