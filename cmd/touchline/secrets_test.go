//go:build integration && !nodemo

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/agent/room/conn"
	"touchline/agent/sfu"
	"touchline/agent/sfu/sfutest"
)

// The secrets. Each is passed to a program in its documented way and must not
// appear in the program's output.
const (
	secretAPI     = "APISECRETapisecretAPISECRETapisecret0"
	secretConsole = "CONSOLETOKENconsoletoken0"
	secretRemote  = "REMOTEKEYremotekeyREMOTEKEY0"
	secretVoice   = "VOICEKEYvoicekeyVOICEKEY0000"
	secretHearing = "HEARINGKEYhearingkeyHEARINGKEY00"
	secretWhip    = "WHIPKEYwhipkeyWHIPKEY0"
	secretPass    = "PASSWORDpasswordPASSWORD0"
	secretQuery   = "QUERYKEYquerykeyQUERYKEY0"
	secretWorker  = "WORKERTOKENworkertoken0"
	secretHook    = "HOOKSECREThooksecretHOOKSECREThook0"
	secretRoom    = "E2EEKEYe2eekeyE2EEKEY0"
	// secretStream is an invalid LiveKit token in a request.
	secretStream = "eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJzZWNyZXQifQ.STREAMstreamSTREAMstream0"
)

func secrets() []string {
	return []string{
		secretAPI, secretConsole, secretRemote, secretVoice, secretHearing, secretWhip, secretPass, secretQuery, secretWorker, secretHook, secretRoom, secretStream,
		"STREAMstreamSTREAMstream0",
	}
}

