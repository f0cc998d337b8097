package fakes

import (
	"bufio"
	"context"
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pion/rtp"
	"github.com/pion/rtp/codecs"
)

// User and Password of the paths that require them.
const (
	User     = "admin"
	Password = "p@ss"
)

// PercentPassword is the password of /login-percent.
const PercentPassword = "a%41b"

// RTSP is a camera. The first word of a path selects its fault:
//
//   - good; options-STATUS: OPTIONS is refused; options-mute, options-close: it has no answer; cseq: all responses have number 1
//   - login-MODE: basic, digest, once, qop, stale, sha-offered, nonsense, percent, close, keepalive
//   - refused: every login fails; busy: every login fails while Busy is set
//   - tcp-only-STATUS, udp-silent, udp-no-port, udp-other-port, udp-hangs, udp-unplayed, udp-only, tcp-silent
//   - avpf, savp: the profiles of RFC 4585 and RFC 3711; avpf-offered: it takes RTP/AVP only; savp-first: it offers both
//   - aac-no-config, backchannel, bad-lines, session-nonsense, transport-nonsense, base-nonsense
//   - payload-other, annexb, annexb-split, no-sets, never-key, gop-long, clock-10x, clock-still, clock-ms, nothing
//   - turned: pictures are to be turned by 90 degrees; turning: by Turn
//   - redirect-loop, missing, mute: no answer at all
type RTSP struct {
	listener net.Listener
	ctx      context.Context //nolint:containedctx // of its connections
	stop     context.CancelFunc
	serving  sync.WaitGroup

	// Busy makes /busy refuse the login.
	Busy atomic.Bool
	// Picture is a key frame of H.264 with start codes that replaces all pictures, if it is set. Turn are the quarter turns of /turning.
	Picture atomic.Pointer[[]byte]
	Turn    atomic.Uint32
	// Wrong counts the wrong answers to challenges, Played the PLAY requests, KeepAlives the accepted keep-alives.
	Wrong, Played, KeepAlives atomic.Int64
	open                      atomic.Int64
	nonces                    atomic.Int64
}

// ListenRTSP starts a camera on loopback.
func ListenRTSP(ctx context.Context) (*RTSP, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for RTSP: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	r := &RTSP{listener: l, ctx: ctx, stop: stop}
	r.serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r.serving.Go(func() {
				r.open.Add(1)
				defer r.open.Add(-1)
				defer conn.Close()
				defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
				(&rtspConn{camera: r, conn: conn, in: bufio.NewReader(conn)}).serve()
			})
		}
	})
	return r, nil
}

// Close ends all connections.
func (r *RTSP) Close() {
	r.stop()
	_ = r.listener.Close()
	r.serving.Wait()
}

// Open returns the number of open connections.
func (r *RTSP) Open() int { return int(r.open.Load()) }

// URL returns the address of a path, with USER:PASSWORD unless login is "".
func (r *RTSP) URL(path, login string) string {
	if login != "" {
		login += "@"
	}
	return "rtsp://" + login + r.listener.Addr().String() + "/" + path
}

// rtspConn is one connection.
type rtspConn struct {
	camera  *RTSP
	sending sync.WaitGroup
	conn    net.Conn
	in      *bufio.Reader
	write   sync.Mutex
	used    map[string]bool // nonces
	mode    string
	alive   atomic.Pointer[time.Time] // of the newest keep-alive
	udp     net.PacketConn
	player  *net.UDPAddr
	stop    context.CancelFunc
}

type message struct {
	method, uri string
	header      textproto.MIMEHeader
}

// read returns the next request; interleaved packets are skipped.
func (c *rtspConn) read() (m message, err error) {
	for {
		b, err := c.in.Peek(4)
		if err != nil {
			return m, err
		}
		if b[0] != '$' {
			break
		}
		if _, err := c.in.Discard(4 + int(binary.BigEndian.Uint16(b[2:]))); err != nil {
			return m, err
		}
	}
	in := textproto.NewReader(c.in)
	line, err := in.ReadLine()
	if err != nil {
		return m, err
	}
	words := strings.Fields(line)
	if len(words) != 3 {
		return m, io.ErrUnexpectedEOF
	}
	header, err := in.ReadMIMEHeader()
	return message{words[0], words[1], header}, err
}

