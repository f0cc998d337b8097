//go:build integration

package console_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"touchline/agent/console"
	"touchline/agent/events"
)

// proxyConfigs are the least configurations of the proxies, by the address to listen on, the console's, what the documentation says, and a
// folder.
var proxyConfigs = []struct {
	program, snippet string
	args             []string
	config           string
}{
	{"nginx", `with .proxy_pass.:`, []string{"-c"}, `
		daemon off; master_process off; pid %[4]s/pid; error_log stderr; events {}
		http {
			access_log off; client_body_temp_path %[4]s/a; proxy_temp_path %[4]s/b; fastcgi_temp_path %[4]s/c; uwsgi_temp_path %[4]s/d;
			scgi_temp_path %[4]s/e;
			server { listen %[1]s; location / { proxy_pass http://%[2]s; %[3]s } }
		}`},
	{"haproxy", `.defaults. or the backend:`, []string{"-db", "-f"}, `
defaults
	timeout connect 5s
	timeout client 1m
	timeout server 1m
%[3]s
frontend f
	bind %[1]s
	default_backend b
backend b
	server s %[2]s
`},
}

// TestProxyPrograms: behind nginx and HAProxy with the settings of docs/api.md, clients have limits of their own, events come at once, and
// WebSockets open for a page of the same host.
func TestProxyPrograms(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/api.md")
	require.NoError(t, err)
	for _, tt := range proxyConfigs {
		t.Run(tt.program, func(t *testing.T) {
			t.Parallel()
			program, err := exec.LookPath(tt.program)
			if err != nil {
				program, err = exec.LookPath("/usr/sbin/" + tt.program)
			}
			if err != nil {
				t.Skipf("%s is not installed: scripts/setup.sh test installs it", tt.program)
			}
			snippet := regexp.MustCompile(tt.snippet + `\n\n((?: {6}.*\n)+)`).FindSubmatch(doc)
			require.NotNil(t, snippet)

			const token = "correct-horse-battery"
			hub := events.NewHub(events.Options{History: -1})
			r := open(t, console.Options{
				Room: console.Room{Name: "final", Bot: newDesk(), Hub: hub, Pictures: newStudio()}, Transcription: transcriber(),
				Config: console.Config{Token: token, TrustedProxies: []string{"127.0.0.1"}},
			})
			free, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			address, dir := free.Addr().String(), t.TempDir()
			require.NoError(t, free.Close())
			path := filepath.Join(dir, "config")
			text := fmt.Sprintf(tt.config, address, strings.TrimPrefix(strings.TrimSuffix(r.URL(), "/"), "http://"), snippet[1], dir)
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			var complaints bytes.Buffer
			cmd := exec.CommandContext(t.Context(), program, append(tt.args, path)...)
			cmd.Stdout, cmd.Stderr = &complaints, &complaints
			require.NoError(t, cmd.Start())
			t.Cleanup(func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				if t.Failed() {
					t.Logf("%s: %s", tt.program, complaints.String())
				}
			})
			ask := func(path string) (*http.Response, error) {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
				require.NoError(t, err)
				req.Header.Set("Authorization", "Bearer "+token)
				req.Header.Set("Origin", "http://"+address)
				return http.DefaultClient.Do(req)
			}
			require.Eventually(t, func() bool {
				res, err := ask("/api/rights")
				if err == nil {
					_ = res.Body.Close()
				}
				return err == nil && res.StatusCode == http.StatusOK
			}, time.Minute, 50*time.Millisecond)

			limits(t, "http://"+address, true)

			res, err := ask("/api/events")
			require.NoError(t, err)
			t.Cleanup(func() { _ = res.Body.Close() })
			require.Equal(t, http.StatusOK, res.StatusCode)
			hub.Record(record(1, "shown", "a goal"))
			came := make(chan error, 1)
			go func() {
				var got []byte
				for piece := make([]byte, 4096); !bytes.Contains(got, []byte("a goal")); {
					n, err := res.Body.Read(piece)
					got = append(got, piece[:n]...)
					if err != nil {
						came <- err
						return
					}
				}
				came <- nil
			}()
			select {
			case err := <-came:
				require.NoError(t, err)
			case <-time.After(wait):
				require.FailNow(t, "the event does not come")
			}

			socket, res, err := websocket.DefaultDialer.DialContext(t.Context(), "ws://"+address+"/ws/transcribe",
				http.Header{"Authorization": {"Bearer " + token}, "Origin": {"http://" + address}})
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.NoError(t, socket.WriteControl(websocket.PingMessage, nil, time.Now().Add(wait)))
			pong := make(chan struct{})
			socket.SetPongHandler(func(string) error { close(pong); return nil })
			go func() {
				for err := error(nil); err == nil; {
					_, _, err = socket.ReadMessage()
				}
			}()
			select {
			case <-pong:
			case <-time.After(wait):
				require.FailNow(t, "the socket does not answer")
			}
			require.NoError(t, socket.Close())
		})
	}
}
