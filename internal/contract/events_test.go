package contract_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mochi "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/alert"
	"touchline/agent/bot"
	"touchline/agent/history"
	"touchline/agent/look"
	"touchline/agent/mqtt"
	"touchline/agent/state"
	"touchline/agent/webhook"
	"touchline/internal/contract"
	"touchline/internal/outbox"
	"touchline/media"
	"touchline/media/window"
)

// full sets every field below v: a text is the name of its field.
func full(v reflect.Value, name string) {
	if at, ok := v.Addr().Interface().(*time.Time); ok {
		*at = time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			full(v.Field(i), v.Type().Field(i).Name)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		full(v.Elem(), name)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		full(v.Index(0), name)
	case reflect.String:
		v.SetString(strings.ToLower(name))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(0.25)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint64, reflect.Uint32:
		v.SetUint(9)
	default: // a map, an interface or a function stays empty
	}
}

// sample returns a value with every field set, and then changed by f.
func sample[T any](f func(*T)) (v T) {
	full(reflect.ValueOf(&v).Elem(), "")
	f(&v)
	return v
}

func aRecord(outcome string) look.Record {
	return sample(func(r *look.Record) { r.Type, r.Outcome = "cycle_end", outcome })
}

func anAlert(phase string) alert.Alert {
	return sample(func(a *alert.Alert) {
		a.Type, a.Phase, a.Test, a.Level, a.Rule = "alert", phase, false, "warning", "r1"
	})
}

func aStatus() agent.Status {
	return agent.Status{State: agent.StateListening, Detail: "detail", Percent: 100, Activity: agent.ActivityWatching, Hearing: "all"}
}

// stream reads the events of a path until n have come, without keep-alives.
func (p *page) stream(path string, n int, publish func()) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	require.NoError(p.t, err)
	r.Header.Set("Authorization", "Bearer "+pageToken)
	res, err := http.DefaultClient.Do(r)
	require.NoError(p.t, err)
	defer res.Body.Close()
	publish()
	var out strings.Builder
	for in := bufio.NewScanner(res.Body); n > 0 && in.Scan(); {
		if line := in.Text(); line != "" && !strings.HasPrefix(line, ":") {
			out.WriteString(line + "\n")
		} else if line == "" {
			out.WriteString("\n")
			n--
		}
	}
	require.Zero(p.t, n, "events are missing after\n%s", out.String())
	return out.String()
}

// TestEvents: the server-sent events of each kind of stream.
func TestEvents(t *testing.T) {
	p := open(t, botSettings(), nil)
	publish := func() {
		hub := p.bot.Hub
		hub.State(aStatus())
		hub.Caption(sample(func(c *agent.Caption) { c.Final = false }))
		hub.Caption(sample(func(*agent.Caption) {}))
		hub.Record(aRecord(look.OutcomeSpoken))
		hub.Heard(sample(func(h *agent.Heard) { h.Caption = true }))
		hub.Alert(anAlert(alert.PhaseNew), nil)
		hub.Alert(anAlert(alert.PhaseCleared), nil)
	}
	var out strings.Builder
	for _, s := range []struct {
		path   string
		events int // with the time of a retry
	}{{"/api/events", 10}, {"/api/stream", 4}} {
		fmt.Fprintf(&out, "GET %s\n%s", s.path, p.stream(s.path, s.events, publish))
	}
	text := regexp.MustCompile(`(?m)^id: \d+$`).ReplaceAllString(out.String(), "id: N")
	text = regexp.MustCompile(`(event: snapshot\ndata: ).*`).ReplaceAllString(text, "${1}as GET /api/status")
	contract.Compare(t, "testdata/events.txt", scrubbed(text))
}

// TestMetrics: name, help, type and labels of the metrics of a bot with all outputs. Those of models are in cmd/touchline.
func TestMetrics(t *testing.T) {
	to := bot.OutputSettings{State: state.Config{Path: t.TempDir()}, History: history.DefaultConfig(), JPEGQuality: 80, Version: "v0"}
	to.History.Store, to.History.Path = history.StoreSQLite, t.TempDir()+"/history.db"
	to.MQTT = mqtt.DefaultConfig()
	to.MQTT.URL = "mqtt://127.0.0.1:9"
	to.Webhook = webhook.DefaultConfig()
	to.Webhook.URLs = []webhook.URL{{URL: "http://127.0.0.1:9/hook"}}
	to.APIKey, to.APISecret = keys().APIKey, "a secret of at least 32 characters"
	require.NoError(t, bot.WithOutputs(t.Context(), to, zerolog.Nop(), func(out *bot.Outputs) error {
		p := open(t, botSettings(), out)
		for _, outcome := range []string{
			look.OutcomeSpoken, look.OutcomeShown, look.OutcomeSilent, look.OutcomeSkipped, look.OutcomeRepeated, look.OutcomeDropped,
			look.OutcomeCut, look.OutcomeFailed,
		} {
			p.bot.Hub.Record(aRecord(outcome))
		}
		p.do("GET", "/metrics", "")
		_, text := p.do("GET", "/metrics", "") // with the first request
		contract.Compare(t, "testdata/metrics.txt", families(text))
		return nil
	}))
}

