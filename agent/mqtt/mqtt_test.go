package mqtt_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	mochi "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/agent"
	"touchline/agent/alert"
	"touchline/agent/look"
	"touchline/agent/mqtt"
	"touchline/internal/outbox"
	"touchline/media"
	"touchline/media/window"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broker is an MQTT 5 broker in the process, without a network.
type broker struct {
	t      *testing.T
	server *mochi.Server

	mu    sync.Mutex
	away  bool
	conns []net.Conn
	got   []message
}

type message struct {
	topic, payload string
	retained       bool
}

func newBroker(t *testing.T, change func(*mochi.Capabilities)) *broker {
	t.Helper()
	caps := mochi.NewDefaultServerCapabilities()
	if change != nil {
		change(caps)
	}
	b := &broker{t: t, server: mochi.New(&mochi.Options{
		InlineClient: true, Capabilities: caps, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})}
	require.NoError(t, b.server.AddHook(new(auth.AllowHook), nil))
	require.NoError(t, b.server.Serve())
	require.NoError(t, b.server.Subscribe("#", 1, func(_ *mochi.Client, _ packets.Subscription, pk packets.Packet) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.got = append(b.got, message{pk.TopicName, string(pk.Payload), pk.FixedHeader.Retain})
	}))
	return b
}

func (b *broker) close() {
	b.leave()
	require.NoError(b.t, b.server.Close())
}

// dial connects a client.
func (b *broker) dial(context.Context, string) (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away {
		return nil, errors.New("connection refused")
	}
	client, server := net.Pipe()
	b.conns = append(b.conns, server)
	go func() { _ = b.server.EstablishConnection("pipe", server) }()
	return client, nil
}

// leave ends all connections and takes no more until back.
func (b *broker) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = true
	for _, c := range b.conns {
		_ = c.Close()
	}
	b.conns = nil
}

func (b *broker) back() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = false
}

// of returns the payloads of the messages to topics with a part.
func (b *broker) of(part string) (out []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.got {
		if strings.Contains(m.topic, part) {
			out = append(out, m.payload)
		}
	}
	return out
}

// retained returns what the broker retains.
func (b *broker) retained() map[string]string {
	out := map[string]string{}
	for topic, pk := range b.server.Topics.Retained.GetAll() {
		if !strings.HasPrefix(topic, "$SYS") {
			out[topic] = string(pk.Payload)
		}
	}
	return out
}

// once returns the ids of alerts in the order of their first delivery: they come at least once each.
func once(t *testing.T, payloads []string) (out []string) {
	t.Helper()
	for _, text := range payloads {
		var a alert.Alert
		require.NoError(t, json.Unmarshal([]byte(text), &a))
		if !slices.Contains(out, a.ID) {
			out = append(out, a.ID)
		}
	}
	return out
}

func settings() mqtt.Config {
	cfg := mqtt.DefaultConfig()
	cfg.URL = "mqtt://broker.test"
	return cfg
}

// start runs a Sender until stop.
func start(t *testing.T, opts mqtt.Options) (s *mqtt.Sender, stop func()) {
	t.Helper()
	if opts.Outbox == nil {
		opts.Outbox = outbox.New(nil)
	}
	opts.Version = "v1.2.3"
	opts.JPEG = func(f media.VideoFrame) ([]byte, error) {
		return fmt.Appendf(nil, "JPEG of %dx%d", f.Width, f.Height), nil
	}
	s, err := mqtt.New(opts)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return s, func() {
		cancel()
		require.NoError(t, <-done)
	}
}

func alertOf(rule string, n int, phase string) alert.Alert {
	return alert.Alert{
		Type: "alert", ID: fmt.Sprintf("%s-%d", rule, n), Phase: phase, At: time.Now(), Rule: rule, Name: "left door", Level: alert.LevelWarning,
		Reason: "A man opens the left door.",
	}
}

// send delivers a phase as the bot does.
func send(t *testing.T, box *outbox.Outbox, o *mqtt.Output, a alert.Alert) {
	t.Helper()
	var frame *window.Frame
	if a.Phase == alert.PhaseNew {
		frame = &window.Frame{ID: 1, VideoFrame: media.VideoFrame{Width: 448, Height: 252}}
	}
	box.Put(o.Queue(a, frame)...)
	o.Alert(a, frame)
}

