// Package mqtt sends alerts, and the state and last comment of rooms, to an MQTT 5 broker, and announces them to Home
// Assistant.
//
// It owns the connection, the topics, and what a topic retains. Alerts wait in an outbox until the broker has
// acknowledged them; of all else only the latest value of a topic is kept. Outputs never wait for the broker.
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
	// Waits between attempts to connect, and after a message that was not accepted.
	firstWait = 250 * time.Millisecond
	maxWait   = 15 * time.Second
	// ackTime bounds the wait for an acknowledgement, and dialTime the one for a connection.
	ackTime  = 10 * time.Second
	dialTime = 10 * time.Second
	// keepAlive is the interval of pings, in seconds.
	keepAlive = 20
	// lastTry bounds the delivery of what is queued at shutdown.
	lastTry = time.Second
	// willLife is the time for which the broker keeps the status of a process that has ended, in seconds.
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
	turn   chan struct{} // holds the one goroutine that sends a value

	sent, failed atomic.Uint64
	connected    atomic.Bool

	mu         sync.Mutex
	outputs    map[*Output]bool
	values     map[string]*value // by topic
	order      []string          // topics with a value to send
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
	frame   *media.VideoFrame // makes the payload
	waiting bool              // to be sent
	last    bool              // its commentator has ended: it is sent once
}

// limits are what a broker accepts.
type limits struct {
	qos    byte
	retain bool
	size   int // of a message, bytes
}

// New makes a Sender; nothing is sent before Run.
func New(opts Options) (*Sender, error) {
	s := &Sender{
		opts: opts, log: opts.Log.With().Str("component", "mqtt").Logger(), client: clientID(),
		wake: wake.New(), turn: make(chan struct{}, 1), ready: make(chan struct{}), values: map[string]*value{}, outputs: map[*Output]bool{},
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

// clientID returns a new client's id.
func clientID() string { return "touchline-" + strings.ToLower(rand.Text()[:10]) }

// statusTopic has the status of the process: online, or offline by last will.
func (s *Sender) statusTopic() string { return s.opts.Config.Prefix + "/status/" + s.client }

// Run sends until ctx ends, then once more what is queued, within a second.
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

// crash switches the rest off after a panic.
func (s *Sender) crash(err error) {
	s.mu.Lock()
	was := s.crashed
	s.crashed = true
	s.mu.Unlock()
	if !was {
		s.log.Error().Err(err).Bytes("stack", rescue.Stack(err)).Msg("mqtt panicked; it is off until the program restarts")
	}
}

// client5 returns the settings of the client.
func (s *Sender) client5() autopaho.ClientConfig {
	life, format := uint32(willLife), byte(1)
	receive, size := uint16(64), uint32(maxPacket)
	return autopaho.ClientConfig{
		ServerUrls: []*url.URL{s.broker}, KeepAlive: keepAlive, CleanStartOnInitialConnection: true, ConnectTimeout: dialTime,
		ReconnectBackoff: s.nextWait,
		AttemptConnection: func(ctx context.Context, _ autopaho.ClientConfig, _ *url.URL) (net.Conn, error) {
			return s.dial(ctx)
		},
		OnConnectionUp: func(_ *autopaho.ConnectionManager, ack *paho.Connack) { s.up(ack) },
		OnConnectionDown: func() bool {
			s.mu.Lock()
			close(s.lost)
			s.ready = make(chan struct{})
			s.mu.Unlock()
			s.down(errors.New("the connection was lost"))
			return true
		},
		OnConnectError:  s.refused,
		ConnectUsername: s.opts.Config.User, ConnectPassword: []byte(s.opts.Config.Password),
		ConnectPacketBuilder: func(c *paho.Connect, _ *url.URL) (*paho.Connect, error) {
			// No session: what is not acknowledged is sent again, and subscriptions are made again.
			c.CleanStart = true
			c.Properties = &paho.ConnectProperties{ReceiveMaximum: &receive, MaximumPacketSize: &size}
			s.mu.Lock()
			defer s.mu.Unlock()
			c.WillMessage = &paho.WillMessage{Topic: s.statusTopic(), Payload: []byte(offline), QoS: s.limits.qos, Retain: s.limits.retain}
			c.WillProperties = &paho.WillProperties{MessageExpiry: &life, PayloadFormat: &format}
			return c, nil
		},
		// The broker sends the will also after a regular end.
		DisconnectPacketBuilder: func() *paho.Disconnect {
			return &paho.Disconnect{ReasonCode: packets.DisconnectDisconnectWithWillMessage}
		},
		ClientConfig: paho.ClientConfig{
			ClientID: s.client, PacketTimeout: ackTime, AuthHandler: noAuth{},
			OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
				s.received(p.Packet.Topic, p.Packet.Payload)
				return true, nil
			}},
		},
	}
}

