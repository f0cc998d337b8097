package mqtt_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/mqtt"
	"touchline/internal/outbox"
)

// TestManyTopicsWithoutABroker: the time to queue a value does not grow with the number of queued ones, under the lock that rooms need.
func TestManyTopicsWithoutABroker(t *testing.T) {
	t.Parallel()
	s, err := mqtt.New(mqtt.Options{Config: settings(), Outbox: outbox.New(nil)})
	require.NoError(t, err)
	began := time.Now()
	for i := range 200_000 {
		s.Set(fmt.Sprintf("touchline/match/bot/rule/%d", i), []byte("on"))
		s.Set(fmt.Sprintf("touchline/match/bot/rule/%d", i), nil)
		require.Less(t, time.Since(began), time.Minute, "after %d topics", i) // a hundred times of what it takes
	}
}
