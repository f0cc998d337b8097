// Package mqtt sends alerts, and the state and last comment of rooms, to an MQTT 5 broker, and announces them to Home
// Assistant.
//
// It owns the connection, the topics and their retained values. Alerts wait in an outbox until the broker acknowledges
// them; for everything else only the latest value of a topic is stored. Outputs never wait for the broker.
package mqtt

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"touchline/internal/backoff"
	"touchline/internal/metrics"
	"touchline/internal/outbox"
	"touchline/internal/rescue"
	"touchline/internal/wake"
	"touchline/media"
)

const (
	// outboxTarget is the name of the queue of alerts.
	outboxTarget = "mqtt"
	// firstWait and maxWait bound the waits between attempts to connect, and after a message that was not accepted.
	firstWait = 250 * time.Millisecond
	maxWait   = 15 * time.Second
	// ackTime bounds the wait for an acknowledgement, dialTime the wait for a connection.
	ackTime  = 10 * time.Second
	dialTime = 10 * time.Second
	// keepAlive is the interval of pings, in seconds.
	keepAlive = 20
	// lastTry bounds the delivery of queued messages at shutdown.
	lastTry = time.Second
	// maxTopics bounds the topics with a value: those of rules that come and go while the broker is away stay until it is back.
	maxTopics = 100_000
	// willLife is how long the broker keeps the status of an ended process, in seconds.
	willLife = 24 * 60 * 60
)

// Payloads of a status.
const (
	online  = "online"
	offline = "offline"
)

// Options of a Sender.
type Options struct {
	Config Config
	// Outbox keeps the alerts until they are delivered.
	Outbox *outbox.Outbox
	// JPEG encodes the frame of an alert.
	JPEG func(media.VideoFrame) ([]byte, error)
	// Version of the program, for Home Assistant.
	Version string
	// Dial replaces the network; nil is the network.
	Dial func(ctx context.Context, host string) (net.Conn, error)
	Log  zerolog.Logger
}

// Sender sends the messages of all rooms of a process.
type Sender struct {
	opts   Options
	log    zerolog.Logger
	broker *url.URL
	tls    *tls.Config
	client string // its id
	alerts *outbox.Queue
	wake   wake.Signal
	turn   chan struct{} // a semaphore for sending a value

	sent, failed, dropped atomic.Uint64
	connected             atomic.Bool

	mu         sync.Mutex
	outputs    map[*Output]bool
	values     map[string]*value // by topic
	order      []string          // topics with a value to send; those that are not queued any more were sent before their turn
	queued     map[string]bool   // topics in order whose value is to be sent
	subscribed map[string]bool   // on this connection
	limits     limits
	problem    string
	upAt       time.Time
	ready      chan struct{} // closed while there is a connection and its limits are known
	lost       chan struct{} // closed when this connection is lost; nil before the first
	backoff    backoff.Backoff
	crashed    bool
}

// value is the latest value of a topic, which the broker retains. An empty payload deletes it there.
type value struct {
	payload []byte
	frame   *media.VideoFrame // to be encoded as the payload
	waiting bool              // not sent yet
	last    bool              // of an ended commentator: sent once more
}

// limits are the limits of a broker.
type limits struct {
	qos    byte
	retain bool
	size   int // of a message, bytes
}

// New makes a Sender; nothing is sent before Run.
func New(opts Options) (*Sender, error) {
	s := &Sender{
		opts: opts, log: opts.Log.With().Str("component", "mqtt").Logger(), client: clientID(),
		wake: wake.New(), turn: make(chan struct{}, 1), ready: make(chan struct{}),
		values: map[string]*value{}, queued: map[string]bool{}, outputs: map[*Output]bool{},
		limits: limits{qos: 1, retain: true}, backoff: backoff.Backoff{First: firstWait, Max: maxWait},
	}
	var err error
	if s.broker, err = opts.Config.broker(); err != nil {
		return nil, fmt.Errorf("agent.mqtt.url: %w", err)
	}
	if s.tls, err = opts.Config.tls(s.broker); err != nil {
		return nil, err
	}
	if s.alerts, err = opts.Outbox.Queue(outboxTarget); err != nil {
		return nil, err
	}
	s.set(s.statusTopic(), []byte(online))
	return s, nil
}

func clientID() string { return "touchline-" + strings.ToLower(rand.Text()[:10]) }

// statusTopic returns the topic of the process's status: online, or offline by last will.
func (s *Sender) statusTopic() string { return s.opts.Config.Prefix + "/status/" + s.client }