// answer sends a response. extra is "Name: value" lines.
func (c *rtspConn) answer(m message, status int, body string, extra ...string) {
	cseq := m.header.Get("CSeq")
	if c.mode == "cseq" {
		cseq = "1"
	}
	text := strings.Join(append([]string{fmt.Sprintf("RTSP/1.0 %d X\r\nCSeq: %s", status, cseq)}, extra...), "\r\n") + "\r\n"
	if body != "" {
		text += "Content-Length: " + strconv.Itoa(len(body)) + "\r\n"
	}
	c.write.Lock()
	defer c.write.Unlock()
	_, _ = io.WriteString(c.conn, text+"\r\n"+body)
}

func (c *rtspConn) serve() {
	ctx, stop := context.WithCancel(c.camera.ctx)
	c.stop, c.used = stop, map[string]bool{}
	defer func() {
		stop()
		c.sending.Wait()
		if c.udp != nil {
			_ = c.udp.Close()
		}
	}()
	for {
		m, err := c.read()
		if err != nil {
			return
		}
		u, err := url.Parse(m.uri)
		if err != nil {
			return
		}
		c.mode, _, _ = strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
		if !c.handle(ctx, m) {
			return
		}
	}
}

// handle answers a request. It returns false if the connection is to be closed.
func (c *rtspConn) handle(ctx context.Context, m message) bool {
	status, ok := strings.CutPrefix(c.mode, "options-")
	switch options := ok && m.method == "OPTIONS"; {
	case c.mode == "mute", options && status == "mute":
		return true
	case options && status == "close":
		return false
	case options:
		code, _ := strconv.Atoi(status)
		c.answer(m, code, "")
		return true
	case !c.login(m):
		return c.mode != "login-close"
	}
	switch m.method {
	case "OPTIONS", "GET_PARAMETER":
		if c.alive.Load() != nil {
			c.keep()
			c.camera.KeepAlives.Add(1)
		}
		c.answer(m, 200, "", "Public: OPTIONS, DESCRIBE, SETUP, PLAY, GET_PARAMETER")
	case "DESCRIBE":
		c.describe(m)
	case "SETUP":
		return c.setup(m)
	case "PLAY":
		if c.mode == "udp-unplayed" && c.udp != nil {
			c.answer(m, 461, "")
			return true
		}
		c.camera.Played.Add(1)
		c.answer(m, 200, "", "Session: 1")
		c.keep()
		mode := c.mode
		c.sending.Go(func() { c.play(ctx, mode) })
	case "TEARDOWN":
		c.answer(m, 200, "")
		return false
	default:
		c.answer(m, 501, "")
	}
	return true
}

func (c *rtspConn) describe(m message) {
	switch c.mode {
	case "redirect-loop":
		c.answer(m, 302, "", "Location: /redirect-loop")
		return
	case "missing":
		c.answer(m, 404, "")
		return
	}
	fmtp := "a=fmtp:96 packetization-mode=1;sprop-parameter-sets=Z0IAKeKQFAe2AtwEBAaQeJEV,aM48gA==\r\n"
	if c.mode == "no-sets" {
		fmtp = "a=fmtp:96 packetization-mode=1\r\n"
	}
	video := "m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n" + fmtp + "a=extmap:5 urn:3gpp:video-orientation\r\na=control:v\r\n"
	head, kind := "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nt=0 0\r\n", "Content-Type: application/sdp"
	extra := []string{}
	switch c.mode {
	case "avpf", "savp":
		video = strings.Replace(video, "RTP/AVP", "RTP/"+strings.ToUpper(c.mode), 1)
	case "avpf-offered":
		video = strings.Replace(video, "RTP/AVP", "RTP/AVPF", 1)
	case "savp-first":
		video = strings.NewReplacer("RTP/AVP", "RTP/SAVP", "control:v", "control:s").Replace(video) + video
	case "aac-no-config":
		video = "m=audio 0 RTP/AVP 97\r\na=rtpmap:97 MPEG4-GENERIC/16000\r\na=control:a\r\n" + video
	case "backchannel":
		video += "m=audio 0 RTP/AVP 97\r\na=rtpmap:97 MPEG4-GENERIC/16000\r\na=sendonly\r\na=control:b\r\n"
	case "bad-lines":
		head, kind = "v=x\r\no=\r\nwhat\r\nb=AS:many\r\n", "Content-Type: text/plain"
	case "base-nonsense":
		extra = append(extra, "Content-Base: ://x", "Content-Base: y")
	}
	c.answer(m, 200, head+video, append(extra, kind)...)
}

