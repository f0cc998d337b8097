package mqtt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/paho"

	"touchline/agent"
	"touchline/agent/alert"
	"touchline/agent/look"
	"touchline/internal/outbox"
	"touchline/internal/rescue"
	"touchline/media/window"
)

// Output sends the alerts, the state and the last comment of one commentator. It is an agent.TextOutput and an
// agent.AlertOutput.
type Output struct {
	s              *Sender
	room, identity string
	node           string // in Home Assistant
	base           string // of its topics

	mu    sync.Mutex
	rules []string // ids
	ended bool
}

var (
	_ agent.TextOutput  = (*Output)(nil)
	_ agent.AlertOutput = (*Output)(nil)
)

// Room is Output with the return type that all kinds of outputs share.
func (s *Sender) Room(room, identity string) agent.TextOutput { return s.Output(room, identity) }

// Output returns the output of one commentator's session. Rules must be called next, and Close at the end.
func (s *Sender) Output(room, identity string) *Output {
	o := &Output{s: s, room: room, identity: identity}
	o.node = "touchline_" + slug(room) + "_" + slug(identity)
	o.base = s.opts.Config.Prefix + "/" + slug(room) + "/" + slug(identity)
	s.mu.Lock()
	s.outputs[o] = true
	s.mu.Unlock()
	s.set(o.base+"/status", []byte(online))
	return o
}

// maxSlug is the longest slug, in bytes.
const maxSlug = 64

// slug makes a name usable as a topic level and in ids of Home Assistant: letters, digits, - and _. Different names have
// different slugs.
func slug(name string) string {
	out := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, name)
	if out == name && out != "" && len(out) <= maxSlug {
		return out
	}
	sum := sha256.Sum256([]byte(name))
	return out[:min(len(out), maxSlug-9)] + "-" + hex.EncodeToString(sum[:4])
}

func (o *Output) alertTopic(rule string) string { return o.base + "/alert/" + slug(rule) }
func (o *Output) ruleTopic(rule string) string  { return o.base + "/rule/" + slug(rule) }

// frameTopic returns the topic of frames that belongs to a topic of alerts.
func frameTopic(alerts string) string {
	base, rule, _ := cutLast(alerts, "/alert/")
	return base + "/frame/" + rule
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// event is the payload of one phase of an alert. Home Assistant requires event_type.
type event struct {
	EventType string `json:"event_type"`
	Room      string `json:"room"`
	Identity  string `json:"identity"`
	alert.Alert
}

// Queue returns the message of a phase of an alert for the outbox, or none for a phase that is not sent. The frame of a
// new alert is sent first.
func (o *Output) Queue(a alert.Alert, frame *window.Frame) []outbox.Message {
	if a.Phase != alert.PhaseNew && a.Phase != alert.PhaseCleared && (a.Phase != alert.PhaseShown || !o.s.opts.Config.Shown) {
		return nil
	}
	body, err := json.Marshal(event{a.Phase, o.room, o.identity, a})
	if err != nil { // a NaN or an infinity
		o.s.log.Error().Err(err).Str("alert", a.ID).Msg("alert cannot be encoded")
		return nil
	}
	topic := o.alertTopic(a.Rule)
	if frame != nil {
		picture := frame.VideoFrame
		o.s.mu.Lock()
		o.s.holdLocked(frameTopic(topic), &value{frame: &picture}) // Alert queues it, after the commit
		o.s.mu.Unlock()
	}
	return []outbox.Message{{Target: outboxTarget, Topic: topic, At: time.Now(), Body: body}}
}

// Alert implements agent.AlertOutput. It sets the retained state of the rule; Queue returns the alert itself.
func (o *Output) Alert(a alert.Alert, _ *window.Frame) {
	defer rescue.Guard(o.s.crash)
	switch a.Phase {
	case alert.PhaseNew:
		o.s.offer(frameTopic(o.alertTopic(a.Rule)))
		o.s.set(o.ruleTopic(a.Rule), []byte("ON"))
	case alert.PhaseCleared:
		o.mu.Lock()
		known := slices.Contains(o.rules, a.Rule)
		o.mu.Unlock()
		if known { // otherwise the rule was removed
			o.s.set(o.ruleTopic(a.Rule), []byte("OFF"))
		}
	}
}

// Caption implements agent.TextOutput; captions are not sent.
func (*Output) Caption(agent.Caption) {}

// comment is the payload of the last comment.
type comment struct {
	Text    string    `json:"text"`
	At      time.Time `json:"at"`
	Outcome string    `json:"outcome"`
	Cycle   uint64    `json:"cycle"`
}

// Record implements agent.TextOutput.
func (o *Output) Record(r look.Record) {
	defer rescue.Guard(o.s.crash)
	if r.IsComment() {
		o.s.setJSON(o.base+"/comment", comment{r.Text, r.StartedAt, r.Outcome, r.Cycle})
	}
}

// State implements agent.TextOutput.
func (o *Output) State(s agent.Status) {
	defer rescue.Guard(o.s.crash)
	o.s.setJSON(o.base+"/state", s)
}

func (s *Sender) setJSON(topic string, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		s.log.Error().Err(err).Str("topic", topic).Msg("value cannot be encoded")
		return
	}
	s.set(topic, text)
}

