package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/paho"
	mochi "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/agent/alert"
	"touchline/agent/bot"
	"touchline/configs"
	"touchline/internal/e2e/stage"
	"touchline/internal/quantile"
)

const (
	// alertEngine is the engine's own time for a look with rules.
	alertEngine = 300 * time.Millisecond
	// alertRules take turns: each holds in one of as many looks, so that its alert is cleared in between.
	alertRules = 8
)

// arrived is an alert at the subscriber.
type arrived struct {
	alert agent.Alert
	at    time.Time
}

// measureMQTT runs a bot with alert rules and a state file, and a subscriber of its MQTT broker, until a number of alerts has
// arrived.
func measureMQTT(ctx context.Context, alerts int, log zerolog.Logger) ([]row, error) {
	broker := mochi.New(&mochi.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	listener := listeners.NewTCP(listeners.Config{ID: "tcp", Address: "127.0.0.1:0"})
	if err := errors.Join(broker.AddHook(new(auth.AllowHook), nil), broker.AddListener(listener), broker.Serve()); err != nil {
		return nil, fmt.Errorf("start the MQTT broker: %w", err)
	}
	defer func() { _ = broker.Close() }()
	seen, leave, err := subscribe(ctx, listener.Address())
	if err != nil {
		return nil, err
	}
	defer leave()
	folder, err := os.MkdirTemp("", "touchline-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the state: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }()

	engine := stage.NewEngine(1, alertEngine, alertEngine)
	engine.Rules = func(n int) string { return fmt.Sprintf(`{"fired":[{"rule":%d,"reason":"measured"}]}`, n%alertRules+1) }
	cfg := configs.Default()
	cfg.Agent.AutoStart = false
	for i := range alertRules {
		cfg.Agent.Alert.Rules = append(cfg.Agent.Alert.Rules, alert.Rule{
			When: "rule " + strconv.Itoa(i+1), Level: agent.LevelCritical, Votes: "1 of 1", Cadence: "200ms", Pause: "0s",
		})
	}
	cfg.Agent.MQTT.URL = "mqtt://" + listener.Address()
	cfg.Agent.State.Path = folder
	err = bot.WithOutputs(ctx, cfg.Outputs(), log, func(out *bot.Outputs) error {
		s, err := stage.New(ctx, stage.Options{Model: engine, Config: &cfg, Seed: 9, Outputs: out, Log: log})
		if err != nil {
			return err
		}
		defer s.Close()
		_, err = stage.Until(ctx, time.Duration(alerts)*4*time.Second, "the alerts", func() bool { return len(seen()) >= alerts+unsettled })
		return errors.Join(err, s.Errors())
	})
	if err != nil {
		return nil, err
	}
	var total, own []time.Duration
	for _, a := range seen()[unsettled:] {
		look := a.alert.At.Add(-seconds(a.alert.LatencySec)) // when its frame arrived, which is before it was decoded
		total = append(total, a.at.Sub(look)-alertEngine)
		own = append(own, a.at.Sub(a.alert.At))
	}
	return []row{
		note("alerts measured", strconv.Itoa(len(total))),
		note("frame's arrival to MQTT subscriber, less the engine's time, p50", fmt.Sprintf("%.1f ms", ms(quantile.Of(total, 0.5)))),
		atMost("frame's arrival to MQTT subscriber, less the engine's time, p95", ms(quantile.Of(total, 0.95)), 60, "ms"),
		note("of it, decision to subscriber, p95", fmt.Sprintf("%.1f ms", ms(quantile.Of(own, 0.95)))),
	}, nil
}

// subscribe returns the new alerts at a subscriber.
func subscribe(ctx context.Context, address string) (seen func() []arrived, leave func(), err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, nil, fmt.Errorf("connect the MQTT subscriber: %w", err)
	}
	var mu sync.Mutex
	var got []arrived
	client := paho.NewClient(paho.ClientConfig{Conn: conn, OnPublishReceived: []func(paho.PublishReceived) (bool, error){
		func(p paho.PublishReceived) (bool, error) {
			a := arrived{at: time.Now()}
			if json.Unmarshal(p.Packet.Payload, &a.alert) == nil && a.alert.Phase == agent.AlertNew {
				mu.Lock()
				got = append(got, a)
				mu.Unlock()
			}
			return true, nil
		},
	}})
	if _, err := client.Connect(ctx, &paho.Connect{ClientID: "subscriber", CleanStart: true, KeepAlive: 30}); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("connect the MQTT subscriber: %w", err), conn.Close())
	}
	_, err = client.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: "touchline/+/+/alert/+", QoS: 1}}})
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("subscribe to alerts: %w", err), conn.Close())
	}
	return func() []arrived {
		mu.Lock()
		defer mu.Unlock()
		return append([]arrived(nil), got...)
	}, func() { _ = client.Disconnect(&paho.Disconnect{}) }, nil
}
