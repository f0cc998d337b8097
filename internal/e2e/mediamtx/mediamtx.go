// Package mediamtx runs MediaMTX as a process on 127.0.0.1, for tests and
// benchmarks that need another media server.
//
// It owns the process, its folder and its ports. `make setup-test` builds the program.
package mediamtx

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"text/template"
	"time"
)

// User and Password of readers; paths that begin with "open" need none.
const (
	User     = "viewer"
	Password = "p@ss!word"
)

// startTime bounds the start on a busy machine.
const startTime = 30 * time.Second

// Ports are the server's ports on 127.0.0.1.
type Ports struct{ RTSP, RTSPS, RTP, RTCP, SRTP, SRTCP, HLS, WebRTC, WebRTCUDP int }

// Server is a running MediaMTX.
type Server struct {
	Ports

	cmd  *exec.Cmd
	dir  string
	log  buffer
	once sync.Once
}

// Anyone may publish. Readers authenticate by digest.
const settings = `
logLevel: warn
authInternalUsers:
- {user: any, permissions: [{action: publish}, {action: read, path: ~^open}]}
- {user: '{{.User}}', pass: '{{.Password}}', permissions: [{action: read}]}
rtspTransports: [tcp, udp]
rtspEncryption: optional
rtspAuthMethods: [digest]
rtspAddress: 127.0.0.1:{{.RTSP}}
rtspsAddress: 127.0.0.1:{{.RTSPS}}
rtpAddress: 127.0.0.1:{{.RTP}}
rtcpAddress: 127.0.0.1:{{.RTCP}}
srtpAddress: 127.0.0.1:{{.SRTP}}
srtcpAddress: 127.0.0.1:{{.SRTCP}}
rtmp: no
srt: no
hlsAddress: 127.0.0.1:{{.HLS}}
webrtcAddress: 127.0.0.1:{{.WebRTC}}
webrtcLocalUDPAddress: 127.0.0.1:{{.WebRTCUDP}}
webrtcIPsFromInterfaces: no
webrtcAdditionalHosts: [127.0.0.1]
paths:
{{- range .Pulled}}
  '{{.Name}}': {source: '{{.Source}}', sourceOnDemand: yes}
{{- end}}
  all_others: {}
`

// Pulled is a path whose stream the server pulls on demand.
type Pulled struct{ Name, Source string }

// Find returns the program: in ./bin, next to this program, in one of more folders, or on the PATH.
func Find(more ...string) (string, error) {
	folders := append([]string{"bin"}, more...)
	if self, err := os.Executable(); err == nil {
		folders = append(folders, filepath.Dir(self))
	}
	for _, dir := range folders {
		path, err := filepath.Abs(filepath.Join(dir, "mediamtx"))
		if err != nil {
			continue
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	if path, err := exec.LookPath("mediamtx"); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("mediamtx is not on the PATH nor in %q: make setup-test builds it", folders)
}

// FreePorts returns ports that are free at the moment.
func FreePorts() (Ports, error) {
	var p Ports
	for _, pair := range [][2]*int{{&p.RTP, &p.RTCP}, {&p.SRTP, &p.SRTCP}, {&p.WebRTCUDP, nil}} {
		port, err := freePair()
		if err != nil {
			return p, err
		}
		*pair[0] = port
		if pair[1] != nil {
			*pair[1] = port + 1
		}
	}
	for _, port := range []*int{&p.RTSP, &p.RTSPS, &p.HLS, &p.WebRTC} {
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return p, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close() // after all are chosen, so that they differ
		*port = l.Addr().(*net.TCPAddr).Port
	}
	return p, nil
}

// freePair returns a free even UDP port whose successor is free too.
func freePair() (int, error) {
	for range 100 {
		a, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return 0, fmt.Errorf("find a free port: %w", err)
		}
		port := a.LocalAddr().(*net.UDPAddr).Port
		b, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port + 1})
		_ = a.Close()
		if err != nil {
			continue
		}
		_ = b.Close()
		if port%2 == 0 {
			return port, nil
		}
	}
	return 0, errors.New("find a pair of free ports: none in 100 tries")
}

// Start runs the program, as returned by Find, and returns once it answers. Close stops it.
func Start(ctx context.Context, program string, ports Ports, pulled ...Pulled) (*Server, error) {
	s := &Server{Ports: ports}
	var err error
	if s.dir, err = os.MkdirTemp("", "mediamtx-"); err != nil {
		return nil, fmt.Errorf("start MediaMTX: %w", err)
	}
	if err := s.start(ctx, program, pulled); err != nil {
		s.Close()
		return nil, fmt.Errorf("start MediaMTX: %w: %s", err, s.Log())
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, program string, pulled []Pulled) error {
	t, err := template.New("").Parse(settings)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	err = t.Execute(&text, struct {
		Ports
		User, Password string
		Pulled         []Pulled
	}{s.Ports, User, Password, pulled})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.dir, "mediamtx.yml"), text.Bytes(), 0o600); err != nil {
		return err
	}
	if err := certificate(s.dir); err != nil {
		return err
	}
	s.cmd = exec.CommandContext(context.WithoutCancel(ctx), program, "mediamtx.yml") // ended by Close
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = s.dir, &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for _, port := range []int{s.RTSP, s.RTSPS, s.HLS, s.WebRTC} {
		if err := Answers(ctx, fmt.Sprintf("127.0.0.1:%d", port)); err != nil {
			return err
		}
	}
	return nil
}

// Answers waits until a TCP address accepts connections.
func Answers(ctx context.Context, address string) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp4", address)
		if err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for a listener: %w", err)
		case <-tick.C:
		}
	}
}

// certificate writes a self-signed certificate, as most cameras have.
func certificate(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	for name, b := range map[string]*pem.Block{
		"server.crt": {Type: "CERTIFICATE", Bytes: der}, "server.key": {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(b), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Log returns the output so far.
func (s *Server) Log() string { return s.log.String() }

// Close kills the process and waits for it.
func (s *Server) Close() {
	s.once.Do(func() {
		if s.cmd != nil {
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait() // it was killed
		}
		_ = os.RemoveAll(s.dir) // best effort, in the folder for temporary files
	})
}

// buffer is a log that can be read while it is written.
type buffer struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (b *buffer) Write(p []byte) (int, error) {
	const most = 16 << 10
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p...)
	if n := len(b.text) - most; n > 0 {
		b.text = b.text[n:]
	}
	return len(p), nil
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.text)
}
