package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
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

// TestRuntimeOfTheEnvironment: TOUCHLINE_ORT is the runtime of every command that runs a model, and a flag goes over it.
func TestRuntimeOfTheEnvironment(t *testing.T) {
	t.Setenv("TOUCHLINE_ORT", "/opt/ort")
	for args, flag := range map[string]func(c *cli) ortFlag{
		"serve":           func(c *cli) ortFlag { return c.Serve.ortFlag },
		"transcribe a":    func(c *cli) ortFlag { return c.Transcribe.ortFlag },
		"join":            func(c *cli) ortFlag { return c.Join.ortFlag },
		"say a b":         func(c *cli) ortFlag { return c.Say.ortFlag },
		"agent --ort /x":  func(c *cli) ortFlag { return c.Agent.ortFlag },
		"serve --ort /x":  func(c *cli) ortFlag { return c.Serve.ortFlag },
		"check --ort /x ": func(c *cli) ortFlag { return c.Check.ortFlag },
	} {
		var c cli
		parser, err := kong.New(&c)
		require.NoError(t, err)
		_, err = parser.Parse(strings.Fields(args))
		require.NoError(t, err, args)
		var cfg configs.Config
		flag(&c).override(&cfg)
		want := "/opt/ort"
		if strings.Contains(args, "--ort") {
			want = "/x"
		}
		require.Equal(t, want, cfg.Inference.MiniCPM.Runtime, args)
	}
}

// TestFlagsThatWouldChangeNothing: each is refused, with what to do.
func TestFlagsThatWouldChangeNothing(t *testing.T) {
	for args, want := range map[string]string{
		"join --transport udp":                    "--transport: there is no source to open; name it with --source",
		"demo --source webcam --sound":            "--sound: belongs to the generated world",
		"join --once":                             "--once: there is no source",
		"camera --whip :8190 --insecure":          "--insecure: --whip opens no source",
		"camera --whip :8190 --allow none":        "--allow: --whip opens no source",
		"camera webcam --whip-key secret-key":     "--whip-key: there is no WHIP server; start it with --whip HOST:PORT",
		"history match --alerts --format srt":     "choose text or json",
		"history match --all --format vtt":        "choose text or json",
		"history match --zero 20:15":              "choose srt or vtt",
		"join --source webcam --fps 15":           "",
		"camera webcam --size 640x480":            "",
		"camera --whip :8190 --whip-key long-key": "",
		"history match --heard --format srt":      "",
	} {
		var c cli
		parser, err := kong.New(&c)
		require.NoError(t, err)
		if _, err = parser.Parse(strings.Fields(args)); want == "" {
			require.NoError(t, err, args)
		} else {
			require.ErrorContains(t, err, want, args)
		}
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
		Slots: 3, FullCPU: 0.6, Type: "publisher", DrainTimeout: 5 * time.Second, HTTP: "127.0.0.1:8081", Console: worker.HTTPOff,
	}, c.Agent.over(cfg.Agent.Worker))
	require.Equal(t, 5*time.Second+leaveTimeout, c.Agent.shutdownTimeout(cfg))
	require.Equal(t, "env", cfg.Agent.Worker.AgentName)
}

// TestRunFlags: flags of run go over the settings, and its media have the number of the page's port.
func TestRunFlags(t *testing.T) {
	for args, want := range map[string]string{
		"run": "touchline 8199 default",
		"run --listen 127.0.0.1:9000 --room hall": "hall 9000 default",
		"run --media-port 7882 --profile sports":  "touchline 7882 sports",
		"run --listen :0 --media-ip 192.0.2.5":    "touchline 0 default",
		"run --media-ip 192.0.2.5":                "--media-ip: the page listens on this machine only",
		"run --listen 8199":                       "must be host:port",
		"run --listen 127.0.0.1:http --insecure":  "--insecure: there is no source",
	} {
		var c cli
		parser, err := kong.New(&c)
		require.NoError(t, err)
		_, err = parser.Parse(strings.Fields(args))
		got := ""
		if err == nil {
			var cfg configs.Config
			var port int
			cfg, port, err = c.Run.configure(configs.Default())
			got = fmt.Sprintf("%s %d %s", cfg.Agent.LiveKit.Room, port, cfg.Agent.Profile)
		}
		if err != nil {
			got = err.Error()
		}
		require.Contains(t, got, want, args)
	}
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
