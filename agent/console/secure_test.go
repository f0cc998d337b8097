package console_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/console"
	"touchline/agent/events"
	"touchline/internal/clocktest"
)

// echoServer answers WebSockets under /rtc as LiveKit would, and echoes each message.
func echoServer(t *testing.T) (*httptest.Server, <-chan *http.Request) {
	t.Helper()
	asked := make(chan *http.Request, 16)
	up := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r:
		default: // nobody asks about so many
		}
		if strings.HasSuffix(r.URL.Path, "/validate") {
			w.Header().Set("Access-Control-Allow-Origin", "*")
			_, _ = w.Write([]byte("success"))
			return
		}
		conn, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		for {
			kind, data, err := conn.ReadMessage()
			if err != nil || conn.WriteMessage(kind, data) != nil {
				return
			}
		}
	}))
	t.Cleanup(srv.Close)
	return srv, asked
}

func dial(t *testing.T, d *websocket.Dialer, address string, header http.Header) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	conn, resp, err := d.DialContext(ctx, address, header)
	if conn != nil {
		t.Cleanup(func() { _ = conn.Close() })
	}
	if resp != nil {
		t.Cleanup(func() { _ = resp.Body.Close() })
	}
	return conn, resp, err
}

func requireEcho(t *testing.T, conn *websocket.Conn) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(wait)))
	for _, size := range []int{1, 1000, 100_000} {
		sent := []byte(strings.Repeat("a", size))
		require.NoError(t, conn.WriteMessage(websocket.BinaryMessage, sent))
		_, got, err := conn.ReadMessage()
		require.NoError(t, err)
		require.Equal(t, sent, got)
	}
}

func TestSignallingIsProxied(t *testing.T) {
	t.Parallel()
	up, asked := echoServer(t)
	r := open(t, console.Options{Room: console.Room{Tokens: mint{}}, SignalURL: "ws" + strings.TrimPrefix(up.URL, "http"), Config: console.Config{Listen: "0.0.0.0:0"}})
	_, token, _ := strings.Cut(r.opened, "#token=")
	a := r.ask("POST", "/api/login", `{"token":"`+token+`"}`)
	cookie, _, _ := strings.Cut(a.header.Get("Set-Cookie"), ";")

	a = r.ask("POST", "/api/livekit/token", `{"role":"viewer","name":"Anna"}`, "Cookie", cookie)
	var grant struct{ URL, Token, Identity, Room string }
	require.NoError(t, json.Unmarshal(a.body, &grant))
	require.Equal(t, "viewer-Anna", grant.Identity)
	require.Equal(t, "demo", grant.Room)
	u, err := url.Parse(r.URL())
	require.NoError(t, err)
	require.Equal(t, "ws://"+u.Host, grant.URL, "on this same host and port")

	// As livekit-client does it: /rtc or /rtc/v1 behind the URL, its token in the query.
	for _, path := range []string{"/rtc", "/rtc/v1"} {
		header := http.Header{"Cookie": {cookie + "; other=1"}, "Origin": {"http://" + u.Host}}
		conn, _, err := dial(t, websocket.DefaultDialer, grant.URL+path+"?access_token="+grant.Token, header)
		require.NoError(t, err)
		requireEcho(t, conn)
		got := <-asked
		require.Equal(t, path, got.URL.Path)
		require.Equal(t, grant.Token, got.URL.Query().Get("access_token"))
		require.Equal(t, "other=1", got.Header.Get("Cookie"), "our cookie stays here")
		require.Equal(t, strings.TrimPrefix(up.URL, "http://"), got.Host)
	}
	a = r.ask("GET", "/rtc/validate?access_token=x", "", "Cookie", cookie, "Authorization", "Bearer livekit")
	require.Equal(t, "success", string(a.body))
	require.Empty(t, a.header.Get("Access-Control-Allow-Origin"))
	require.Len(t, a.header.Values("X-Request-Id"), 1)
	require.Equal(t, "Bearer livekit", (<-asked).Header.Get("Authorization"), "LiveKit's own token goes on")
	require.Equal(t, http.StatusOK, r.ask("GET", "/rtc/validate", "", "Authorization", "Bearer "+token).status)
	require.Empty(t, (<-asked).Header.Get("Authorization"), "ours does not")

	// A page of another site, or a client without the token, is refused.
	_, resp, err := dial(t, websocket.DefaultDialer, grant.URL+"/rtc", http.Header{"Cookie": {cookie}, "Origin": {"http://evil.example"}})
	require.Error(t, err)
	require.Equal(t, http.StatusForbidden, resp.StatusCode)
	_, resp, err = dial(t, websocket.DefaultDialer, grant.URL+"/rtc", nil)
	require.Error(t, err)
	require.Equal(t, http.StatusUnauthorized, resp.StatusCode)
	require.Empty(t, asked)

	// Open sockets end with the console.
	conn, _, err := dial(t, websocket.DefaultDialer, grant.URL+"/rtc", http.Header{"Cookie": {cookie}})
	require.NoError(t, err)
	requireEcho(t, conn)
	r.close()
	_, _, err = conn.ReadMessage()
	require.Error(t, err)
}

