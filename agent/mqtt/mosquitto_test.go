//go:build integration

package mqtt_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/alert"
	"touchline/agent/look"
	"touchline/agent/mqtt"
	"touchline/internal/outbox"
)

// mosquitto runs Mosquitto on a port; kill ends it at once.
func mosquitto(t *testing.T, port string) (kill func()) {
	t.Helper()
	program, err := exec.LookPath("mosquitto")
	if err != nil {
		program = "/usr/sbin/mosquitto" // not in the path of all users
	}
	conf := filepath.Join(t.TempDir(), "mosquitto.conf")
	require.NoError(t, os.WriteFile(conf, []byte("listener "+port+" 127.0.0.1\nallow_anonymous true\n"), 0o600))
	cmd := exec.CommandContext(t.Context(), program, "-c", conf)
	require.NoError(t, cmd.Start(), "scripts/setup.sh test installs it")
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(kill)
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, 2*time.Minute, 10*time.Millisecond)
	return kill
}

// subscriber collects "RETAINED TOPIC PAYLOAD" of topics until the test ends.
func subscriber(t *testing.T, port, topics string) (lines func() []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "mosquitto_sub", "-V", "5", "-p", port, "-t", topics, "-q", "1", "-F", "%r %t %p")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var mu sync.Mutex
	var got []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for in := bufio.NewScanner(out); in.Scan(); {
			mu.Lock()
			got = append(got, in.Text())
			mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		_ = cmd.Wait()
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), got...)
	}
}

func containing(lines []string, part string) (n int) {
	for _, l := range lines {
		if strings.Contains(l, part) {
			n++
		}
	}
	return n
}

// TestMosquitto: alerts arrive at a subscriber of Mosquitto, also those of the time in which it was down, and it retains
// what it should.
func TestMosquitto(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, l.Close())
	kill := mosquitto(t, port)
	cfg := mqtt.DefaultConfig()
	cfg.URL = "mqtt://127.0.0.1:" + port
	require.NoError(t, mqtt.Probe(t.Context(), cfg))
	lines := subscriber(t, port, "touchline/match/bot/alert/#")
	box := outbox.New(nil)
	s, stop := start(t, mqtt.Options{Config: cfg, Outbox: box})
	o := s.Output("match", "bot")
	o.Rules(rules("r1"))
	o.State(agent.Status{State: agent.StateListening, Activity: agent.ActivityWatching})
	o.Record(look.Record{Cycle: 3, Text: "Blue plays it back.", Outcome: look.OutcomeSpoken})
	require.Eventually(t, func() bool { // the subscriber may come late, and alerts are not retained
		a := alertOf("r1", 0, alert.PhaseNew)
		a.Test = true
		send(t, box, o, a)
		return len(lines()) > 0
	}, 2*time.Minute, 20*time.Millisecond)
	kill()
	require.ErrorContains(t, mqtt.Probe(t.Context(), cfg), "connection refused")
	require.Eventually(t, func() bool { return s.Problem() != "" }, 2*time.Minute, time.Millisecond)
	for i := range 50 {
		send(t, box, o, alertOf("r1", i+1, alert.PhaseNew))
	}
	require.GreaterOrEqual(t, box.Waiting(), 50)
	mosquitto(t, port)
	again := subscriber(t, port, "#")
	require.Eventually(t, func() bool { return box.Waiting() == 0 }, 2*time.Minute, time.Millisecond)
	require.Eventually(t, func() bool {
		got := append(lines(), again()...)
		for i := range 50 {
			if containing(got, fmt.Sprintf(`"id":"r1-%d"`, i+1)) == 0 {
				return false
			}
		}
		return true
	}, 2*time.Minute, 10*time.Millisecond)
	stop()
	late := subscriber(t, port, "#")
	require.Eventually(t, func() bool {
		return containing(late(), "1 touchline/status/") == 1 && containing(late(), "1 homeassistant/") >= 5
	}, 2*time.Minute, 10*time.Millisecond)
	require.Equal(t, 1, containing(late(), "offline"), "the process, by its last will: %v", late())
	require.Equal(t, 1, containing(late(), "1 touchline/match/bot/rule/r1 ON"))
	require.Equal(t, 3, containing(late(), "1 homeassistant/")-2, "three entities of the rule, two of the commentator")
	require.Zero(t, containing(late(), "/alert/r1 "))
}
