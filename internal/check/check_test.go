package check_test

import (
	"errors"
	"strings"
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
	s.Pair("key", "k", "secret", "s", "KEY and SECRET")
	s.Pair("key", "", "secret", "", "KEY and SECRET")
	require.NoError(t, s.Err())

	s.That(check.Within(0, time.Second, time.Minute), "max_delay", "between 1s and 1m", time.Duration(0))
	s.Add(errors.New("url: must not contain a password"))
	s.Pair("key", "", "secret", "s", "KEY and SECRET")
	s.Pair("key", "k", "secret", "", "KEY and SECRET")
	s.Part("livekit", errors.Join(errors.New("room: must be a name"), errors.New("name: must be short")))
	require.EqualError(t, s.Err(), "pacing.max_delay: must be between 1s and 1m, is 0s\npacing.url: must not contain a password\n"+
		"pacing.key: must be set when the other half of the pair is: KEY and SECRET go together\n"+
		"pacing.secret: must be set when the other half of the pair is: KEY and SECRET go together\n"+
		"pacing.livekit.room: must be a name\npacing.livekit.name: must be short")
}

func TestName(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"a", "a room", "käse", strings.Repeat("x", 128)} {
		require.True(t, check.Name(s), s)
	}
	for _, s := range []string{"", " a", "a\n", "a\x00b", "\xff", strings.Repeat("x", 129)} {
		require.False(t, check.Name(s), "%q", s)
	}
}
