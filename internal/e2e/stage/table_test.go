package stage_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/internal/e2e/stage"
)

func TestRowsHoldWithinAFactor(t *testing.T) {
	for _, tt := range []struct {
		row                   stage.Row
		once, twice, fourfold bool
	}{
		{stage.Check("gap", 90, 100, "ms"), true, true, true},
		{stage.Check("gap", 199, 100, "ms"), false, true, true},
		{stage.Check("gap", 201, 100, "ms"), false, false, true},
		{stage.Check("frames lost", 0, 0, ""), true, true, true},
		{stage.Check("frames lost", 1, 0, ""), false, false, false},
		{stage.CheckRange("silence", 350, 200, 800, "ms"), true, true, true},
		{stage.CheckRange("silence", 1000, 200, 800, "ms"), false, true, true},
		{stage.CheckRange("silence", -200, 200, 800, "ms"), false, false, true},
		{stage.Note("pictures", "7"), true, true, true},
	} {
		require.Equal(t, tt.once, tt.row.Holds, "%+v", tt.row)
		require.Equal(t, tt.once, tt.row.HoldsWithin(1), "%+v", tt.row)
		require.Equal(t, tt.twice, tt.row.HoldsWithin(2), "%+v", tt.row)
		require.Equal(t, tt.fourfold, tt.row.HoldsWithin(4), "%+v", tt.row)
	}
}

func TestPrintMarksWhatDoesNotHold(t *testing.T) {
	var b bytes.Buffer
	bad := stage.Print(&b, "Title", []stage.Row{
		stage.Check("gap", 90, 100, "ms"), stage.Check("jitter", 6.254, 5, "ms"), stage.Note("pictures", "7"),
	})
	require.Equal(t, 1, bad)
	require.Equal(t, "\nTitle\n"+
		"  gap       90 ms    <= 100 ms  ok\n"+
		"  jitter    6.25 ms  <= 5 ms    NOT MET\n"+
		"  pictures  7                   \n", b.String())
}
