//go:build integration

package contract_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/access"
	"touchline/agent/bot"
	"touchline/agent/room/conn"
	"touchline/agent/sfu"
	"touchline/agent/sfu/sfutest"
	"touchline/internal/contract"
)

func TestMain(m *testing.M) { os.Exit(sfutest.Main(m)) }

// guest is a participant that keeps what it receives.
type guest struct {
	t    *testing.T
	room *lksdk.Room

	mu     sync.Mutex
	topics map[string][]string // payloads by topic, without their times
}

func join(t *testing.T, url, token string) *guest {
	t.Helper()
	g := &guest{t: t, topics: map[string][]string{}}
	keep := func(topic, payload string) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if payload = measured(payload); !slices.Contains(g.topics[topic], payload) {
			g.topics[topic] = append(g.topics[topic], payload)
		}
	}
	cb := lksdk.NewRoomCallback()
	cb.OnDataPacket = func(data lksdk.DataPacket, _ lksdk.DataReceiveParams) {
		if u, ok := data.(*lksdk.UserDataPacket); ok {
			keep(u.Topic, string(u.Payload))
		}
	}
	g.room = lksdk.NewRoom(cb)
	require.NoError(t, g.room.RegisterTextStreamHandler("lk.transcription", func(r *lksdk.TextStreamReader, from string) {
		text := r.ReadAll()
		keep("lk.transcription", fmt.Sprintf("%q from %s, %s", text, from, sorted(r.Info.Attributes)))
	}))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, g.room.JoinWithContextAndToken(ctx, url, token, lksdk.WithAutoSubscribe(false), lksdk.WithDisableTURN()))
	t.Cleanup(g.room.Disconnect)
	return g
}

// sorted lists attributes.
func sorted(attributes map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		out = append(out, name+"="+attributes[name])
	}
	return measured(strings.Join(out, " "))
}

// measured replaces what differs from run to run.
func measured(text string) string {
	for _, r := range [][2]string{
		{`(lk\.segment_id=|"segment":)"?[\w-]+"?`, "${1}ID"},
		{`viewer-[A-Z0-9]{10}`, "viewer-ID"},
		{`r1-[a-z0-9]{6,}`, "r1-ID"},
		{`("(since|latency_sec|ready_sec|first_word_sec|alignment_error|audio_sec|delay|target_delay)":)-?[\d.e-]+`, "${1}0"},
	} {
		text = regexp.MustCompile(r[0]).ReplaceAllString(text, r[1])
	}
	return contract.Scrub(text)
}

// call calls an RPC method of the bot and returns its answer or error.
func (g *guest) call(method, payload string) string {
	g.t.Helper()
	var answer string
	require.Eventually(g.t, func() bool {
		result, err := g.room.LocalParticipant.PerformRpc(lksdk.PerformRpcParams{DestinationIdentity: "bot", Method: method, Payload: payload})
		var failed *lksdk.RpcError
		switch {
		case err == nil:
			answer = *result
			return true
		case !errors.As(err, &failed) || failed.Code == 429 || failed.Code == lksdk.RpcConnectionTimeout || failed.Code == lksdk.RpcResponseTimeout:
			return false // too fast, or its data channel is not open yet
		}
		answer = fmt.Sprintf("error %d: %s", failed.Code, failed.Message)
		return true
	}, patience, 100*time.Millisecond, method)
	return answer
}

// send sends a message on the topic of control.
func (g *guest) send(message string) {
	g.t.Helper()
	packet := lksdk.UserData([]byte(message))
	packet.Topic = "touchline.control"
	require.NoError(g.t, g.room.LocalParticipant.PublishDataPacket(packet, lksdk.WithDataPublishReliable(true)))
}

// received returns the payloads of a topic.
func (g *guest) received(topic string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.topics[topic])
}

// calls are methods with parameters, in order.
func calls() [][2]string {
	return [][2]string{
		{"status", ""},
		{"status", `{"color":1}`},
		{"set_instruction", `{}`},
		{"set_instruction", `{"instruction":"  "}`},
		{"set_instruction", `{"instruction":"Follow the ball."}`},
		{"set_profile", `{}`},
		{"set_profile", `{"profile":"opera"}`},
		{"set_profile", `{"profile":"sports"}`},
		{"update_settings", `{}`},
		{"update_settings", `{"settings":{"frames_per_look":65,"capture_fps":0}}`},
		{"update_settings", `{"settings":{"color":1}}`},
		{"update_settings", `{"settings":{"speech":false,"frames_per_look":6}}`},
		{"command", `{}`},
		{"command", `{"command":"dance"}`},
		{"command", `{"command":"shorter"}`},
		{"command", `{"command":"repeat"}`},
		{"select_source", `{"source":"scene"}`},
		{"select_source", `{"source":"camera:door"}`},
		{"select_source", `{}`},
		{"say", `{}`},
		{"say", `{"text":"The bus leaves.","reason":"timetable"}`},
		{"talk", `{}`},
		{"talk", `{"held":true}`},
		{"history", `{}`},
		{"history", `{"limit":0}`},
		{"rules", ``},
		{"add_rule", `{}`},
		{"add_rule", `{"rule":{"when":""}}`},
		{"add_rule", `{"rule":{"when":"a goal","name":"Goal","pause":"1s"}}`},
		{"replace_rule", `{"id":"r1"}`},
		{"replace_rule", `{"id":"r9","rule":{"when":"a goal"}}`},
		{"snooze_rule", `{"id":"r1","for":"x"}`},
		{"snooze_rule", `{"id":"r1","for":"10m"}`},
		{"ack_alert", `{"alert":"x"}`},
		{"remove_rule", `{"id":"r9"}`},
		{"start", ``},
		{"stop", ``},
		{"start", `{"source":"scene"}`},
		{"start", `{}`},
		{"clear_instruction", ``},
		{"dance", ``},
	}
}