// token matches an access token (RFC 7519, compact form).
var token = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}`)

// everything is the output of a program.
type everything struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (e *everything) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.buf.Write(b)
}

func (e *everything) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.buf.String()
}

// clean fails for each secret in a text.
func clean(t *testing.T, what, said string) {
	t.Helper()
	for _, s := range secrets() {
		if i := strings.Index(said, s); i >= 0 {
			t.Errorf("%s says %s...: %q", what, s[:8], said[max(0, i-200):min(len(said), i+len(s)+40)])
		}
	}
	if at := token.FindStringIndex(said); at != nil {
		t.Errorf("%s says an access token: %q", what, said[max(0, at[0]-200):at[1]])
	}
}

// ask sends a request with wrong credentials and returns the response with its headers.
func ask(ctx context.Context, method, url string, head map[string]string, body string) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	for k, v := range head {
		req.Header.Set(k, v)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20)) // an endless answer ends with ctx
	var out bytes.Buffer
	_ = res.Header.Write(&out)
	out.Write(b)
	return out.String()
}

// secretRun is one run of a program with secrets.
type secretRun struct {
	name string
	args []string // {http} is a free address, {media} a server with a password
	env  []string
	// ready is printed after the program has used the secrets.
	ready string
	// ask is a request to {http} after that, as METHOD PATH.
	ask []string
	// wrote is a folder with files of the program.
	wrote string
}

func TestSecretsAreNeverSaid(t *testing.T) {
	t.Parallel()
	server, _ := sfutest.Start(t, sfu.Options{APIKey: "key", APISecret: secretAPI})
	ready, err := conn.AgentToken(conn.Keys{APIKey: "key", APISecret: secretAPI}, conn.Person{Room: "match", Identity: "bot"})
	require.NoError(t, err)
	media := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="camera"`)
		http.Error(w, "who are you?", http.StatusUnauthorized)
	}))
	t.Cleanup(media.Close)
	closed := freeAddress(t)

	keys := []string{"LIVEKIT_URL=" + server.URL(), "LIVEKIT_API_KEY=key", "LIVEKIT_API_SECRET=" + secretAPI}
	more := []string{
		"TOUCHLINE_AGENT_CONSOLE_TOKEN=" + secretConsole, "TOUCHLINE_INFERENCE_REMOTE_API_KEY=" + secretRemote,
		"TOUCHLINE_INFERENCE_VOICE_API_KEY=" + secretVoice,
		"TOUCHLINE_INFERENCE_RECOGNIZER_API_KEY=" + secretHearing, "TOUCHLINE_AGENT_E2EE_KEY=told=" + secretRoom + ",beyond=" + secretRoom,
	}
	page := []string{
		"GET /metrics", "GET /healthz", "GET /readyz", "GET /api/status", "GET /api/history", "GET /api/frames/0", "GET /api/events",
		"POST /api/login", "POST /api/instruction", "POST /api/settings", "GET /rtc/validate?access_token=" + secretStream,
		"GET /rtc?access_token=" + secretStream, "GET /rtc/v1/validate?access_token=" + secretStream, "GET /nowhere?token=" + secretConsole,
	}
	remote := []string{
		"TOUCHLINE_INFERENCE_ENGINE=remote", "TOUCHLINE_INFERENCE_REMOTE_URL=" + media.URL + "/v1", "TOUCHLINE_INFERENCE_REMOTE_MODEL=eye",
	}
	kept := t.TempDir()
	hooks := filepath.Join(t.TempDir(), "touchline.yaml")
	require.NoError(t, os.WriteFile(hooks, fmt.Appendf(nil, "agent: {webhook: {retries: 0, urls: [%q, {url: %q, signing_key: ops}]}}",
		media.URL+"/hook?key="+secretQuery, "http://"+closed+"/"+secretQuery), 0o600))
	rooms := []string{
		"GET /", "GET /rooms/match", "GET /api/rooms", "POST /api/rooms", "GET /api/rooms/match", "PATCH /api/rooms/match", "GET /api/rooms/match/events",
		"GET /api/rooms/match/comments", "POST /api/rooms/match/sources", "POST /whep/match", "DELETE /api/rooms/no%20such", "GET /openapi.json",
	}
	// Runs in parallel need different identities in the room.
	runs := []secretRun{
		{name: "demo", args: []string{"demo", "--listen", "{http}"}, env: more, ready: `"outcome":"spoken"`, ask: page},
		{
			name: "join", args: []string{"join", "--room", "match", "--listen", "{http}"},
			env: slices.Concat(keys, more), ready: "joined the room", ask: page,
		},
		{
			name: "join with a ready token", args: []string{"join", "--listen", "{http}"},
			env: append([]string{"LIVEKIT_URL=" + server.URL(), "TOUCHLINE_AGENT_LIVEKIT_TOKEN=" + ready}, more...), ready: "joined the room", ask: page,
		},
		{
			name: "join with a refused token", args: []string{"join", "--listen", "{http}"},
			env: append([]string{"LIVEKIT_URL=" + server.URL(), "TOUCHLINE_AGENT_LIVEKIT_TOKEN=" + secretStream}, more...),
		},
		{
			name: "join with a wrong secret", args: []string{"join", "--room", "match", "--listen", "{http}"},
			env: append([]string{"LIVEKIT_URL=" + server.URL(), "LIVEKIT_API_KEY=key", "LIVEKIT_API_SECRET=" + secretPass + secretPass}, more...),
		},
		{
			name: "join with a server away", args: []string{"join", "--room", "match", "--listen", "{http}"},
			env:   append([]string{"LIVEKIT_URL=ws://" + closed, "LIVEKIT_API_KEY=key", "LIVEKIT_API_SECRET=" + secretAPI}, more...),
			ready: "reconnecting to the room", ask: page,
		},
		{
			name: "a model server that refuses", args: []string{"join", "--room", "model", "--listen", "{http}"},
			env: slices.Concat(keys, more, remote), ready: "401", ask: page,
		},
		{
			name: "agent", args: []string{"agent", "--agent-name", "commentator", "--http", "{http}", "--simulate", "match"},
			env:   slices.Concat(keys, more, []string{"LIVEKIT_WORKER_TOKEN=" + secretWorker}),
			ready: "joined the room", ask: []string{"GET /", "GET /worker", "GET /metrics", "GET /nowhere?token=" + secretConsole},
		},
		{
			name: "agent with a page", args: []string{"agent", "--http", "off", "--console", "{http}"},
			env:   slices.Concat(keys, more, []string{"TOUCHLINE_SOURCES_WHIP_KEYS=" + secretWhip, "LIVEKIT_WORKER_TOKEN=" + secretWorker}),
			ready: "WHIP server started", ask: []string{
				"POST /whip/match", "POST /whip/match?key=" + secretWhip, "POST /whip/match?access_token=" + secretStream,
				"DELETE /whip/match/" + secretStream, "POST /whep/match?key=" + secretConsole, "GET /api/rooms", "GET /metrics",
			},
		},
		{
			name: "agent with a wrong secret", args: []string{"agent", "--http", "{http}"},
			env: append([]string{"LIVEKIT_URL=" + server.URL(), "LIVEKIT_API_KEY=key", "LIVEKIT_API_SECRET=" + secretPass + secretPass}, more...),
		},
		{
			name: "camera over HTTP", args: []string{"camera", "http://user:" + secretPass + "@{media}/live?key=" + secretQuery},
			env: keys, ready: "Waiting for the camera",
		},
		{
			name: "camera over HTTP that is away", args: []string{"camera", "http://user:" + secretPass + "@" + closed + "/live?key=" + secretQuery},
			env: keys, ready: "Waiting for the camera",
		},
		{
			name: "camera over RTSP", args: []string{"camera", "rtsp://user:" + secretPass + "@" + closed + "/live?key=" + secretQuery},
			env: keys, ready: "Waiting for the camera",
		},
		{
			name: "camera of an address that is none", args: []string{"camera", "rtsp://user:" + secretPass + "@[::1/live?key=" + secretQuery},
			env: keys,
		},
		{
			name: "camera that takes WHIP", args: []string{"camera", "--whip", "{http}", "--whip-key", secretWhip},
			env: keys, ready: "whip", ask: []string{
				"POST /whip/match", "POST /whip/match?access_token=" + secretStream, "GET /whip/match", "DELETE /whip/match/" + secretStream,
			},
		},
		{
			name: "webhooks and history", args: []string{"--config", hooks, "join", "--room", "told", "--listen", "{http}"},
			env: slices.Concat(keys, more, []string{
				"TOUCHLINE_AGENT_WEBHOOK_API_KEY=hook", "TOUCHLINE_AGENT_WEBHOOK_API_SECRET=" + secretHook,
				"TOUCHLINE_AGENT_WEBHOOK_KEYS=ops: " + secretHook, "TOUCHLINE_AGENT_HISTORY_STORE=file", "TOUCHLINE_AGENT_HISTORY_PATH=" + kept,
			}),
			ready: "webhook failed", ask: page, wrote: kept,
		},
		{
			name: "webhook with a password", args: []string{"join"},
			env: append([]string{"TOUCHLINE_AGENT_WEBHOOK_URLS=https://user:" + secretPass + "@host/?key=" + secretQuery}, keys...),
		},
		{
			name: "webhook keys that are none", args: []string{"join"},
			env: append([]string{"TOUCHLINE_AGENT_WEBHOOK_KEYS=" + secretHook}, keys...),
		},
		{
			name: "two keys for all rooms", args: []string{"join"},
			env: append([]string{"TOUCHLINE_AGENT_E2EE_KEY=" + secretRoom + "," + secretRoom}, keys...),
		},
		{
			name: "history without a folder", args: []string{"join"},
			env: slices.Concat(keys, more, []string{"TOUCHLINE_AGENT_HISTORY_STORE=sqlite", "TOUCHLINE_AGENT_HISTORY_PATH=" + filepath.Join(hooks, "store")}),
		},
		{
			name: "agent with a page for all rooms", args: []string{"agent", "--http", "off", "--console", "{http}", "--simulate", "match"},
			env:   slices.Concat(keys, more, []string{"LIVEKIT_WORKER_TOKEN=" + secretWorker}),
			ready: "joined the room", ask: slices.Concat(rooms, page),
		},
		{
			name: "page beyond this machine", args: []string{"join", "--room", "beyond", "--listen", "0.0.0.0:{port}"},
			env: slices.Concat(keys, more), ready: "joined the room", ask: page,
		},
		{
			name: "agent with a page beyond this machine", args: []string{"agent", "--agent-name", "beyond", "--http", "off", "--console", "0.0.0.0:{port}", "--simulate", "match"},
			env: slices.Concat(keys, more), ready: "joined the room", ask: rooms,
		},
		{name: "check", args: []string{"check"}, env: slices.Concat(keys, more, remote)},
	}
	for _, r := range runs {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			r.run(t, media.Listener.Addr().String())
		})
	}
}