func rules(ids ...string) (out []alert.RuleStatus) {
	for _, id := range ids {
		out = append(out, alert.RuleStatus{ID: id, RuleText: alert.RuleText{When: "the door " + id + " opens"}})
	}
	return out
}

// TestTopics: what a subscriber gets of an alert, and what the broker retains of a room.
func TestTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		defer b.close()
		box := outbox.New(nil)
		cfg := settings()
		cfg.Discovery = ""
		s, stop := start(t, mqtt.Options{Config: cfg, Dial: b.dial, Outbox: box})
		o := s.Output("match #1", "bot")
		o.Rules(rules("r1", "r2"))
		o.State(agent.Status{State: agent.StateListening, Activity: agent.ActivityWatching})
		o.Record(look.Record{Cycle: 3, Text: "Blue plays it back.", Outcome: look.OutcomeSpoken})
		for _, phase := range []string{alert.PhaseNew, alert.PhaseShown, alert.PhaseAcked} {
			send(t, box, o, alertOf("r1", 1, phase))
		}
		synctest.Wait()
		kept := b.retained()
		base := ""
		for topic := range kept {
			if at := strings.Index(topic, "/rule/r1"); at > 0 {
				base = topic[:at]
			}
		}
		require.Regexp(t, `^touchline/match__1-[0-9a-f]{8}/bot$`, base)
		require.Equal(t, []string{"ON", "OFF", "online"}, []string{kept[base+"/rule/r1"], kept[base+"/rule/r2"], kept[base+"/status"]})
		require.Equal(t, "JPEG of 448x252", kept[base+"/frame/r1"])
		require.JSONEq(t, `{"state": "listening", "chip": "watching", "type": ""}`, onlyOf(t, kept[base+"/state"], "state", "chip", "type"))
		require.JSONEq(t, `{"text": "Blue plays it back.", "cycle": 3}`, onlyOf(t, kept[base+"/comment"], "text", "cycle"))
		require.Equal(t, "online", kept["touchline/status/"+processOf(t, kept)])
		alerts := b.of("/alert/r1")
		require.Len(t, alerts, 1, "shown is not sent by default, acked never")
		require.JSONEq(t, `{"event_type": "new", "phase": "new", "id": "r1-1", "room": "match #1", "identity": "bot"}`,
			onlyOf(t, alerts[0], "event_type", "phase", "id", "room", "identity"))
		require.NotContains(t, kept, base+"/alert/r1")
		b.mu.Lock()
		var order []string
		for _, m := range b.got {
			if strings.HasSuffix(m.topic, "/frame/r1") || strings.HasSuffix(m.topic, "/alert/r1") {
				order = append(order, m.topic[len(base):])
			}
		}
		b.mu.Unlock()
		require.Equal(t, []string{"/frame/r1", "/alert/r1"}, order, "the frame comes before its alert")

		send(t, box, o, alertOf("r1", 1, alert.PhaseCleared))
		synctest.Wait()
		require.Len(t, b.of("/alert/r1"), 2)
		require.Equal(t, "OFF", b.retained()[base+"/rule/r1"])
		o.Rules(rules("r2"))
		synctest.Wait()
		require.NotContains(t, b.retained(), base+"/rule/r1")
		require.NotContains(t, b.retained(), base+"/frame/r1")

		o.Close()
		stop()
		time.Sleep(time.Second)
		kept = b.retained()
		require.Equal(t, "offline", kept[base+"/status"])
		require.Equal(t, "offline", kept["touchline/status/"+processOf(t, kept)])
	})
}

func processOf(t *testing.T, kept map[string]string) string {
	t.Helper()
	for topic := range kept {
		if id, ok := strings.CutPrefix(topic, "touchline/status/"); ok {
			return id
		}
	}
	t.Fatal("no status of the process")
	return ""
}

// onlyOf returns an object with some of its fields.
func onlyOf(t *testing.T, text string, fields ...string) string {
	t.Helper()
	var all map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &all), text)
	some := map[string]any{}
	for _, f := range fields {
		some[f] = all[f]
		if all[f] == nil {
			some[f] = ""
		}
	}
	out, err := json.Marshal(some)
	require.NoError(t, err)
	return string(out)
}