// TestRoom: what participants of a room see of a bot: its attributes, the answers to RPC calls and on the topic of control,
// of one who steers and one who watches, and the topics of captions, cycles, alerts and orders.
func TestRoom(t *testing.T) {
	server, _ := sfutest.Start(t, sfu.Options{})
	pair := conn.Keys{APIKey: server.APIKey(), APISecret: server.APISecret()}
	cfg := botSettings()
	cfg.Agent.LiveKit.URL, cfg.Agent.LiveKit.Identity = server.URL(), "bot"
	cfg.Inference.Voice.Enabled = false
	cfg.Agent.CopyToChat = false
	withoutPrograms(t)
	b, err := bot.New(bot.Options{Settings: cfg.Bot(), Keys: pair, Engine: scripted(), LoopbackOnly: true, Log: zerolog.Nop()})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	defer func() { cancel(); <-ended }() //nolint:errcheck // only its end matters
	enter := func(rights access.Rights) *guest {
		grant, err := b.Tokens.Mint("viewer", "Vera", access.Grant{Rights: rights})
		require.NoError(t, err)
		return join(t, server.URL(), grant.Token)
	}
	boss, viewer := enter(access.AllInRoom), enter(access.Watch)
	require.Eventually(t, func() bool { return strings.HasPrefix(boss.call("touchline.status", ""), "{") }, patience, 100*time.Millisecond,
		"the bot knows the rights")
	require.Eventually(t, func() bool { return strings.HasPrefix(viewer.call("touchline.history", ""), "{") }, patience, 100*time.Millisecond)

	var out strings.Builder
	var last map[string]json.RawMessage
	for _, c := range calls() {
		answer := measured(boss.call("touchline."+c[0], c[1]))
		var state map[string]json.RawMessage
		if json.Unmarshal([]byte(answer), &state) == nil && state["monitor_mode"] != nil {
			delete(state, "status") // it changes by itself
			now := maps.Clone(state)
			maps.DeleteFunc(state, func(name string, v json.RawMessage) bool { return string(last[name]) == string(v) })
			changed, err := json.Marshal(state)
			require.NoError(t, err)
			if last != nil {
				answer = "the state, in which this changed: " + string(changed)
			}
			last = now
		}
		fmt.Fprintf(&out, "%s %s\n  %s\n", c[0], c[1], cmp.Or(answer, "nothing"))
		if c[0] == "say" && strings.Contains(c[1], "bus") {
			require.Eventually(t, func() bool { return len(boss.received("touchline.cycle")) > 0 }, patience, time.Millisecond)
		}
	}
	out.WriteString("\nby one who watches\n")
	for _, method := range []string{"status", "history", "rules", "say", "dance"} {
		fmt.Fprintf(&out, "%s\n  %s\n", method, measured(viewer.call("touchline."+method, "")))
	}

	for i, message := range []string{
		`{"id":"1","method":"rules"}`, `{"id":"2","method":"set_instruction","params":{"instruction":"Count the people."}}`,
		`{"id":"3","method":"say","params":{"text":""}}`, `{"id":"4","method":"dance"}`, `{"id":"5","method":"rules","token":"x"}`,
		`{"id":"6","color":1}`, `nonsense`,
	} {
		boss.send(message)
		require.Eventually(t, func() bool { return len(boss.received("touchline.control.reply")) > i }, patience, time.Millisecond, message)
	}
	require.NoError(t, b.Alerts.Test("r1", time.Now()))
	require.Eventually(t, func() bool { return len(boss.received("touchline.alert")) > 1 }, patience, time.Millisecond)
	for _, topic := range []string{"touchline.control.reply", "touchline.control", "touchline.cycle", "touchline.alert", "lk.transcription"} {
		fmt.Fprintf(&out, "\ntopic %s\n", topic)
		for _, payload := range boss.received(topic) {
			if i := strings.Index(payload, `"result":{"status"`); i > 0 {
				payload = payload[:i] + `"result": as status`
			}
			out.WriteString(payload + "\n")
		}
	}
	for _, p := range boss.room.GetRemoteParticipants() {
		if p.Identity() == "bot" {
			fmt.Fprintf(&out, "\nattributes\n%s\n", strings.ReplaceAll(sorted(p.Attributes()), " ", "\n"))
		}
	}
	contract.Compare(t, "testdata/room.txt", out.String())
}