// noAuth refuses the extended authentication that a broker asks for; without a handler the client panics over it.
type noAuth struct{}

// Authenticate implements paho.Auther.
func (noAuth) Authenticate(*paho.Auth) *paho.Auth { return &paho.Auth{ReasonCode: packets.AuthSuccess} }

// Authenticated implements paho.Auther.
func (noAuth) Authenticated() {}

// dial connects to the broker.
func (s *Sender) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	if s.opts.Dial != nil {
		c, err := s.opts.Dial(ctx, s.broker.Host)
		return &conn{Conn: c}, err
	}
	var c net.Conn
	var err error
	if s.tls != nil {
		c, err = (&tls.Dialer{Config: s.tls}).DialContext(ctx, "tcp", s.broker.Host)
	} else {
		c, err = (&net.Dialer{}).DialContext(ctx, "tcp", s.broker.Host)
	}
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c}, nil
}

// refused notes that an attempt to connect has failed. A last will that the broker does not take becomes a simpler one.
func (s *Sender) refused(err error) {
	if ack, ok := errors.AsType[*autopaho.ConnackError](err); ok {
		s.mu.Lock()
		switch ack.ReasonCode {
		case packets.ConnackRetainNotSupported:
			s.limits.retain = false
		case packets.ConnackQoSNotSupported:
			s.limits.qos = 0
		}
		s.mu.Unlock()
	}
	s.down(connectError(err))
}

// connectError returns the error of an attempt to connect, in words.
func connectError(err error) error {
	refused, ok := errors.AsType[*autopaho.ConnackError](err)
	switch {
	case !ok:
		return err
	case refused.ReasonCode == packets.ConnackUnsupportedProtocolVersion:
		return errOldBroker
	default:
		reason, _, _ := strings.Cut((&packets.Connack{ReasonCode: refused.ReasonCode}).Reason(), " - ")
		if refused.Reason != "" {
			reason += ": " + refused.Reason
		}
		return fmt.Errorf("the broker refused the connection: %s (0x%02x); check agent.mqtt.user, TOUCHLINE_AGENT_MQTT_PASSWORD and "+
			"the broker's log", reason, refused.ReasonCode)
	}
}

// nextWait returns the wait before an attempt to connect.
func (s *Sender) nextWait(attempt int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if attempt == 0 && s.upAt.IsZero() {
		return 0
	}
	now := time.Now()
	var stood time.Duration
	if attempt == 0 {
		stood = now.Sub(s.upAt)
	}
	return s.backoff.Lost(stood, now, mathrand.Float64())
}

// up notes a new connection: all values are sent again.
func (s *Sender) up(ack *paho.Connack) {
	l := limits{qos: 1, retain: true, size: 256 << 20}
	if p := ack.Properties; p != nil {
		l.retain = p.RetainAvailable
		if p.MaximumQoS != nil {
			l.qos = min(l.qos, *p.MaximumQoS)
		}
		if p.MaximumPacketSize != nil {
			l.size = int(min(*p.MaximumPacketSize, 256<<20))
		}
	}
	s.mu.Lock()
	s.limits, s.subscribed, s.upAt, s.lost = l, map[string]bool{}, time.Now(), make(chan struct{})
	close(s.ready)
	s.againLocked()
	was := s.problem
	s.problem = ""
	s.mu.Unlock()
	s.connected.Store(true)
	s.log.Info().Str("broker", s.broker.Host).Bool("again", was != "").Msg("broker connected")
	if !l.retain {
		s.log.Warn().Msg("the broker retains no messages; the state of alerts is unknown after a restart of a subscriber")
	}
}