// TestBrokerAway: alerts of a minute without a broker arrive after it, in order; of more than 1000 the
// oldest are dropped and counted. What is retained is sent again, also to a broker that has forgotten it.
func TestBrokerAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		box := outbox.New(nil)
		var log bytes.Buffer
		var present atomic.Pointer[broker]
		present.Store(b)
		s, stop := start(t, mqtt.Options{
			Config: settings(), Outbox: box, Log: zerolog.New(zerolog.SyncWriter(&log)).Level(zerolog.InfoLevel),
			Dial: func(ctx context.Context, host string) (net.Conn, error) { return present.Load().dial(ctx, host) },
		})
		o := s.Output("match", "bot")
		o.Rules(rules("r1"))
		send(t, box, o, alertOf("r1", 0, alert.PhaseNew))
		synctest.Wait()
		b.leave()
		for i := range 60 {
			time.Sleep(time.Second)
			send(t, box, o, alertOf("r1", i+1, alert.PhaseNew))
		}
		require.Contains(t, s.Problem(), "connection refused")
		require.Equal(t, 60, box.Waiting())
		b.back()
		time.Sleep(20 * time.Second)
		require.Zero(t, box.Waiting())
		require.Empty(t, s.Problem())
		seen := once(t, b.of("/alert/r1"))
		require.Len(t, seen, 61)
		for i, id := range seen {
			require.Equal(t, fmt.Sprintf("r1-%d", i), id)
		}

		// Another broker comes up in its place.
		b.close()
		other := newBroker(t, nil)
		defer other.close()
		for i := range outbox.Limit + 5 {
			send(t, box, o, alertOf("r1", i, alert.PhaseCleared))
		}
		require.EqualValues(t, 5, box.Dropped())
		present.Store(other)
		time.Sleep(time.Minute)
		require.Len(t, once(t, other.of("/alert/r1")), outbox.Limit)
		kept := other.retained()
		require.Equal(t, "OFF", kept["touchline/match/bot/rule/r1"])
		require.Contains(t, kept, "touchline/match/bot/frame/r1")
		require.Contains(t, kept, "homeassistant/binary_sensor/touchline_match_bot/r1_alert/config")
		stop()
		require.Equal(t, 2, strings.Count(log.String(), "broker not connected"), "one line per outage: %s", log.String())

		registry := prometheus.NewPedanticRegistry()
		require.NoError(t, registry.Register(s.Collector()))
		families, err := registry.Gather()
		require.NoError(t, err)
		require.Len(t, families, 4)
	})
}

// TestKill: when the process or its network is gone, the broker says so.
func TestKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		defer b.close()
		s, stop := start(t, mqtt.Options{Config: settings(), Dial: b.dial})
		s.Output("match", "bot").Rules(nil)
		synctest.Wait()
		status := "touchline/status/" + processOf(t, b.retained())
		require.Equal(t, "online", b.retained()[status])
		b.leave()
		synctest.Wait()
		require.Equal(t, "offline", b.retained()[status])
		b.back()
		time.Sleep(30 * time.Second)
		require.Equal(t, "online", b.retained()[status])
		stop()
	})
}

// TestLimits: a broker without retained messages, with at most QoS 0 or with small packets gets what it takes.
func TestLimits(t *testing.T) {
	tests := []struct {
		name   string
		change func(*mochi.Capabilities)
		frames bool
	}{
		{"no retained messages", func(c *mochi.Capabilities) { c.RetainAvailable = 0 }, true},
		{"QoS 0", func(c *mochi.Capabilities) { c.MaximumQos = 0 }, true},
		{"small packets", func(c *mochi.Capabilities) { c.MaximumPacketSize = 700 }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t, tt.change)
				defer b.close()
				box := outbox.New(nil)
				cfg := settings()
				cfg.Discovery = ""
				s, err := mqtt.New(mqtt.Options{
					Config: cfg, Dial: b.dial, Outbox: box, JPEG: func(media.VideoFrame) ([]byte, error) { return make([]byte, 1000), nil },
				})
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- s.Run(ctx) }()
				o := s.Output("match", "bot")
				o.Rules(rules("r1"))
				synctest.Wait()
				send(t, box, o, alertOf("r1", 1, alert.PhaseNew))
				time.Sleep(time.Minute)
				require.Equal(t, []string{"r1-1"}, once(t, b.of("/alert/r1")))
				require.Equal(t, tt.frames, len(b.of("/frame/r1")) > 0)
				cancel()
				require.NoError(t, <-done)
			})
		})
	}
}

