package limit_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"touchline/internal/limit"
)

func client(ctx context.Context, token, from string) context.Context {
	return limit.WithClient(ctx, limit.Client{Token: token, From: netip.MustParseAddr(from)})
}

// TestSeats: a token, a network, a room and all together have bounds of their own, of which ten times as many clients get no more.
func TestSeats(t *testing.T) {
	t.Parallel()
	tests := []struct {
		reason string
		of     func(ctx context.Context, i int) context.Context
		room   func(i int) string
		want   int64
	}{
		{"token", func(ctx context.Context, i int) context.Context {
			return client(ctx, "a link", fmt.Sprintf("192.0.2.%d", i))
		}, nil, 4},
		{"address", func(ctx context.Context, i int) context.Context {
			return client(ctx, fmt.Sprint(i), "192.0.2.1")
		}, nil, 6},
		{"address", func(ctx context.Context, i int) context.Context {
			return client(ctx, fmt.Sprint(i), fmt.Sprintf("2001:db8::%x", i+1))
		}, nil, 6},
		{"room", func(ctx context.Context, i int) context.Context {
			return client(ctx, fmt.Sprint(i), fmt.Sprintf("192.0.2.%d", i))
		}, func(int) string { return "final" }, 8},
		{"process", func(ctx context.Context, i int) context.Context {
			return client(ctx, fmt.Sprint(i), fmt.Sprintf("192.0.2.%d", i))
		}, func(i int) string { return fmt.Sprint(i) }, 20},
		{"process", func(ctx context.Context, _ int) context.Context { return ctx }, nil, 20},
	}
	for _, tt := range tests {
		s := limit.NewSeats("readers", limit.Bounds{All: 20, Room: 8, Token: 4, Network: 6})
		var seats []*limit.Seat
		for i := range 200 {
			room := ""
			if tt.room != nil {
				room = tt.room(i)
			}
			_, seat, err := s.Take(tt.of(t.Context(), i), room, 1)
			if err == nil {
				seats = append(seats, seat)
				continue
			}
			require.ErrorContains(t, err, fmt.Sprintf("%d readers", tt.want))
		}
		require.Len(t, seats, int(tt.want), tt.reason)
		require.Equal(t, tt.want, s.Taken())
		require.InDelta(t, 200-tt.want, refusals(t, s, tt.reason), 0)
		for _, seat := range seats {
			seat.Leave()
			seat.Leave()
		}
		require.Zero(t, s.Taken())
		_, seat, err := s.Take(tt.of(t.Context(), 0), "", 1)
		require.NoError(t, err)
		seat.Leave()
	}
}

// refusals returns the number of clients that a reason has refused.
func refusals(t *testing.T, c prometheus.Collector, reason string) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "reason" && l.GetValue() == reason {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	return -1
}

// TestOperatorFindsASeat: the operator gets the oldest seat of another client, and is refused only by its own ones.
func TestOperatorFindsASeat(t *testing.T) {
	t.Parallel()
	s := limit.NewSeats("readers", limit.Bounds{All: 3, Room: 2})
	operator := limit.WithClient(t.Context(), limit.Client{Operator: true, From: netip.MustParseAddr("192.0.2.1")})
	first, _, err := s.Take(client(t.Context(), "a", "192.0.2.1"), "final", 1)
	require.NoError(t, err)
	second, left, err := s.Take(client(t.Context(), "b", "192.0.2.2"), "final", 1)
	require.NoError(t, err)
	elsewhere, _, err := s.Take(client(t.Context(), "c", "192.0.2.2"), "yard", 1)
	require.NoError(t, err)

	_, own, err := s.Take(operator, "final", 1)
	require.NoError(t, err)
	require.ErrorContains(t, context.Cause(first), "the operator needed this place")
	require.NoError(t, second.Err())
	require.NoError(t, elsewhere.Err())
	require.InDelta(t, 1, refusals(t, s, "pushed_out"), 0)
	_, _, err = s.Take(operator, "final", 1)
	require.NoError(t, err)
	require.Error(t, context.Cause(second))
	require.Error(t, left.Grow(1), "it has none any more")
	_, _, err = s.Take(operator, "final", 1)
	require.ErrorContains(t, err, "the limit of 2 readers", "its own ones")
	require.NoError(t, elsewhere.Err())
	own.Leave()
	_, _, err = s.Take(operator, "final", 1)
	require.NoError(t, err)
}

