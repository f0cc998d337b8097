package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRows(t *testing.T) {
	for _, tt := range []struct {
		row   row
		holds bool
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
		require.Equal(t, tt.holds, tt.row.Holds, "%+v", tt.row)
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
