package backoff_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/internal/backoff"
	"touchline/internal/clocktest"
)

func TestNext(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	b := backoff.Backoff{First: 100 * time.Millisecond, Max: 15 * time.Second, EarlyMax: 2 * time.Second, Early: time.Minute}
	longest := func(at time.Time) time.Duration { return 2 * b.Next(at, 0) }

	for _, want := range []int64{100, 200, 400, 800, 1600, 2000, 2000} {
		require.Equal(t, want, longest(now).Milliseconds())
	}
	for _, want := range []int64{4000, 8000, 15000, 15000} {
		require.Equal(t, want, longest(now.Add(time.Hour)).Milliseconds())
	}
	b.Reset()
	require.Equal(t, 100*time.Millisecond, longest(now.Add(2*time.Hour)))
}

func TestLongFirstWins(t *testing.T) {
	t.Parallel()
	b := backoff.Backoff{First: 5 * time.Second, Max: 15 * time.Second, EarlyMax: 2 * time.Second, Early: time.Minute}
	require.Equal(t, 2500*time.Millisecond, b.Next(time.Unix(0, 0), 0))
}

func TestServer(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	b := backoff.Server(time.Second, 15*time.Second)
	lost := func(stood, at time.Duration) time.Duration { return 2 * b.Lost(stood, now.Add(at), 0) }
	require.Equal(t, time.Second, lost(0, 0))
	require.Equal(t, 2*time.Second, lost(10*time.Second, time.Minute), "the connection stood too briefly")
	require.Equal(t, 2*time.Second, lost(0, 3*time.Minute))
	require.Equal(t, 4*time.Second, lost(0, 3*time.Minute+1))
	require.Equal(t, time.Second, lost(11*time.Second, 4*time.Minute), "a new outage")
}

func TestJitter(t *testing.T) {
	t.Parallel()
	for _, random := range []float64{0, 0.3, 0.999999} {
		d := backoff.Jitter(time.Second, random)
		require.GreaterOrEqual(t, d, 500*time.Millisecond)
		require.LessOrEqual(t, d, time.Second)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "0": 0, "-3": 0, "soon": 0, "99999999999": 0, "0.5": 500 * time.Millisecond, "inf": 0, "NaN": 0,
		now.Add(2 * time.Second).Format(http.TimeFormat): 2 * time.Second, now.Add(-time.Hour).Format(http.TimeFormat): 0,
	} {
		require.Equal(t, want, backoff.RetryAfter(http.Header{"Retry-After": {header}}, now), header)
	}
	for _, step := range clocktest.Steps {
		h := http.Header{"Retry-After": {now.Add(time.Minute).Format(http.TimeFormat)}, "Date": {now.Format(http.TimeFormat)}}
		require.Equal(t, time.Minute, backoff.RetryAfter(h, now.Add(step)), step)
	}
	both := http.Header{"Retry-After": {"2"}, "Retry-After-Ms": {"1300"}}
	require.Equal(t, 1300*time.Millisecond, backoff.RetryAfter(both, now))
}

// FuzzRetryAfter reads the wait that a server asks for.
func FuzzRetryAfter(f *testing.F) {
	f.Add("2.5", "")
	f.Add("Wed, 21 Oct 2026 07:28:00 GMT", "NaN")
	f.Add("-1", "1e400")
	f.Fuzz(func(t *testing.T, after, ms string) {
		h := http.Header{"Retry-After": {after}, "Retry-After-Ms": {ms}}
		require.GreaterOrEqual(t, backoff.RetryAfter(h, time.Unix(0, 0)), time.Duration(0))
	})
}