// setup returns false if the connection is to be closed.
func (c *rtspConn) setup(m message) bool {
	asked := m.header.Get("Transport")
	session := "Session: 1;timeout=60"
	switch c.mode {
	case "login-keepalive":
		session = "Session: 1;timeout=6"
	case "session-nonsense":
		session = "Session: 1 ; timeout=many;;x"
	}
	feedback := strings.Contains(asked, "RTP/AVPF")
	if feedback && c.mode == "avpf-offered" {
		c.answer(m, 461, "")
		return true
	}
	if strings.Contains(asked, "/TCP") {
		transport := "Transport: RTP/AVP/TCP;unicast;interleaved=0-1"
		switch {
		case c.mode == "udp-only", c.mode == "savp", feedback != (c.mode == "avpf"):
			c.answer(m, 461, "")
			return true
		case feedback:
			transport = "Transport: RTP/AVPF/TCP;unicast;interleaved=0-1"
		case c.mode == "transport-nonsense":
			transport = "Transport: RTP/AVP;unicast;interleaved=0"
		}
		c.answer(m, 200, "", session, transport)
		return true
	}
	if status, ok := strings.CutPrefix(c.mode, "tcp-only-"); ok {
		code, _ := strconv.Atoi(status)
		c.answer(m, code, "")
		return code != 400
	}
	if c.mode == "udp-hangs" {
		return true
	}
	ports := regexp.MustCompile(`client_port=(\d+)`).FindStringSubmatch(asked)
	if ports == nil {
		return false
	}
	port, _ := strconv.Atoi(ports[1])
	udp, err := (&net.ListenConfig{}).ListenPacket(c.camera.ctx, "udp4", "127.0.0.1:0")
	if err != nil {
		return false
	}
	c.udp, c.player = udp, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
	own := udp.LocalAddr().(*net.UDPAddr).Port
	transport := fmt.Sprintf("Transport: RTP/AVP;unicast;client_port=%d-%d;server_port=%d-%d", port, port+1, own, own+1)
	switch c.mode {
	case "udp-no-port":
		transport = fmt.Sprintf("Transport: RTP/AVP;unicast;client_port=%d-%d", port, port+1)
	case "udp-other-port":
		transport = fmt.Sprintf("Transport: RTP/AVP;unicast;client_port=%d-%d;server_port=9-10", port, port+1)
	}
	c.answer(m, 200, "", session, transport)
	return true
}

// login checks a request and challenges it; it returns whether the request may go on.
func (c *rtspConn) login(m message) bool {
	mode, ok := strings.CutPrefix(c.mode, "login-")
	if c.mode == "refused" || c.mode == "busy" && c.camera.Busy.Load() {
		if m.header.Get("Authorization") != "" {
			c.camera.Wrong.Add(1)
		}
		c.challenge(m, "digest")
		return false
	}
	if !ok {
		return true
	}
	got := m.header.Get("Authorization")
	if c.accepts(mode, m, got) {
		return true
	}
	if got != "" {
		c.camera.Wrong.Add(1)
	}
	c.challenge(m, mode)
	return false
}

func (c *rtspConn) challenge(m message, mode string) {
	nonce := fmt.Sprintf("n%d", c.camera.nonces.Add(1))
	digest := `WWW-Authenticate: Digest realm="cam", nonce="` + nonce + `"`
	lines := []string{digest}
	switch mode {
	case "basic":
		lines = []string{`WWW-Authenticate: Basic realm="cam"`}
	case "qop":
		lines = []string{digest + `, qop="auth", opaque="o"`}
	case "stale", "keepalive":
		lines = []string{digest + `, stale=true`}
	case "sha-offered":
		lines = []string{`WWW-Authenticate: Basic realm="x"`, digest + ", algorithm=SHA-256", digest + ", algorithm=MD5"}
	case "nonsense":
		lines = []string{`WWW-Authenticate: Digest`}
	}
	c.answer(m, 401, "", lines...)
}