// triedPort is the last one that freeAddress has tried.
var triedPort atomic.Int32

// freeAddress returns a free address below the ephemeral ports (net.ipv4.ip_local_port_range).
func freeAddress(t *testing.T) string {
	t.Helper()
	triedPort.CompareAndSwap(0, int32(20000+os.Getpid()%10000))
	for range 1000 {
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", triedPort.Add(1)))
		if err == nil {
			require.NoError(t, l.Close())
			return l.Addr().String()
		}
	}
	t.Fatal("no free port")
	return ""
}

func (r secretRun) run(t *testing.T, media string) {
	t.Helper()
	address := freeAddress(t)
	_, port, _ := strings.Cut(address, ":")
	args := []string{"--log-level=debug", "--log-json"}
	for _, a := range r.args {
		args = append(args, strings.NewReplacer("{http}", address, "{port}", port, "{media}", media).Replace(a))
	}
	said := &everything{}
	cmd := exec.Command("./bin/touchline", args...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "TOUCHLINE_") || strings.HasPrefix(v, "LIVEKIT_")
	}), append([]string{"TOUCHLINE_INFERENCE_SIGHT_BUNDLE=/nowhere"}, r.env...)...)
	cmd.Stdout, cmd.Stderr = said, said
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }() // the exit code does not matter
	defer func() { _ = cmd.Process.Kill(); <-ended }()
	if r.ready != "" {
		if !assert.Eventually(t, func() bool { return strings.Contains(said.String(), r.ready) }, startWait, 50*time.Millisecond) {
			t.Logf("it said:\n%s", said.String())
		}
		for _, a := range r.ask {
			method, path, _ := strings.Cut(a, " ")
			require.Eventually(t, func() bool { return ask(t.Context(), method, "http://"+address+path, nil, "") != "" },
				startWait, 50*time.Millisecond, "%s is answered", a)
			for _, head := range []map[string]string{
				nil,
				{"Authorization": "Bearer " + secretConsole},
				{"Authorization": "Bearer " + secretStream, "Content-Type": "application/sdp", "X-Forwarded-For": "10.1.2.3"},
				{"Authorization": "Bearer " + secretWhip, "Content-Type": "application/sdp"},
			} {
				clean(t, a, ask(t.Context(), method, "http://"+address+path, head, `{"token": "`+secretConsole+`", "instruction": 1}`))
			}
		}
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	}
	select {
	case <-ended:
	case <-time.After(startWait):
		t.Error("the program does not end")
	}
	require.NotEmpty(t, said.String())
	clean(t, "the program", said.String())
	if r.wrote != "" {
		files, err := os.ReadDir(r.wrote)
		require.NoError(t, err)
		for _, f := range files {
			text, err := os.ReadFile(filepath.Join(r.wrote, f.Name()))
			require.NoError(t, err)
			clean(t, f.Name(), string(text))
		}
	}
}
