package limit_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/internal/limit"
)

func TestAllow(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	l := limit.New[string](0.5, 2)
	for range 2 {
		_, ok := l.Allow("a", now)
		require.True(t, ok)
	}
	wait, ok := l.Allow("a", now)
	require.False(t, ok)
	require.Equal(t, 2*time.Second, wait)
	_, ok = l.Allow("b", now)
	require.True(t, ok, "each key has a bucket of its own")
	_, ok = l.Allow("a", now.Add(2*time.Second))
	require.True(t, ok)
	_, ok = l.Allow("a", now.Add(-time.Hour))
	require.False(t, ok, "a clock that was set back adds nothing")
}

// TestRequestsAtOnce: requests at the same time come with times in any order, which adds nothing either.
func TestRequestsAtOnce(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	l := limit.New[string](1, 1)
	allowed := 0
	for i := range 1000 {
		at := now.Add(time.Duration(i) * 10 * time.Millisecond)
		if i%2 == 1 {
			at = at.Add(-500 * time.Millisecond)
		}
		if _, ok := l.Allow("a", at); ok {
			allowed++
		}
	}
	require.InDelta(t, 10, allowed, 1)
}

func TestNil(t *testing.T) {
	t.Parallel()
	_, ok := limit.New[int](-1, 5).Allow(1, time.Time{})
	require.True(t, ok)
}

func TestManyKeys(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	l := limit.New[int](0, 1)
	for key := range 10_000 {
		_, ok := l.Allow(key, now.Add(time.Duration(key)))
		require.True(t, ok, "a new key is never refused because of the others")
	}
	_, ok := l.Allow(9_999, now)
	require.False(t, ok, "the newest is kept")
}

func TestNetwork(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"192.0.2.7": "192.0.2.7", "::ffff:192.0.2.7": "192.0.2.7", "2001:db8:1:2:3::4": "2001:db8:1:2::", "fe80::1%eth0": "fe80::",
	} {
		require.Equal(t, netip.MustParseAddr(want), limit.Network(netip.MustParseAddr(in)), in)
	}
}