func (c *rtspConn) accepts(mode string, m message, got string) bool {
	if mode == "basic" || mode == "nonsense" {
		return got == "Basic YWRtaW46cEBzcw=="
	}
	value := func(name string) string {
		if x := regexp.MustCompile(`[ ,]` + name + `="?([^",]*)"?`).FindStringSubmatch(got); x != nil {
			return x[1]
		}
		return ""
	}
	h := func(parts ...string) string {
		sum := md5.Sum([]byte(strings.Join(parts, ":")))
		return hex.EncodeToString(sum[:])
	}
	password := Password
	if mode == "percent" {
		password = PercentPassword
	}
	a1, a2, nonce := h(User, "cam", password), h(m.method, value("uri")), value("nonce")
	want := h(a1, nonce, a2)
	if mode == "qop" {
		want = h(a1, nonce, value("nc"), value("cnonce"), "auth", a2)
		if value("opaque") != "o" || value("qop") != "auth" {
			return false
		}
	}
	if value("response") != want || value("uri") != m.uri {
		return false
	}
	once := mode == "once" || mode == "stale" || mode == "keepalive"
	if once && c.used[nonce] {
		return false
	}
	c.used[nonce] = true
	return true
}

// play sends 25 pictures a second, one in 25 a key frame.
func (c *rtspConn) play(ctx context.Context, mode string) {
	sets := [][]byte{
		{0x67, 0x42, 0x00, 0x29, 0xe2, 0x90, 0x14, 0x07, 0xb6, 0x02, 0xdc, 0x04, 0x04, 0x06, 0x90, 0x78, 0x91, 0x15}, {0x68, 0xce, 0x3c, 0x80},
	}
	out := rtp.NewPacketizer(1200, 96, 7, &codecs.H264Payloader{}, rtp.NewRandomSequencer(), 90000)
	step := map[string]uint32{"clock-10x": 37800, "clock-still": 0, "clock-ms": 40}
	ticks, special := step[mode]
	if !special {
		ticks = 3600
	}
	tick := time.NewTicker(40 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		key := n%25 == 0 && mode != "never-key"
		if mode == "gop-long" {
			key = n == 0
		}
		picture := []byte{0, 0, 0, 1, 0x41, 0x9a, byte(n), 1, 2, 3}
		if key {
			picture = []byte{0, 0, 0, 1, 0x65, 0x88, byte(n), 1, 2, 3}
			if mode != "no-sets" {
				start := []byte{0, 0, 0, 1}
				picture = slices.Concat(start, sets[0], start, sets[1], picture)
			}
		}
		if own := c.camera.Picture.Load(); own != nil {
			picture = *own
		}
		packets := annexB(mode, n, picture)
		if packets == nil {
			packets = out.Packetize(picture, ticks)
		}
		for _, p := range packets {
			switch mode {
			case "payload-other":
				p.PayloadType = 97
			case "turned":
				_ = p.SetExtension(5, []byte{1}) // it fits
			case "turning":
				_ = p.SetExtension(5, []byte{byte(c.camera.Turn.Load())}) // it fits
			}
			c.send(mode, p)
		}
		if mode == "login-keepalive" && time.Since(*c.alive.Load()) > 6*time.Second {
			c.stop()
			_ = c.conn.Close()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// annexB puts a picture with its start codes into one packet, or into two that begin within it; nil for other modes.
func annexB(mode string, n int, picture []byte) []*rtp.Packet {
	first := rtp.Packet{
		Header:  rtp.Header{Version: 2, Marker: true, PayloadType: 96, SequenceNumber: uint16(n), Timestamp: uint32(3600 * n), SSRC: 7},
		Payload: picture,
	}
	switch mode {
	case "annexb":
		return []*rtp.Packet{&first}
	case "annexb-split":
		second := first
		first.Marker, first.Payload, second.Payload = false, picture[:7], picture[7:]
		first.SequenceNumber, second.SequenceNumber = uint16(2*n), uint16(2*n+1)
		return []*rtp.Packet{&first, &second}
	}
	return nil
}

func (c *rtspConn) keep() {
	now := time.Now()
	c.alive.Store(&now)
}

func (c *rtspConn) send(mode string, p *rtp.Packet) {
	b, err := p.Marshal()
	if err != nil || mode == "nothing" || mode == "udp-silent" && c.udp != nil || mode == "tcp-silent" && c.udp == nil {
		return
	}
	if c.udp != nil {
		_, _ = c.udp.WriteTo(b, c.player)
		return
	}
	c.write.Lock()
	defer c.write.Unlock()
	_, _ = c.conn.Write(append([]byte{'$', 0, byte(len(b) >> 8), byte(len(b))}, b...))
}
