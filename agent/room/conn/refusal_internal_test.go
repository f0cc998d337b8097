package conn

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// joinAt joins at an address and returns the results of the first attempts.
func joinAt(t *testing.T, url string, log zerolog.Logger) (outages int, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := New(Options{
		Log: log, URL: url, Token: func() (string, error) { return "token", nil },
		Callbacks: &scripted{fails: map[string]bool{}}, First: time.Millisecond, Most: time.Millisecond,
	})
	c.OnOutage = func(error) {
		if outages++; outages == 2 {
			cancel()
		}
	}
	err = c.Run(ctx)
	return outages, err
}

// TestServerDown: an address that has "401" in it is not the status of a refusal.
func TestServerDown(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"ws://127.0.0.1:7401", "ws://127.0.0.1:14010", "ws://livekit-401.invalid:7880"} {
		outages, err := joinAt(t, url, zerolog.Nop())
		require.NoError(t, err, "%s: the join is tried again", url)
		require.Equal(t, 2, outages, url)
	}
}

// TestRefusal: the statuses of a server that is there.
func TestRefusal(t *testing.T) {
	t.Parallel()
	for status, refused := range map[int]bool{
		http.StatusUnauthorized: true, http.StatusNotFound: false, http.StatusInternalServerError: false, http.StatusServiceUnavailable: false,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "invalid token: 401 unauthorized", status)
		}))
		outages, err := joinAt(t, strings.Replace(server.URL, "http", "ws", 1), zerolog.Nop())
		server.Close()
		if refused {
			require.ErrorIs(t, err, ErrRefused, status)
			continue
		}
		require.NoError(t, err, status)
		require.Equal(t, 2, outages, status)
	}
}

// TestLocalPortIsNoStatus: an error that names the local end of a connection that was reset.
func TestLocalPortIsNoStatus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c := New(Options{
			Log: zerolog.Nop(), Token: func() (string, error) { return "", nil },
			Callbacks: &scripted{fails: map[string]bool{}, cb: lksdk.NewRoomCallback()},
			Enter: func(context.Context, *Session, string) error {
				return joinError("ws://10.0.0.2:7880", errors.New("read tcp 10.0.0.7:44012->10.0.0.2:7880: connection reset by peer"))
			},
		})
		require.NoError(t, c.Run(ctx))
	})
}

// TestExpiredToken: after a join, a ready token that has expired ends the run when the server refuses it; another one is tried again.
func TestExpiredToken(t *testing.T) {
	t.Parallel()
	for _, expires := range []time.Duration{0, time.Minute, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			joins := 0
			c := New(Options{
				Log: zerolog.Nop(), Token: func() (string, error) { return "", nil },
				Callbacks: &scripted{fails: map[string]bool{"joined": true}, cb: lksdk.NewRoomCallback()},
				Enter: func(context.Context, *Session, string) error {
					if joins++; joins > 1 {
						return joinError("ws://10.0.0.2:7880", errors.New(unauthorized+"invalid token"))
					}
					return nil
				},
			})
			if expires > 0 {
				c.Expires = time.Now().Add(expires)
			}
			err := c.Run(ctx)
			if expires == time.Minute {
				require.ErrorIs(t, err, ErrRefused)
				require.ErrorContains(t, err, "expired at 2000-01-01T00:01:00Z")
				return
			}
			require.NoError(t, err)
			require.Greater(t, joins, 10)
		})
	}
}