// families lists the metric families of a text with the names and, where few are known, the values of their labels.
func families(text string) string {
	open := map[string]bool{"go": true, "process": true} // of the library
	labels := map[string][]string{}
	var out []string
	pair := regexp.MustCompile(`(\w+)="([^"]*)"`)
	for line := range strings.Lines(text) {
		switch fields := strings.Fields(line); {
		case strings.HasPrefix(line, "# HELP "):
			out = append(out, fields[2]+": "+strings.Join(fields[3:], " "))
		case strings.HasPrefix(line, "# TYPE "):
			labels[fields[2]] = append(labels[fields[2]], fields[3])
		default:
			name, _, _ := strings.Cut(fields[0], "{")
			name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
			for _, m := range pair.FindAllStringSubmatch(line, -1) {
				if label := m[1] + "=" + m[2]; m[1] != "le" && !slices.Contains(labels[name], label) {
					labels[name] = append(labels[name], label)
				}
			}
		}
	}
	out = slices.DeleteFunc(out, func(line string) bool {
		family, _, _ := strings.Cut(line, "_")
		return open[family]
	})
	for i, line := range out {
		name, _, _ := strings.Cut(line, ":")
		out[i] = line + "\n  " + strings.Join(labels[name], " ")
	}
	return strings.Join(out, "\n") + "\n"
}

// TestMQTT: topics and payloads, also those for Home Assistant's discovery, in the order of their topics, and what remains
// when a rule and the commentator are gone.
func TestMQTT(t *testing.T) {
	var mu sync.Mutex
	got := map[string]string{}
	server := mochi.New(&mochi.Options{InlineClient: true, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	require.NoError(t, server.AddHook(new(auth.AllowHook), nil))
	require.NoError(t, server.Serve())
	require.NoError(t, server.Subscribe("#", 1, func(_ *mochi.Client, _ packets.Subscription, pk packets.Packet) {
		mu.Lock()
		defer mu.Unlock()
		line := string(pk.Payload)
		if json.Valid(pk.Payload) {
			line = contract.JSON(pk.Payload)
		}
		// A value may be sent again, so each counts once.
		if line = fmt.Sprintf("retain=%v %s\n", pk.FixedHeader.Retain, strings.TrimSpace(line)); !strings.Contains(got[pk.TopicName], line) {
			got[pk.TopicName] += line
		}
	}))
	cfg := mqtt.DefaultConfig()
	cfg.URL, cfg.Shown = "mqtt://broker.test", true
	box := outbox.New(nil)
	s, err := mqtt.New(mqtt.Options{
		Config: cfg, Outbox: box, Version: "v0", Log: zerolog.Nop(),
		JPEG: func(media.VideoFrame) ([]byte, error) { return []byte("a picture"), nil },
		Dial: func(context.Context, string) (net.Conn, error) {
			client, end := net.Pipe()
			go func() { _ = server.EstablishConnection("pipe", end) }()
			return client, nil
		},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	o := s.Output("süd match/1", "bot")
	rule := sample(func(r *alert.RuleStatus) { r.ID, r.Level = "r1", "warning" })
	o.Rules([]alert.RuleStatus{rule, {ID: "r2", RuleText: alert.RuleText{When: "dark"}}})
	o.State(aStatus())
	o.Record(aRecord(look.OutcomeSpoken))
	arrived := func(n int, topic string) {
		t.Helper()
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			for name, text := range got {
				if strings.HasSuffix(name, topic) && strings.Count(text, "retain=") >= n {
					return true
				}
			}
			return false
		}, patience, time.Millisecond, topic)
	}
	arrived(1, "/comment")
	arrived(1, "/rule/r1")
	for i, phase := range []string{alert.PhaseNew, alert.PhaseShown, alert.PhaseCleared} {
		a := anAlert(phase)
		frame := &window.Frame{ID: a.FrameID, VideoFrame: media.VideoFrame{Width: 2, Height: 2, Pix: make([]byte, 12)}}
		box.Put(o.Queue(a, frame)...)
		o.Alert(a, frame)
		arrived(i+1, "/alert/r1")
		if phase == alert.PhaseNew {
			arrived(2, "/rule/r1")
			arrived(1, "/frame/r1")
		}
	}
	o.Rules([]alert.RuleStatus{rule})
	o.Close()
	require.Eventually(t, func() bool { return box.Waiting() == 0 }, patience, time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	require.NoError(t, server.Close())
	mu.Lock()
	defer mu.Unlock()
	var out strings.Builder
	topics := make([]string, 0, len(got))
	for topic := range got {
		topics = append(topics, topic)
	}
	slices.Sort(topics)
	for _, topic := range topics {
		fmt.Fprintf(&out, "%s\n%s\n", topic, got[topic])
	}
	text := regexp.MustCompile(`touchline-[a-z2-7]{10}`).ReplaceAllString(out.String(), "touchline-ID")
	contract.Compare(t, "testdata/mqtt.txt", contract.Scrub(text))
}
