package mqtt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
)

// Probe connects to the broker with its user and password, then disconnects without publishing. The error is the reason why the
// broker cannot be used.
func Probe(ctx context.Context, c Config) error {
	s := &Sender{opts: Options{Config: c}}
	var err error
	if s.broker, err = c.broker(); err != nil {
		return fmt.Errorf("agent.mqtt.url: %w", err)
	}
	if s.tls, err = c.tls(s.broker); err != nil {
		return err
	}
	conn, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	// Reads and writes have no context: a deadline in the past ends them.
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	connect := (&paho.Connect{
		ClientID: clientID(), KeepAlive: keepAlive, CleanStart: true,
		Username: c.User, UsernameFlag: c.User != "", Password: []byte(c.Password), PasswordFlag: c.Password != "",
	}).Packet()
	connect.ProtocolName, connect.ProtocolVersion = "MQTT", 5
	if _, err := connect.WriteTo(conn); err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("send CONNECT: %w", err))
	}
	answer, err := packets.ReadPacket(conn)
	if err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("await CONNACK: %w", err))
	}
	ack, ok := answer.Content.(*packets.Connack)
	switch {
	case !ok:
		return fmt.Errorf("expected CONNACK, got %s", answer.PacketType())
	case ack.ReasonCode >= packets.ConnackUnspecifiedError:
		refused := &autopaho.ConnackError{ReasonCode: ack.ReasonCode}
		if ack.Properties != nil {
			refused.Reason = ack.Properties.ReasonString
		}
		return connectError(refused)
	}
	_, _ = (&paho.Disconnect{}).Packet().WriteTo(conn) // a courtesy
	return nil
}
