package mqtt_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	mochi "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/alert"
	"touchline/agent/mqtt"
	"touchline/internal/outbox"
)

// connack accepts a connection.
const connack = "\x20\x03\x00\x00\x00"

// speaks connects a client to a broker that sends some bytes and then closes, or waits for the client to close.
func speaks(text string, closes bool) func(context.Context, string) (net.Conn, error) {
	return func(context.Context, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer func() { _ = server.Close() }()
			go func() { _, _ = io.Copy(io.Discard, server) }()
			_, _ = server.Write([]byte(text))
			if !closes {
				<-time.After(10 * time.Second)
			}
		}()
		return client, nil
	}
}

// TestStrangeBrokers: the log says in words what is wrong with a broker.
func TestStrangeBrokers(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"MQTT 3.1.1", "\x20\x02\x00\x01", "MQTT 3.1.1 only"},
		{"MQTT 3.1.1 that accepts", "\x20\x02\x00\x00", "MQTT 3.1.1 only"},
		{"unsupported version", "\x20\x03\x00\x84\x00", "MQTT 3.1.1 only"},
		{"closes", "", "closed the connection without an answer"},
		{"bad password", "\x20\x03\x00\x86\x00", "Bad User Name or Password (0x86); check agent.mqtt.user"},
		{"with a reason", "\x20\x09\x00\x87\x06\x1f\x00\x03off", "Not authorized: off (0x87)"},
		{"HTTP", "HTTP/1.1 400 Bad Request\r\n", "broker not connected"},
		{"endless length", "\x20\xff\xff\xff\xff\xff", "without a valid length"},
		{"huge packet", "\x20\xff\xff\xff\x7f", "packet of 268435455 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				_, stop := start(t, mqtt.Options{
					Config: settings(), Dial: speaks(tt.text, true), Log: zerolog.New(zerolog.SyncWriter(&log)).Level(zerolog.InfoLevel),
				})
				time.Sleep(time.Minute)
				stop()
				require.Contains(t, log.String(), tt.want)
				require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
			})
		})
	}
}

// FuzzBroker: whatever a broker sends, before or after it accepts the connection, alerts are delivered to the next one.
func FuzzBroker(f *testing.F) {
	for _, text := range []string{
		"", "\x20\x02\x00\x01", connack, "\x20\x03\x00\x84\x00", "\x20\xff\xff\xff\x7f", "HTTP/1.1 400 Bad Request\r\n",
		connack + "\x40\x02\x00\x01", connack + "\x40\x03\x00\x01\x87", connack + "\x90\x04\x00\x01\x00\x87", connack + "\xe0\x02\x8b\x00",
		connack + "\x30\x06\x00\x03a/b\x00", connack + "\x32\x02\x00\x01", connack + "\x62\x02\x00\x09", connack + "\x50\x02\x00\x01", connack + "\xd0\x00",
		"\xf0\x02\x18\x00", connack + "\xf0\x02\x18\x00", "\x20\x09\x00\x00\x06\x15\x00\x03abc", connack + connack, connack + "\x00\x00",
		connack + "\x30\x1f\x00\x14homeassistant/status\x00online\x00\x00",
	} {
		f.Add([]byte(text), true)
		f.Add([]byte(text), false)
	}
	f.Fuzz(func(t *testing.T, text []byte, closes bool) {
		synctest.Test(t, func(t *testing.T) {
			b := newBroker(t, nil)
			defer b.close()
			box := outbox.New(nil)
			bad := time.Now().Add(5 * time.Second)
			s, stop := start(t, mqtt.Options{
				Config: settings(), Outbox: box,
				Dial: func(ctx context.Context, host string) (net.Conn, error) {
					if time.Now().Before(bad) {
						return speaks(string(text), closes)(ctx, host)
					}
					return b.dial(ctx, host)
				},
			})
			o := s.Output("match", "bot")
			o.Rules(rules("r1"))
			acked := bytes.Contains(text, []byte{0x40})
			for i := range 3 {
				send(t, box, o, alertOf("r1", i, alert.PhaseNew))
			}
			time.Sleep(time.Minute)
			require.Zero(t, box.Waiting())
			if got := len(once(t, b.of("/alert/r1"))); !acked && got != 3 {
				t.Errorf("%d of 3 alerts", got)
			}
			stop()
			time.Sleep(20 * time.Second) // the broker that waits
		})
	})
}

