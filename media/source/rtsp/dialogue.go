package rtsp

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/headers"

	"touchline/media/packet"
	"touchline/media/source"
	"touchline/media/source/login"
)

// maxRedirects bounds the redirects that are followed.
const maxRedirects = 5

// dialogue is the RTSP messages of one connection: it dials, signs requests, and repairs responses before the library reads
// them. The library calls it from one goroutine.
type dialogue struct {
	camera *Camera

	raw  atomic.Pointer[net.Conn] // below TLS; closed from other goroutines
	conn net.Conn
	err  error // of the last dial; the library replaces some by its own

	count     int // of requests
	pending   map[string]exchange
	newest    string
	redirects int
	playing   bool               // PLAY was sent
	answered  bool               // a response came
	refusal   error              // of the login
	upright   packet.Orientation // of the picture
	feedback  map[string]bool    // whether the stream of a control has the profile RTP/AVPF alone
}

// exchange is a request without a response so far.
type exchange struct {
	request *base.Request
	cseq    base.HeaderValue // the library's
	options bool             // the library asked for OPTIONS
}

// dial opens a connection to an allowed address. A password is sent to the camera's own host only.
func (d *dialogue) dial(ctx context.Context, network, address string) (net.Conn, error) {
	u := d.camera.opts.Address.URL
	if u.User != nil && hostOf(address) != hostOf(u.Host) {
		d.err = login.ErrOtherHost
		return nil, d.err
	}
	conn, err := d.camera.opts.Allow.Dialer().DialContext(ctx, network, address)
	d.err, d.conn = err, conn
	if err == nil {
		d.raw.Store(&conn)
	}
	return conn, err
}

// dialTLS is dial with a handshake, which the library would do without a time limit.
func (d *dialogue) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	raw, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	conn := tls.Client(raw, &tls.Config{
		ServerName:         hostOf(address),
		InsecureSkipVerify: d.camera.opts.Insecure, //nolint:gosec // the user's choice, off by default
	})
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		d.err = err
		return nil, err
	}
	d.conn = conn
	return conn, nil
}

// hangUp closes the connection at once, also while the library writes.
func (d *dialogue) hangUp() {
	if conn := d.raw.Load(); conn != nil {
		_ = (*conn).Close()
	}
}

// resolve is for names in RTSP headers.
func (d *dialogue) resolve(ctx context.Context, _, host string) (*net.IPAddr, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(all) == 0 {
		return nil, source.Errorf("find the address of %s: %w", host, err)
	}
	ip := all[0].Unmap()
	return &net.IPAddr{IP: ip.AsSlice(), Zone: ip.Zone()}, d.camera.opts.Allow.Check(ip)
}

// onRequest signs a request and gives it a number of its own.
func (d *dialogue) onRequest(req *base.Request) {
	if len(d.pending) > 16 { // keep-alives without an answer
		clear(d.pending)
	}
	x := exchange{req, req.Header["CSeq"], req.Method == base.Options}
	d.playing = d.playing || req.Method == base.Play
	if x.options && d.camera.noOptions && !d.playing {
		req.Method, req.Header["Accept"] = base.Describe, base.HeaderValue{"application/sdp"}
	}
	if req.Method == base.Setup && withFeedback(req.URL, d.feedback) {
		req.Header["Transport"] = inProfile(req.Header["Transport"], "RTP/AVP", "RTP/AVPF")
	}
	d.number(x)
}

// withFeedback returns the value of the longest control that ends an address.
func withFeedback(u *base.URL, feedback map[string]bool) (with bool) {
	longest := -1
	for control, f := range feedback {
		if len(control) > longest && strings.HasSuffix(u.String(), control) {
			longest, with = len(control), f
		}
	}
	return with
}

// inProfile returns a Transport header with another profile.
func inProfile(v base.HeaderValue, from, to string) (out base.HeaderValue) {
	for _, one := range v {
		out = append(out, strings.Replace(one, from, to, 1))
	}
	return out
}

func (d *dialogue) number(x exchange) {
	d.count++
	d.newest = strconv.Itoa(d.count)
	d.pending[d.newest] = x
	x.request.Header["CSeq"] = base.HeaderValue{d.newest}
	delete(x.request.Header, "Authorization")
	if text := d.camera.login.Authorization(string(x.request.Method), x.request.URL.CloneWithoutCredentials().String()); text != "" {
		x.request.Header["Authorization"] = base.HeaderValue{text}
	}
}