func TestSelfSignedTLS(t *testing.T) {
	t.Parallel()
	up, _ := echoServer(t)
	r := open(t, console.Options{Room: console.Room{Bot: newDesk(), Tokens: mint{}}, SignalURL: up.URL, Config: console.Config{Listen: "0.0.0.0:0", SelfSigned: true, AllowedHosts: []string{"desk.example.org"}}})
	base, token, _ := strings.Cut(r.opened, "#token=")
	u, err := url.Parse(base)
	require.NoError(t, err)
	require.Equal(t, "https", u.Scheme)

	// What a person does who compares the fingerprint: take this one certificate.
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", u.Host)
	require.NoError(t, err)
	cert := conn.(*tls.Conn).ConnectionState().PeerCertificates[0] //nolint:forcetypeassert // dialled as TLS
	require.NoError(t, conn.Close())
	require.IsType(t, &ecdsa.PublicKey{}, cert.PublicKey)
	require.Subset(t, cert.DNSNames, []string{"localhost", "desk.example.org"})
	for _, host := range []string{"127.0.0.1", "::1", u.Hostname()} {
		require.NoError(t, cert.VerifyHostname(host))
	}
	require.Less(t, cert.NotAfter.Sub(cert.NotBefore), 398*24*time.Hour, "browsers take no longer ones")

	trust := x509.NewCertPool()
	trust.AddCert(cert)
	r.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trust}, ForceAttemptHTTP2: true}}
	a := r.ask("POST", "/api/login", `{"token":"`+token+`"}`, "Origin", "https://"+u.Host)
	require.Equal(t, http.StatusNoContent, a.status)
	require.Contains(t, a.header.Get("Set-Cookie"), "Secure")
	cookie, _, _ := strings.Cut(a.header.Get("Set-Cookie"), ";")
	a = r.ask("POST", "/api/livekit/token", `{"role":"camera","name":"Phone"}`, "Cookie", cookie)
	require.Contains(t, string(a.body), `"url":"wss://`+u.Host+`"`)

	resp := r.connect("/api/events", "Cookie", cookie)
	require.Equal(t, 2, resp.ProtoMajor, "HTTP/2, so that a browser's few connections do")
	require.Equal(t, http.StatusOK, resp.StatusCode)

	dialer := &websocket.Dialer{TLSClientConfig: &tls.Config{RootCAs: trust}}
	ws, _, err := dial(t, dialer, "wss://"+u.Host+"/rtc/v1", http.Header{"Cookie": {cookie}, "Origin": {"https://" + u.Host}})
	require.NoError(t, err)
	requireEcho(t, ws)
}

// TestDeadlinesSpareStreams: requests have deadlines, idle streams have none.
func TestDeadlinesSpareStreams(t *testing.T) {
	t.Parallel()
	const limit = 500 * time.Millisecond
	for name, secure := range map[string]bool{"http": false, "https": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := events.NewHub(events.Options{History: -1})
			r := open(t, console.Options{
				Room: console.Room{Hub: hub, Bot: newDesk()}, Config: console.Config{SelfSigned: secure, KeepAlive: 3 * limit},
			}, func(s *console.Server) { console.Hurry(s, limit) })
			r.client = &http.Client{Transport: &http.Transport{
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
			}}
			e := r.events("/api/stream")
			ev, err := e.next() // after three times the limit
			require.NoError(t, err)
			require.Equal(t, "keep-alive", ev.comment)
			hub.Caption(agent.Caption{Delta: "still here"})
			require.Equal(t, "still here", e.want("").data)
		})
	}
	t.Run("a body that does not come", func(t *testing.T) {
		t.Parallel()
		r := open(t, console.Options{Room: console.Room{Bot: newDesk()}}, func(s *console.Server) { console.Hurry(s, limit) })
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(r.url(""), "http://"))
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
		require.NoError(t, conn.SetDeadline(time.Now().Add(wait)))
		_, err = conn.Write([]byte("POST /api/instruction HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{"))
		require.NoError(t, err)
		said, err := io.ReadAll(conn) // up to the end that the server makes
		require.NoError(t, err)
		require.Contains(t, string(said), "400 Bad Request")
	})
}

func TestTLSFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	end := time.Now().Add(time.Hour).Truncate(time.Second)
	certificate, cfg := writeCertificate(t, dir, 1, end)
	r := open(t, console.Options{Room: console.Room{Bot: newDesk()}, Config: cfg})
	trust := x509.NewCertPool()
	trust.AddCert(certificate)
	r.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trust}}}
	require.Equal(t, http.StatusOK, r.ask("GET", "/api/status", "").status)
	expires := func(end time.Time) string {
		return fmt.Sprintf("\ntouchline_tls_expires_timestamp_seconds %v\n", float64(end.Unix()))
	}
	require.Contains(t, string(r.ask("GET", "/metrics", "").body), expires(end))

	// The first handshake looks at the files: those that were replaced since the start.
	_, cfg = writeCertificate(t, dir, 2, end)
	r = open(t, console.Options{Room: console.Room{Bot: newDesk()}, Config: cfg})
	end = end.Add(time.Hour)
	certificate, _ = writeCertificate(t, dir, 3, end)
	trust.AddCert(certificate)
	r.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trust}}}
	require.Contains(t, string(r.ask("GET", "/metrics", "").body), expires(end), "after a reload")
}

// writeCertificate writes a certificate and its key.
func writeCertificate(t *testing.T, dir string, serial int64, end time.Time) (*x509.Certificate, console.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotAfter: end, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	require.NoError(t, err)
	pkcs, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	write := func(name, kind string, data []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600))
		require.NoError(t, os.Chtimes(path, time.Time{}, time.Unix(1e9+serial, 0))) // the clocks of file systems are coarse
		return path
	}
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return cert, console.Config{TLSCert: write("cert.pem", "CERTIFICATE", der), TLSKey: write("key.pem", "PRIVATE KEY", pkcs)}
}

// TestTLSFilesAreReadAgain: new files take effect within seconds; a file that is half written or cannot be read changes nothing, and is read
// again.
func TestTLSFilesAreReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now := time.Now()
	var log bytes.Buffer
	_, cfg := writeCertificate(t, dir, 1, now.Add(time.Hour))
	secure, err := console.TLSConfig(cfg, func() time.Time { return now }, zerolog.New(&log))
	require.NoError(t, err)
	serial := func() int64 {
		now = now.Add(11 * time.Second)
		cert, err := secure.GetCertificate(nil)
		require.NoError(t, err)
		return cert.Leaf.SerialNumber.Int64()
	}
	require.Equal(t, int64(1), serial())
	writeCertificate(t, dir, 2, now.Add(time.Hour))
	require.Equal(t, int64(2), serial())
	require.NoError(t, os.WriteFile(cfg.TLSCert, []byte("-----BEGIN"), 0o600))
	require.Equal(t, int64(2), serial())
	require.NoError(t, os.Remove(cfg.TLSKey))
	require.Equal(t, int64(2), serial())
	writeCertificate(t, dir, 3, now.Add(time.Hour))
	require.Equal(t, int64(3), serial())

	// A file that could not be read has the same size and time when it can be, as after a change of its permissions.
	writeCertificate(t, dir, 4, now.Add(time.Hour))
	key, err := os.ReadFile(cfg.TLSKey)
	require.NoError(t, err)
	file, err := os.Stat(cfg.TLSKey)
	require.NoError(t, err)
	for _, data := range [][]byte{make([]byte, len(key)), key} {
		require.NoError(t, os.WriteFile(cfg.TLSKey, data, 0o600))
		require.NoError(t, os.Chtimes(cfg.TLSKey, time.Time{}, file.ModTime()))
		if log.Reset(); data[0] == 0 {
			require.Equal(t, []int64{3, 3, 3}, []int64{serial(), serial(), serial()})
			require.Equal(t, 1, strings.Count(log.String(), "certificate not replaced"), "%s", log.String())
		}
	}
	require.Equal(t, int64(4), serial())
}

// TestSelfSignedCertificateStaysValid: after steps of the clock, and after its year.
func TestSelfSignedCertificateStaysValid(t *testing.T) {
	t.Parallel()
	for _, step := range append([]time.Duration{-48 * time.Hour, 366 * 24 * time.Hour}, clocktest.Steps...) {
		now := time.Now()
		secure, err := console.TLSConfig(console.Config{SelfSigned: true}, func() time.Time { return now }, zerolog.Nop())
		require.NoError(t, err)
		first, err := secure.GetCertificate(nil)
		require.NoError(t, err)
		now = clocktest.Step(now.Add(time.Minute), step)
		cert, err := secure.GetCertificate(nil)
		require.NoError(t, err)
		require.False(t, now.Before(cert.Leaf.NotBefore) || now.After(cert.Leaf.NotAfter), step)
		require.Equal(t, step.Abs() < 40*24*time.Hour && step != -48*time.Hour, first == cert, step)
	}
}