// TestTLS: a broker with its own certificate authority, a name and a password.
func TestTLS(t *testing.T) {
	t.Parallel()
	certs := httptest.NewUnstartedServer(nil)
	certs.StartTLS()
	defer certs.Close()
	server := mochi.New(&mochi.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	require.NoError(t, server.AddHook(new(auth.Hook), &auth.Options{Ledger: &auth.Ledger{
		Auth: auth.AuthRules{{Username: "touchline", Password: "hunter2", Allow: true}},
	}}))
	l := listeners.NewTCP(listeners.Config{ID: "tls", Address: "127.0.0.1:0", TLSConfig: certs.TLS})
	require.NoError(t, server.AddListener(l))
	require.NoError(t, server.Serve())
	defer func() { _ = server.Close() }()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certs.Certificate().Raw}), 0o600))

	cfg := settings()
	cfg.URL, cfg.CA, cfg.User, cfg.Password = "mqtts://"+l.Address(), ca, "touchline", "hunter2"
	run := func(cfg mqtt.Config, log io.Writer) (s *mqtt.Sender, box *outbox.Outbox, stop func()) {
		box = outbox.New(nil)
		s, stop = start(t, mqtt.Options{Config: cfg, Outbox: box, Log: zerolog.New(zerolog.SyncWriter(log))})
		return s, box, stop
	}
	require.NoError(t, mqtt.Probe(t.Context(), cfg))
	s, box, stop := run(cfg, io.Discard)
	o := s.Output("match", "bot")
	o.Rules(rules("r1"))
	send(t, box, o, alertOf("r1", 1, alert.PhaseNew))
	require.Eventually(t, func() bool { return box.Waiting() == 0 }, 2*time.Minute, time.Millisecond)
	stop()

	for name, bad := range map[string]func(*mqtt.Config){
		"Bad User Name or Password": func(c *mqtt.Config) { c.Password = "hunter3" },
		"certificate":               func(c *mqtt.Config) { c.CA = "" },
	} {
		wrong := cfg
		bad(&wrong)
		require.ErrorContains(t, mqtt.Probe(t.Context(), wrong), name)
		var log bytes.Buffer
		s, _, stop := run(wrong, &log)
		require.Eventually(t, func() bool { return strings.Contains(s.Problem(), name) }, 2*time.Minute, time.Millisecond, name)
		stop()
		require.NotContains(t, log.String(), "hunter")
	}
	cfg.CA = ca + ".none"
	_, err := mqtt.New(mqtt.Options{Config: cfg, Outbox: outbox.New(nil)})
	require.ErrorContains(t, err, "agent.mqtt.ca: open ")
	require.NoError(t, os.WriteFile(ca, []byte("no certificate"), 0o600))
	cfg.CA = ca
	_, err = mqtt.New(mqtt.Options{Config: cfg, Outbox: outbox.New(nil)})
	require.ErrorContains(t, err, "no certificate in "+ca)
}

// TestProbe: it says what is wrong with a broker, and waits no longer than its context.
func TestProbe(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"accepts", connack, ""},
		{"MQTT 3.1.1", "\x20\x02\x00\x01", "MQTT 3.1.1 only"},
		{"closes", "", "closed the connection without an answer"},
		{"authentication", "\xf0\x02\x18\x00", "expected CONNACK, got AUTH"},
		{"huge packet", "\x20\xff\xff\xff\x7f", "packet of 268435455 bytes"},
		{"silent", "silent", "deadline exceeded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			served := make(chan struct{})
			go func() {
				defer close(served)
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer func() { _ = c.Close() }()
				_, _ = c.Read(make([]byte, 256)) // CONNECT
				if tt.text != "silent" {
					_, _ = io.WriteString(c, tt.text)
					return
				}
				_, _ = io.Copy(io.Discard, c)
			}()
			cfg, wait := settings(), time.Minute
			if cfg.URL = "mqtt://" + l.Addr().String(); tt.text == "silent" {
				wait = 100 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			if err = mqtt.Probe(ctx, cfg); tt.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.want)
			}
			<-served
			require.NoError(t, l.Close())
		})
	}
}

// TestConfig: each wrong setting has an error, which repeats no password.
func TestConfig(t *testing.T) {
	t.Parallel()
	require.NoError(t, mqtt.DefaultConfig().Validate())
	require.NoError(t, settings().Validate())
	for _, url := range []string{
		"broker.test", "tcp://broker.test", "mqtt://", "mqtt://me:hunter2@broker.test", "mqtt://broker.test/x", "mqtt://broker.test:0",
		"mqtt://broker.test:99999", "mqtt://broker.test?password=hunter2", "://hunter2",
	} {
		cfg := settings()
		cfg.URL = url
		err := cfg.Validate()
		require.ErrorContains(t, err, "url: must be mqtt://HOST", url)
		require.NotContains(t, err.Error(), "hunter2")
		_, err = mqtt.New(mqtt.Options{Config: cfg, Outbox: outbox.New(nil)})
		require.ErrorContains(t, err, "agent.mqtt.url: must be mqtt://HOST", url)
	}
	for _, bad := range []string{"a b", "/a", "a/", "a/+", "#", "$SYS", strings.Repeat("a", 65), "\xff"} {
		cfg := settings()
		cfg.Prefix, cfg.Discovery = bad, bad
		err := cfg.Validate()
		require.ErrorContains(t, err, "prefix: must be 1 to 64 bytes", bad)
		require.ErrorContains(t, err, fmt.Sprintf("discovery: must be %q or 1 to 64 bytes", ""), bad)
	}
	cfg := settings()
	cfg.Password, cfg.CA = "hunter2", "ca.pem"
	err := cfg.Validate()
	require.ErrorContains(t, err, "user: must be set when TOUCHLINE_AGENT_MQTT_PASSWORD is")
	require.ErrorContains(t, err, "ca: must be empty when url is not mqtts://")
	require.NotContains(t, err.Error(), "hunter2")
}