// onResponse repairs a response. A refused request is sent again if another answer may be accepted; its response then has a
// number that the library does not wait for.
func (d *dialogue) onResponse(res *base.Response) {
	d.answered = true
	if res.Header == nil {
		res.Header = base.Header{}
	}
	key := d.newest
	if v := res.Header["CSeq"]; len(v) > 0 {
		key = strings.TrimSpace(v[0])
	}
	x, ok := d.pending[key]
	if !ok && !d.playing { // one request at a time, so it is its response
		key = d.newest
		x, ok = d.pending[key]
	}
	if !ok {
		return
	}
	delete(d.pending, key)
	if res.StatusCode != base.StatusUnauthorized {
		d.camera.login.Accepted(res.Header["Authentication-Info"])
	} else if d.camera.login.Refused(res.Header["WWW-Authenticate"]) {
		if d.again(x) {
			res.Header["CSeq"] = base.HeaderValue{"0"}
			return
		}
	} else {
		d.refusal = d.camera.login.Err(d.camera.opts.Address.URL.Scheme)
	}
	if res.StatusCode == base.StatusUnsupportedTransport && d.withoutFeedback(x) {
		res.Header["CSeq"] = base.HeaderValue{"0"}
		return
	}
	res.Header["CSeq"] = x.cseq
	repairSession(res.Header)
	switch req := x.request; {
	case x.options && res.StatusCode != base.StatusUnauthorized:
		res.StatusCode = base.StatusOK // clients may leave it out, so a refusal means nothing
	case req.Method == base.Describe && res.StatusCode == base.StatusOK:
		repairDescription(res)
		res.Body, d.upright, d.feedback = readableSDP(res.Body, d.camera.opts.Log)
	case req.Method == base.Describe && len(res.Header["Location"]) > 0:
		d.redirect(req, res)
	case req.Method == base.Setup && res.StatusCode == base.StatusOK:
		res.Header["Transport"] = inProfile(res.Header["Transport"], "RTP/AVPF", "RTP/AVP")
		repairTransport(inProfile(req.Header["Transport"], "RTP/AVPF", "RTP/AVP"), res.Header)
	}
}

// again sends a request again.
func (d *dialogue) again(x exchange) bool {
	d.number(x)
	text, err := x.request.Marshal()
	if err != nil {
		return false
	}
	_ = d.conn.SetWriteDeadline(time.Now().Add(answerTime))
	_, err = d.conn.Write(text)
	return err == nil
}

// withoutFeedback sends a request for the profile RTP/AVPF again, for RTP/AVP. It returns false for other requests.
func (d *dialogue) withoutFeedback(x exchange) bool {
	asked := x.request.Header["Transport"]
	plain := inProfile(asked, "RTP/AVPF", "RTP/AVP")
	if slices.Equal(asked, plain) {
		return false
	}
	x.request.Header["Transport"] = plain
	return d.again(x)
}

// redirect makes a redirect absolute. Too many are not followed.
func (d *dialogue) redirect(req *base.Request, res *base.Response) {
	d.redirects++
	to, err := url.Parse(res.Header["Location"][0])
	if err != nil || d.redirects > maxRedirects {
		delete(res.Header, "Location")
		return
	}
	to = (*url.URL)(req.URL).ResolveReference(to)
	to.User = nil
	res.Header["Location"] = base.HeaderValue{to.String()}
}

// repairSession removes what the library cannot read from a Session header.
func repairSession(h base.Header) {
	v := h["Session"]
	if len(v) == 0 {
		return
	}
	var s headers.Session
	if s.Unmarshal(v) != nil {
		s.Session, _, _ = strings.Cut(v[0], ";")
	}
	s.Session = strings.TrimSpace(s.Session)
	h["Session"] = s.Marshal()
}

// repairDescription sets the type of an SDP, and removes an unreadable Content-Base.
func repairDescription(res *base.Response) {
	if strings.HasPrefix(strings.TrimLeft(string(res.Body), "\ufeff\r\n\t "), "v=") {
		res.Header["Content-Type"] = base.HeaderValue{"application/sdp"}
	}
	if v := res.Header["Content-Base"]; len(v) > 0 {
		if _, err := base.ParseURL(v[0]); err != nil && !strings.HasPrefix(v[0], "/") {
			delete(res.Header, "Content-Base")
		} else {
			res.Header["Content-Base"] = v[:1]
		}
	}
}

// repairTransport replaces what is missing or unreadable in a Transport header by what was asked.
func repairTransport(asked base.HeaderValue, h base.Header) {
	var want, got headers.Transport
	if want.Unmarshal(asked) != nil {
		return
	}
	v := h["Transport"]
	if len(v) > 1 {
		v = v[:1]
	}
	if got.Unmarshal(v) != nil {
		got = want
	}
	if want.InterleavedIDs != nil {
		if got.InterleavedIDs != nil {
			got.Protocol = headers.TransportProtocolTCP // it may be left out
		}
		if ids := got.InterleavedIDs; got.Protocol == headers.TransportProtocolTCP && (ids == nil || ids[0]+1 != ids[1]) {
			got.InterleavedIDs = want.InterleavedIDs
		}
	}
	if got.Source2 != nil {
		if ip, err := netip.ParseAddr(*got.Source2); err == nil && ip.IsUnspecified() {
			got.Source2 = nil
		}
	}
	h["Transport"] = got.Marshal()
}