// down notes that there is no connection; the first error of an outage is logged.
func (s *Sender) down(err error) {
	s.connected.Store(false)
	s.mu.Lock()
	was := s.problem
	s.problem = err.Error()
	s.mu.Unlock()
	ev := s.log.Debug()
	if was == "" {
		ev = s.log.Warn()
	}
	ev.Err(err).Str("broker", s.broker.Host).Msg("broker not connected; retrying")
}

// Problem returns why the broker is not connected; "" when it is, or before the first attempt.
func (s *Sender) Problem() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem
}

// Away says for viewers that the broker is not connected, without its address; "" when it is, or before the first attempt.
func (s *Sender) Away() string {
	if s.Problem() == "" {
		return ""
	}
	return "the MQTT broker is not connected; the log says why"
}

// againLocked marks all values to be sent, those of the process and then of the rooms.
func (s *Sender) againLocked() {
	s.order = s.order[:0]
	for topic, v := range s.values {
		v.waiting = true
		s.order = append(s.order, topic)
	}
	slices.Sort(s.order)
	s.wake.Set()
}

// set sets the value of a topic, which is sent if it has changed.
func (s *Sender) set(topic string, payload []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.values[topic]; v != nil && v.frame == nil && string(v.payload) == string(payload) {
		return
	}
	s.putLocked(topic, &value{payload: payload})
}

func (s *Sender) putLocked(topic string, v *value) {
	v.waiting = true
	s.values[topic] = v
	if !slices.Contains(s.order, topic) {
		s.order = append(s.order, topic)
	}
	s.wake.Set()
}

// offer sends the value of a topic if it is still waiting.
func (s *Sender) offer(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.values[topic]; v != nil && v.waiting && !slices.Contains(s.order, topic) {
		s.order = append(s.order, topic)
		s.wake.Set()
	}
}

// sendValues subscribes and sends values until ctx has ended and none is left.
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

// await waits for a connection; it reports false when ctx has ended.
func (s *Sender) await(ctx context.Context) bool {
	s.mu.Lock()
	ready := s.ready
	s.mu.Unlock()
	select {
	case <-ready:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// pause waits before another attempt; it reports false when there is none.
func pause(ctx, posts context.Context, d time.Duration) bool {
	if ctx.Err() != nil { // at the end, attempts follow each other sooner
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

// nextValue returns the oldest value to be sent.
func (s *Sender) nextValue() (string, *value, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.order) == 0 {
		return "", nil, false
	}
	return s.order[0], s.values[s.order[0]], true
}

// sendValue sends a value unless it was sent. A newer one may replace it meanwhile.
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
	s.order = slices.DeleteFunc(s.order, func(t string) bool { return t == topic })
	if len(payload) == 0 || v.last {
		delete(s.values, topic)
	}
	return nil
}

// sendAlerts sends alerts, one after the other, until ctx has ended and none is left.
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

// sendAlert sends an alert after its frame. It returns an error if it is to be tried again.
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

// refusedError is the error of a message that the broker does not take, now or later.
type refusedError struct{ reason string }

func (e *refusedError) Error() string { return "the broker refused the message: " + e.reason }

// publish sends a message and waits for its acknowledgement. A *refusedError is logged and counted.
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

// whileUp returns a context that ends with the connection: the client waits for an acknowledgement also without one.
func (s *Sender) whileUp(ctx context.Context) (context.Context, context.CancelFunc) {
	s.mu.Lock()
	lost := s.lost
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-lost:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// final reports whether another attempt with the same message is of no use.
func final(reason byte) bool {
	return reason == packets.PubackNotAuthorized || reason == packets.PubackTopicNameInvalid || reason == packets.PubackPayloadFormatInvalid
}

// Collector exports the counts of messages and the state of the connection.
func (s *Sender) Collector() prometheus.Collector {
	return metrics.Bundle{
		metrics.Counter("touchline_mqtt_sent_total", "Messages that the broker has accepted.", s.sent.Load),
		metrics.Counter("touchline_mqtt_refused_total", "Messages that the broker has refused for good.", s.failed.Load),
		metrics.Gauge("touchline_mqtt_connected", "1 while the broker is connected.", func() float64 { return metrics.Flag(s.connected.Load()) }),
	}
}
