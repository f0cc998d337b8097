package check_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/internal/check"
)

func TestJSON(t *testing.T) {
	t.Parallel()
	type inner struct {
		On *bool `json:"on"`
		N  int   `json:"n"`
	}
	for text, want := range map[string]string{
		`[1]`:                `expected a JSON object, got array`,
		`{"i":{"on":"yes"}}`: `field "i.on": expected true or false, got string`,
		`{"i":{"n":1.5}}`:    `field "i.n": expected a whole number, got number 1.5`,
		`{"i":7}`:            `field "i": expected another type, got number`,
		`{`:                  `unexpected end of JSON input`,
	} {
		var v struct {
			I inner `json:"i"`
		}
		require.EqualError(t, check.JSON(json.Unmarshal([]byte(text), &v)), want)
	}
	var on *bool
	require.EqualError(t, check.JSON(json.Unmarshal([]byte(`"yes"`), &on)), "expected true or false, got string")
}