// Run sends until ctx ends, then tries for up to a second to send the queued messages.
func (s *Sender) Run(ctx context.Context) error {
	posts, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	cm, err := autopaho.NewConnection(posts, s.client5())
	if err != nil {
		return fmt.Errorf("prepare the MQTT client: %w", err)
	}
	var g sync.WaitGroup
	for _, part := range []func(ctx, posts context.Context, cm *autopaho.ConnectionManager){s.sendAlerts, s.sendValues} {
		g.Go(func() {
			if err := rescue.Call(func() error { part(ctx, posts, cm); return nil }); err != nil {
				s.crash(err)
			}
		})
	}
	<-ctx.Done()
	timer := time.AfterFunc(lastTry, stop)
	g.Wait()
	timer.Stop()
	stop()
	<-cm.Done()
	if n := s.alerts.Len(); n > 0 {
		s.log.Warn().Int("alerts", n).Bool("kept", s.opts.Outbox.Durable()).Msg("alerts not delivered at shutdown")
	}
	return nil
}

// crash logs the first panic, after which nothing is sent.
func (s *Sender) crash(err error) {
	s.mu.Lock()
	was := s.crashed
	s.crashed = true
	s.mu.Unlock()
	if !was {
		s.log.Error().Err(err).Bytes("stack", rescue.Stack(err)).Msg("mqtt panicked; it is off until the program restarts")
	}
}

// againLocked marks all values to be sent again, in the order of their topics.
func (s *Sender) againLocked() {
	s.order = s.order[:0]
	for topic, v := range s.values {
		v.waiting = true
		s.order, s.queued[topic] = append(s.order, topic), true
	}
	slices.Sort(s.order)
	s.wake.Set()
}

// set sets the value of a topic and sends it if it has changed.
func (s *Sender) set(topic string, payload []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.values[topic]; v != nil && v.frame == nil && string(v.payload) == string(payload) {
		return
	}
	s.putLocked(topic, &value{payload: payload})
}

func (s *Sender) putLocked(topic string, v *value) {
	if s.holdLocked(topic, v) {
		s.queueLocked(topic)
	}
}

// holdLocked sets the value of a topic, to be queued later. It returns false for a new topic beyond the bound.
func (s *Sender) holdLocked(topic string, v *value) bool {
	if s.values[topic] == nil && len(s.values) >= maxTopics {
		s.dropped.Add(1)
		return false
	}
	v.waiting = true
	s.values[topic] = v
	return true
}

// queueLocked has the value of a topic sent, unless it is queued already.
func (s *Sender) queueLocked(topic string) {
	if !s.queued[topic] {
		s.order, s.queued[topic] = append(s.order, topic), true
	}
	s.wake.Set()
}

// offer queues the value of a topic if it is still waiting.
func (s *Sender) offer(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.values[topic]; v != nil && v.waiting {
		s.queueLocked(topic)
	}
}

// sendValues subscribes, and sends values until ctx has ended and no value waits.
func (s *Sender) sendValues(ctx, posts context.Context, cm *autopaho.ConnectionManager) {
	for posts.Err() == nil {
		if !s.await(posts) {
			return
		}
		err := s.subscribe(posts, cm)
		for err == nil {
			topic, v, ok := s.nextValue()
			if !ok {
				break
			}
			err = s.sendValue(posts, cm, topic, v)
		}
		if err != nil {
			s.log.Debug().Err(err).Msg("value not sent; retrying")
			if !pause(ctx, posts, firstWait) {
				return
			}
			continue
		}
		if ctx.Err() != nil {
			return
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
		}
	}
}

// pause waits before another attempt. It returns false if there is none.
func pause(ctx, posts context.Context, d time.Duration) bool {
	if ctx.Err() != nil { // at shutdown the attempts are closer together
		d = min(d, 50*time.Millisecond)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-posts.Done():
		return false
	}
	return true
}

// nextValue returns the oldest waiting value.
func (s *Sender) nextValue() (string, *value, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.order) > 0 && !s.queued[s.order[0]] {
		s.order = s.order[1:]
	}
	if len(s.order) == 0 {
		return "", nil, false
	}
	return s.order[0], s.values[s.order[0]], true
}