// TestFullError: its texts say which limit it is, in words.
func TestFullError(t *testing.T) {
	t.Parallel()
	text := func(b limit.Bounds) string {
		_, _, err := limit.NewSeats("live_sessions", b).Take(client(t.Context(), "a", "192.0.2.1"), "", 9)
		require.Error(t, err)
		return err.Error()
	}
	require.Equal(t, "this link has reached its limit of 8 live sessions", text(limit.Bounds{Token: 8}))
	require.Equal(t, "this address has reached its limit of 8 live sessions (behind a proxy: agent.console.trusted_proxies)",
		text(limit.Bounds{Network: 8}))
	require.Equal(t, "the limit of 8 live sessions is reached", text(limit.Bounds{All: 8}))
}

// TestGrowingSeats: a seat of several places, such as bytes, grows up to the bounds.
func TestGrowingSeats(t *testing.T) {
	t.Parallel()
	s := limit.NewSeats("bytes", limit.Shares(100, 10))
	_, seat, err := s.Take(client(t.Context(), "a", "192.0.2.1"), "", 10)
	require.NoError(t, err)
	require.NoError(t, seat.Grow(15))
	require.Error(t, seat.Grow(1), "a quarter")
	_, _, err = s.Take(client(t.Context(), "b", "192.0.2.1"), "", 26)
	require.Error(t, err)
	_, other, err := s.Take(client(t.Context(), "b", "192.0.2.1"), "", 25)
	require.NoError(t, err)
	_, _, err = s.Take(client(t.Context(), "c", "192.0.2.1"), "", 1)
	require.ErrorContains(t, err, "trusted_proxies", "half of them")
	seat.Leave()
	other.Leave()
	require.Zero(t, s.Taken())
	require.Equal(t, limit.Bounds{All: 2, Token: 2, Network: 2}, limit.Shares(2, 8), "few places are not divided")
	require.Equal(t, limit.Bounds{All: 64, Token: 16, Network: 32}, limit.Shares(64, 8))
}

// TestSeatsAtOnce: many clients take and leave seats, and no place gets lost.
func TestSeatsAtOnce(t *testing.T) {
	t.Parallel()
	s := limit.NewSeats("readers", limit.Bounds{All: 10, Token: 5})
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			ctx := limit.WithClient(t.Context(), limit.Client{Token: fmt.Sprint(i % 4), Operator: i%8 == 0})
			for range 200 {
				if _, seat, err := s.Take(ctx, "", 1); err == nil {
					seat.Leave()
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, s.Taken())
}

// TestRates: a token has a rate, a network four times as much, and the operator none.
func TestRates(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	r := limit.NewRates("changes", 1, 10)
	allowed := func(c limit.Client) (n int) {
		for range 400 {
			if _, ok := r.Allow(c, now); ok {
				n++
			}
		}
		return n
	}
	from := netip.MustParseAddr("2001:db8::1")
	require.Equal(t, 10, allowed(limit.Client{Token: "a", From: from}))
	for _, token := range []string{"b", "c", "d"} {
		require.Equal(t, 10, allowed(limit.Client{Token: token, From: from}))
	}
	require.Zero(t, allowed(limit.Client{Token: "e", From: netip.MustParseAddr("2001:db8::2")}))
	require.Equal(t, 400, allowed(limit.Client{From: from, Operator: true}))
	require.InDelta(t, 5*390, refusals(t, r, "token"), 0)
	_, ok := (*limit.Rates)(nil).Allow(limit.Client{}, now)
	require.True(t, ok)
}