// TestHomeAssistant: commentators and rules are announced, again when Home Assistant starts, and taken back with their
// rule, also when that went while the program did not run.
func TestHomeAssistant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		defer b.close()
		const base, node = "touchline/match/bot", "touchline_match_bot"
		config := func(component, object string) string {
			return "homeassistant/" + component + "/" + node + "/" + object + "/config"
		}
		for _, old := range []string{config("binary_sensor", "r9_alert"), config("event", "r9_event"), base + "/rule/r9", base + "/frame/r9"} {
			require.NoError(t, b.server.Publish(old, []byte("{}"), true, 0))
		}
		other := "homeassistant/binary_sensor/door/lock/config"
		require.NoError(t, b.server.Publish(other, []byte("{}"), true, 0))
		cfg := settings()
		cfg.Shown = true
		s, stop := start(t, mqtt.Options{Config: cfg, Dial: b.dial})
		o := s.Output("match", "bot")
		o.Rules(rules("r1", "r2"))
		synctest.Wait()

		kept := b.retained()
		var topics []string
		for topic := range kept {
			if strings.HasPrefix(topic, "homeassistant/") {
				topics = append(topics, topic)
			}
		}
		require.ElementsMatch(t, []string{
			other, config("sensor", "state"), config("sensor", "comment"),
			config("binary_sensor", "r1_alert"), config("event", "r1_event"), config("image", "r1_frame"),
			config("binary_sensor", "r2_alert"), config("event", "r2_event"), config("image", "r2_frame"),
		}, topics, "r9 is gone, another program's entity is not")
		require.NotContains(t, kept, base+"/rule/r9")
		require.NotContains(t, kept, base+"/frame/r9")
		status := "touchline/status/" + processOf(t, kept)
		require.JSONEq(t, `{
			"name": "the door r1 opens", "unique_id": "`+node+`_r1_alert", "object_id": "`+node+`_r1_alert",
			"default_entity_id": "binary_sensor.`+node+`_r1_alert", "icon": "mdi:alert",
			"state_topic": "`+base+`/rule/r1",
			"availability": [{"topic": "`+status+`"}, {"topic": "`+base+`/status"}], "availability_mode": "all",
			"device": {"identifiers": ["`+node+`"], "name": "Touchline match", "manufacturer": "Touchline", "model": "Commentator", "sw_version": "v1.2.3"},
			"origin": {"name": "Touchline", "sw_version": "v1.2.3"}
		}`, kept[config("binary_sensor", "r1_alert")])
		require.Contains(t, kept[config("event", "r1_event")], `"event_types":["new","cleared","shown"]`)
		require.Contains(t, kept[config("image", "r1_frame")], `"image_topic":"`+base+`/frame/r1"`)

		before := len(b.of(config("image", "r1_frame")))
		require.NoError(t, b.server.Publish("homeassistant/status", []byte("offline"), false, 0))
		require.NoError(t, b.server.Publish("homeassistant/status", []byte("online"), false, 0))
		synctest.Wait()
		require.Len(t, b.of(config("image", "r1_frame")), before+1)

		renamed := rules("r2")
		renamed[0].Name = "back door"
		o.Rules(renamed)
		synctest.Wait()
		kept = b.retained()
		require.NotContains(t, kept, config("binary_sensor", "r1_alert"))
		require.NotContains(t, kept, config("event", "r1_event"))
		require.NotContains(t, kept, config("image", "r1_frame"))
		require.Contains(t, kept[config("binary_sensor", "r2_alert")], `"name":"back door"`)
		gone := b.of(config("event", "r1_event"))
		require.Empty(t, gone[len(gone)-1], "an empty retained payload removes an entity")
		require.Contains(t, kept, other)
		o.Close()
		stop()
		require.Contains(t, b.retained(), config("event", "r2_event"), "a commentator that has left is unavailable, not gone")
	})
}
