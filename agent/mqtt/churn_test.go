package mqtt_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"touchline/agent/mqtt"
	"touchline/internal/outbox"
)

// TestManyTopicsWithoutABroker: the time to queue a value does not grow with the number of queued ones, under the lock that rooms need,
// and their number is bounded.
func TestManyTopicsWithoutABroker(t *testing.T) {
	t.Parallel()
	s, err := mqtt.New(mqtt.Options{Config: settings(), Outbox: outbox.New(nil)})
	require.NoError(t, err)
	began := time.Now()
	for i := range 1_000_000 { // ten times as many as there may be
		topic := "touchline/match/bot/rule/" + strconv.Itoa(i)
		s.Set(topic, []byte("on"))
		if i < 200_000 {
			s.Set(topic, nil)
		}
		require.Less(t, time.Since(began), 2*time.Minute, "after %d topics", i) // if it grew, hours
	}
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(s.Collector()))
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "touchline_mqtt_dropped_total" {
			require.InDelta(t, 2*(1+100_000)+800_000, f.GetMetric()[0].GetCounter().GetValue(), 0, "with the process's status, 100 000 topics have a value")
			return
		}
	}
	require.Fail(t, "no metric")
}