// sendValue sends a value unless it was sent or replaced by a newer one.
func (s *Sender) sendValue(ctx context.Context, cm *autopaho.ConnectionManager, topic string, v *value) error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	s.mu.Lock()
	payload, frame, waiting := v.payload, v.frame, v.waiting && s.values[topic] == v
	s.mu.Unlock()
	if !waiting {
		return nil
	}
	if frame != nil {
		var err error
		if payload, err = s.opts.JPEG(*frame); err != nil {
			s.log.Warn().Err(err).Msg("frame of an alert not encoded")
		}
		s.mu.Lock()
		v.payload, v.frame = payload, nil
		s.mu.Unlock()
	}
	err := s.publish(ctx, cm, topic, payload, true)
	if _, refused := errors.AsType[*refusedError](err); err != nil && !refused {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values[topic] != v {
		return nil
	}
	v.waiting = false
	delete(s.queued, topic)
	if len(payload) == 0 || v.last {
		delete(s.values, topic)
	}
	return nil
}

// sendAlerts sends alerts one after the other, until ctx has ended and no alert waits.
func (s *Sender) sendAlerts(ctx, posts context.Context, cm *autopaho.ConnectionManager) {
	for {
		m, err := s.alerts.Next(ctx)
		if err != nil {
			return
		}
		wait := backoff.Backoff{First: firstWait, Max: maxWait}
		for {
			if !s.await(posts) {
				return
			}
			err := s.sendAlert(posts, cm, m)
			if err == nil {
				break
			}
			if !pause(ctx, posts, wait.Next(time.Now(), mathrand.Float64())) {
				return
			}
		}
		s.alerts.Done(m)
	}
}

// sendAlert sends the frame of an alert, then the alert. An error means that it must be sent again.
func (s *Sender) sendAlert(ctx context.Context, cm *autopaho.ConnectionManager, m outbox.Message) error {
	topic := frameTopic(m.Topic)
	s.mu.Lock()
	frame := s.values[topic]
	waiting := frame != nil && frame.waiting && frame.frame != nil
	s.mu.Unlock()
	if waiting {
		if err := s.sendValue(ctx, cm, topic, frame); err != nil {
			return err
		}
	}
	err := s.publish(ctx, cm, m.Topic, m.Body, false)
	if _, refused := errors.AsType[*refusedError](err); err == nil || refused {
		return nil
	}
	s.log.Debug().Err(err).Msg("alert not sent; retrying")
	return err
}

// refusedError is returned for a message that the broker refuses permanently.
type refusedError struct{ reason string }

func (e *refusedError) Error() string { return "the broker refused the message: " + e.reason }

// publish sends a message and waits for its acknowledgement. It logs and counts a *refusedError.
func (s *Sender) publish(ctx context.Context, cm *autopaho.ConnectionManager, topic string, payload []byte, retain bool) error {
	s.mu.Lock()
	l := s.limits
	s.mu.Unlock()
	ctx, cancel := s.whileUp(ctx)
	defer cancel()
	var err error
	if n := len(topic) + len(payload) + 64; n > l.size {
		err = &refusedError{fmt.Sprintf("%d bytes are more than its %d", n, l.size)}
	} else {
		var res *paho.PublishResponse
		res, err = cm.Publish(ctx, &paho.Publish{Topic: topic, Payload: payload, QoS: l.qos, Retain: retain && l.retain})
		if err != nil && res != nil && final(res.ReasonCode) {
			err = &refusedError{fmt.Sprintf("reason 0x%02x, see MQTT 5, 3.4.2.1", res.ReasonCode)}
		}
	}
	if refused, ok := errors.AsType[*refusedError](err); ok {
		if s.failed.Add(1) == 1 {
			s.log.Warn().Err(refused).Str("topic", topic).Msg("message refused; counting further ones")
		}
	}
	if err == nil {
		s.sent.Add(1)
	}
	return err
}

// final reports whether another attempt with the same message would fail too.
func final(reason byte) bool {
	return reason == packets.PubackNotAuthorized || reason == packets.PubackTopicNameInvalid || reason == packets.PubackPayloadFormatInvalid
}

// Collector exports the counts of messages and the state of the connection.
func (s *Sender) Collector() prometheus.Collector {
	return metrics.Bundle{
		metrics.Counter("touchline_mqtt_sent_total", "Messages that the broker has accepted.", s.sent.Load),
		metrics.Counter("touchline_mqtt_refused_total", "Messages that the broker has refused for good.", s.failed.Load),
		metrics.Counter("touchline_mqtt_dropped_total", "Values of new topics beyond the limit of topics.", s.dropped.Load),
		metrics.Gauge("touchline_mqtt_connected", "1 while the broker is connected.", func() float64 { return metrics.Flag(s.connected.Load()) }),
	}
}
