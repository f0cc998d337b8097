package redact_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/internal/redact"
)

// TestSecret: neither fmt nor an encoder prints a secret, alone or in a struct; its absence shows.
func TestSecret(t *testing.T) {
	type settings struct {
		Key redact.Secret `json:"key"`
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		for _, v := range []any{redact.Secret("hunter2"), settings{"hunter2"}, &settings{"hunter2"}} {
			text := fmt.Sprintf(verb, v)
			require.NotContains(t, text, "hunter2", verb)
			require.NotContains(t, text, fmt.Sprintf("%x", "hunter2"), verb)
		}
	}
	require.Equal(t, "redacted", fmt.Sprint(redact.Secret("hunter2")))
	require.Empty(t, fmt.Sprint(redact.Secret("")))

	text, err := json.Marshal([]settings{{"hunter2"}, {}})
	require.NoError(t, err)
	require.JSONEq(t, `[{"key": "redacted"}, {"key": ""}]`, string(text))
}
