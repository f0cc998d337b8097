package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"touchline/agent/console"
	"touchline/agent/worker"
	"touchline/configs"
)

func TestMediaFollowsThePage(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:8199": "", "[::1]:8199": "", "127.0.0.5:1": "", "192.0.2.7:8199": "192.0.2.7",
	} {
		ip, err := mediaIP(t.Context(), listen)
		require.NoError(t, err, listen)
		require.Equal(t, want, ip, listen)
	}
	for _, listen := range []string{":8199", "0.0.0.0:8199", "[::]:8199"} {
		ip, err := mediaIP(t.Context(), listen)
		require.NoError(t, err, listen)
		if ip != "" { // a machine with an address but loopback
			require.False(t, net.ParseIP(ip).IsLoopback(), listen)
			require.NotNil(t, net.ParseIP(ip).To4(), listen)
		}
	}
	_, err := mediaIP(t.Context(), "8199")
	require.ErrorContains(t, err, "HOST:PORT")
}

func TestVariablesOfFlagsAreNoSettings(t *testing.T) {
	var c cli
	parser, err := kong.New(&c)
	require.NoError(t, err)
	names := flagVariables(parser.Model.Node)
	require.Contains(t, names, "TOUCHLINE_ORT")
	for _, v := range configs.Variables() {
		require.NotContains(t, names, v.Name, "one name for two things")
	}
}

func TestWorkerFlagsGoOverVariablesAndThoseOverTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "touchline.yaml")
	require.NoError(t, os.WriteFile(path, []byte("agent: {worker: {slots: 1, full_cpu: 0.5, type: publisher, agent_name: file}}"), 0o600))
	cfg, err := configs.Load(path, []string{
		"TOUCHLINE_AGENT_WORKER_SLOTS=2", "TOUCHLINE_AGENT_WORKER_FULL_CPU=0.6", "LIVEKIT_AGENT_NAME=env",
	})
	require.NoError(t, err)
	var c cli
	parser, err := kong.New(&c)
	require.NoError(t, err)
	_, err = parser.Parse([]string{"agent", "--slots", "3", "--agent-name", "", "--drain-timeout", "5s"})
	require.NoError(t, err)
	require.Equal(t, worker.Config{
		Slots: 3, FullCPU: 0.6, Type: "publisher", DrainTimeout: 5 * time.Second, HTTP: ":8081", Console: worker.HTTPOff,
	}, c.Agent.over(cfg.Agent.Worker))
	require.Equal(t, 5*time.Second+leaveTimeout, c.Agent.shutdownTimeout(cfg))
	require.Equal(t, "env", cfg.Agent.Worker.AgentName)
}

func TestPageFlags(t *testing.T) {
	c := console.Config{Listen: "127.0.0.1:8199"}
	pageFlags{}.apply(&c)
	require.Equal(t, console.Config{Listen: "127.0.0.1:8199"}, c)
	pageFlags{TLS: true, Listen: "0.0.0.0:1"}.apply(&c)
	require.Equal(t, console.Config{Listen: "0.0.0.0:1", SelfSigned: true}, c)
	own := console.Config{TLSCert: "a.pem", TLSKey: "b.pem"}
	pageFlags{TLS: true}.apply(&own)
	require.False(t, own.SelfSigned)
}
