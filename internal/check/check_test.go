package check_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/internal/check"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	s := check.Settings{Prefix: "pacing."}
	s.That(true, "slew", "over 0", 1)
	s.Add(nil)
	require.NoError(t, s.Err())

	s.That(check.Within(0, time.Second, time.Minute), "max_delay", "between 1s and 1m", time.Duration(0))
	s.Add(errors.New("url: must not contain a password"))
	require.EqualError(t, s.Err(), "pacing.max_delay: must be between 1s and 1m, is 0s\nurl: must not contain a password")
}