// Rules announces the commentator's rules, and deletes the entities of removed rules.
func (o *Output) Rules(rules []alert.RuleStatus) {
	defer rescue.Guard(o.s.crash)
	ids := make([]string, len(rules))
	for i, r := range rules {
		ids[i] = r.ID
	}
	o.mu.Lock()
	before := o.rules
	o.rules = ids
	o.mu.Unlock()
	for _, id := range before {
		if !slices.Contains(ids, id) {
			o.removed(id)
		}
	}
	for _, r := range rules {
		if !slices.Contains(before, r.ID) {
			o.s.set(o.ruleTopic(r.ID), []byte("OFF"))
		}
	}
	if o.s.opts.Config.Discovery == "" {
		return
	}
	for topic, entity := range o.entities(rules) {
		o.s.setJSON(topic, entity)
	}
}

// removed deletes the retained values of a rule.
func (o *Output) removed(id string) {
	o.s.set(o.ruleTopic(id), nil)
	o.s.set(frameTopic(o.alertTopic(id)), nil)
	if o.s.opts.Config.Discovery != "" {
		for _, topic := range o.ruleEntities(id) {
			o.s.set(topic, nil)
		}
	}
}

// Close ends the output. The broker keeps the retained values, with the status offline.
func (o *Output) Close() {
	o.mu.Lock()
	ended := o.ended
	o.ended = true
	o.mu.Unlock()
	if ended {
		return
	}
	o.s.set(o.base+"/status", []byte(offline))
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	delete(o.s.outputs, o)
	for topic, v := range o.s.values {
		if strings.HasPrefix(topic, o.base+"/") || strings.Contains(topic, "/"+o.node+"/") {
			if v.last = true; !v.waiting {
				delete(o.s.values, topic)
			}
		}
	}
}

// subscribe subscribes to the status of Home Assistant and to the announced entities of the commentators.
func (s *Sender) subscribe(ctx context.Context, cm *autopaho.ConnectionManager) error {
	if s.opts.Config.Discovery == "" {
		return nil
	}
	s.mu.Lock()
	wanted := []string{s.opts.Config.Discovery + "/status"}
	for o := range s.outputs {
		wanted = append(wanted, s.opts.Config.Discovery+"/+/"+o.node+"/+/config")
	}
	wanted = slices.DeleteFunc(wanted, func(t string) bool { return s.subscribed[t] })
	s.mu.Unlock()
	ctx, cancel := s.whileUp(ctx)
	defer cancel()
	for _, topic := range wanted {
		_, err := cm.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: topic, QoS: 1, NoLocal: true}}})
		if err != nil && (ctx.Err() != nil || !s.connected.Load()) {
			return err
		}
		if err != nil { // the broker does not allow it
			s.log.Warn().Err(err).Str("topic", topic).Msg("subscription refused; Home Assistant learns of changes at its restart only")
		}
		s.mu.Lock()
		s.subscribed[topic] = true
		s.mu.Unlock()
	}
	return nil
}

// received handles a message of the broker: Home Assistant has started, or an entity is announced that no longer exists.
func (s *Sender) received(topic string, payload []byte) {
	defer rescue.Guard(s.crash)
	discovery := s.opts.Config.Discovery
	if topic == discovery+"/status" {
		if string(payload) == online {
			s.mu.Lock()
			s.againLocked()
			s.mu.Unlock()
		}
		return
	}
	rest, ok := strings.CutPrefix(topic, discovery+"/")
	levels := strings.Split(rest, "/") // component, node, object, config
	if !ok || len(levels) != 4 || levels[3] != "config" || len(payload) == 0 {
		return
	}
	s.mu.Lock()
	var of *Output
	for o := range s.outputs {
		if o.node == levels[1] {
			of = o
		}
	}
	stale := of != nil && s.values[topic] == nil
	s.mu.Unlock()
	if !stale {
		return
	}
	s.set(topic, nil)
	if rule, ok := strings.CutSuffix(levels[2], "_alert"); ok && levels[0] == "binary_sensor" {
		s.set(of.base+"/rule/"+rule, nil)
		s.set(of.base+"/frame/"+rule, nil)
	}
}
