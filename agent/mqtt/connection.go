package mqtt

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
)

// client5 returns the settings of the MQTT 5 client.
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
			// Without a session: unacknowledged messages and subscriptions are sent again.
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

// noAuth refuses a broker's request for extended authentication, at which a client without a handler panics.
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

// refused records a failed attempt to connect. It simplifies a last will that the broker does not accept.
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

// connectError describes the error of an attempt to connect.
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

// nextWait returns the wait before the next attempt to connect.
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
	return s.backoff.Lost(stood, now, rand.Float64())
}

// up records a new connection, on which all values are sent again.
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

// down records the loss of the connection. It logs the first error of an outage.
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

// Away returns a text for viewers, without the broker's address, while the broker is not connected; "" otherwise.
func (s *Sender) Away() string {
	if s.Problem() == "" {
		return ""
	}
	return "the MQTT broker is not connected; the log says why"
}

// await waits for a connection. It returns false when ctx has ended.
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

// whileUp returns a context that ends with the connection, because the client waits for acknowledgements even without one.
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
