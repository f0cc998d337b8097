//go:build integration

package check_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// hearingGolden has the fixtures of speech recognition.
const hearingGolden = "../../models/testdata/qwen3-asr"

func TestHearingPasses(t *testing.T) {
	r := run(t, hearingGolden)
	var table bytes.Buffer
	require.NoError(t, r.Write(&table))
	require.NoError(t, r.Err(), table.String())
	t.Log(table.String())
	require.Greater(t, len(r.Rows), 40)
}
