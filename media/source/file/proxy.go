package file

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"touchline/media/source"
	"touchline/media/source/login"
)

// pseudoHost replaces the stream's server on ffmpeg's command line, which is visible
// to all users of the machine. The name cannot exist (RFC 6761 section 6.4).
const pseudoHost = "stream.invalid"

// tlsPorts is added to the ports of other servers with TLS. The proxy encrypts for ffmpeg, which checks no certificates.
const tlsPorts = 1 << 16

// proxy makes all network connections for ffmpeg.
type proxy struct {
	target   *url.URL
	header   http.Header // for the target alone
	password string
	client   *http.Client
	listener net.Listener
	server   *http.Server
	wg       sync.WaitGroup
	requests sync.WaitGroup

	auth   *login.Login
	listed atomic.Bool // the stream's address answered with a playlist

	mu     sync.Mutex
	failed error
}

func newProxy(ctx context.Context, o Options) (*proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, source.Errorf("open a proxy for ffmpeg: %w", err)
	}
	p := &proxy{
		target: o.Address.URL, header: o.Header, password: rand.Text(), client: o.Allow.Client(o.Insecure), listener: listener,
	}
	p.auth = login.New(p.target.User, o.Address.Literal, rand.Text)
	p.client.Transport = p.auth.Transport(p.client.Transport, p.target)
	p.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	p.wg.Go(func() { _ = p.server.Serve(listener) }) // ends with close
	return p, nil
}

func (p *proxy) close() {
	_ = p.server.Close() // the clip is over
	p.wg.Wait()
	p.requests.Wait()
	p.client.CloseIdleConnections()
}

// url returns the URL for ffmpeg: the same path on the pseudo host, without the query.
func (p *proxy) url() string {
	return (&url.URL{Scheme: "http", Host: pseudoHost, Path: p.target.Path, RawPath: p.target.RawPath}).String()
}

// environment makes ffmpeg use the proxy for every connection.
func (p *proxy) environment() []string {
	return []string{"http_proxy=http://touchline:" + p.password + "@" + p.listener.Addr().String(), "no_proxy="}
}

// port returns the port of the proxy.
func (p *proxy) port() int { return p.listener.Addr().(*net.TCPAddr).Port } //nolint:forcetypeassert // it is of TCP

// failure returns why a server could not be reached, preferably that it was not
// allowed; nil for none.
func (p *proxy) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

func (p *proxy) note(err error) {
	if cause, ok := errors.AsType[*url.Error](err); ok {
		err = cause.Err // without the URL
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !errors.Is(p.failed, source.ErrNotAllowed) {
		p.failed = err
	}
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.requests.Add(1)
	defer p.requests.Done()
	_, password, _ := (&http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}).BasicAuth()
	if subtle.ConstantTimeCompare([]byte(password), []byte(p.password)) != 1 {
		w.Header().Set("Proxy-Authenticate", `Basic realm="touchline"`)
		if from, _, ok := strings.Cut(r.Header.Get("Range"), "-"); ok { // ffmpeg gives up a range that an answer does not repeat
			w.Header().Set("Content-Range", strings.Replace(from, "=", " ", 1)+"-")
		}
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	p.forward(w, r)
}

// forward answers a plain HTTP request of ffmpeg.
func (p *proxy) forward(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.URL.Scheme != "http" {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	to := p.resolve(*r.URL)
	out, err := http.NewRequestWithContext(r.Context(), r.Method, to.String(), http.NoBody)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	for _, key := range []string{"Range", "Accept", "User-Agent", "Icy-Metadata"} {
		if v := r.Header.Get(key); v != "" {
			out.Header.Set(key, v)
		}
	}
	if out.Header.Get("Range") != "" {
		out.Header.Set("Accept-Encoding", "identity") // a range of an encoded answer cannot be decoded
	}
	if source.SameServer(&to, p.target) {
		maps.Copy(out.Header, p.header)
	}
	resp, err := p.client.Do(out)
	var body io.Reader
	if err == nil {
		defer resp.Body.Close()
		body, err = p.look(&to, resp)
	}
	if err != nil {
		p.note(err)
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	for _, key := range []string{"Content-Type", "Content-Length", "Content-Range", "Accept-Ranges"} {
		for _, v := range resp.Header.Values(key) {
			w.Header().Add(key, v)
		}
	}
	if where := resp.Header.Get("Location"); where != "" {
		w.Header().Set("Location", p.location(&to, where))
	}
	w.WriteHeader(resp.StatusCode)
	_ = http.NewResponseController(w).Flush()
	_, _ = io.Copy(flusher{w}, body) // either side may close the connection
}

// look returns the body of an answer as ffmpeg needs it, and notes why the answer is no video.
func (p *proxy) look(asked *url.URL, resp *http.Response) (io.Reader, error) {
	name := path.Base(asked.Path)
	if resp.StatusCode == http.StatusUnauthorized && resp.Request.URL.Hostname() == p.target.Hostname() {
		p.note(p.auth.Err(p.target.Scheme))
		return resp.Body, nil
	}
	if resp.StatusCode >= http.StatusBadRequest {
		p.note(source.StatusError(resp.StatusCode, name))
		return resp.Body, nil
	}
	body, err := source.Decoded(resp)
	if err != nil || resp.Request.Method == http.MethodHead || resp.StatusCode >= http.StatusMultipleChoices {
		return body, err
	}
	if body, err = p.seek(resp, body); err != nil {
		return nil, err
	}
	in := bufio.NewReader(body)
	if start, _ := in.Peek(len(mark + playlist)); string(start) == mark+playlist { // ffmpeg does not expect the mark
		_, _ = in.Discard(len(mark))
		resp.Header.Del("Content-Length")
	}
	if page := source.Page(resp.Header.Get("Content-Type"), in); page != nil {
		p.note(source.Errorf("%w (%s)", page, name))
	}
	start, _ := in.Peek(512) // may be shorter
	list := bytes.HasPrefix(start, []byte(playlist))
	if list && asked.Path == p.target.Path {
		p.listed.Store(true)
	}
	if list || bytes.HasPrefix(bytes.TrimSpace(start), []byte("<")) && bytes.Contains(start, []byte("<MPD")) {
		return p.rewrite(asked, resp, in)
	}
	return in, nil
}

// rewrite returns a playlist whose addresses with TLS lead to the proxy.
func (p *proxy) rewrite(asked *url.URL, resp *http.Response, list io.Reader) (io.Reader, error) {
	text, err := io.ReadAll(io.LimitReader(list, maxPlaylist+1))
	if err != nil {
		return nil, source.Errorf("read the playlist: %w", err)
	}
	if len(text) > maxPlaylist {
		return nil, source.Errorf("the playlist has more than %d bytes", maxPlaylist)
	}
	text = authority.ReplaceAllFunc(text, func(match []byte) []byte {
		part := authority.FindSubmatch(match)
		if len(part[2]) == 0 && asked.Scheme != "https" {
			return match
		}
		return append(part[1], p.location(asked, "https://"+string(part[3]))...)
	})
	resp.StatusCode = http.StatusOK
	resp.Header.Del("Accept-Ranges")
	resp.Header.Del("Content-Range")
	resp.Header.Set("Content-Length", strconv.Itoa(len(text)))
	return bytes.NewReader(text), nil
}

// authority is the begin of an address with a server in a playlist or a DASH manifest, maybe without its scheme.
var authority = regexp.MustCompile(`(?m)(^|["'>\s])(https:)?//([^/?#"'<>\s]+)`)

const (
	maxPlaylist = 16 << 20 // bytes
	// playlist is the begin of an HLS playlist (RFC 8216 section 4.3.1.1).
	playlist = "#EXTM3U"
	// mark is the byte order mark of UTF-8.
	mark = "\xef\xbb\xbf"
)

// seek does what a server without ranges does not: it leaves out the begin of a file, so that ffmpeg can read an index at its end, and
// what follows a segment of an HLS stream in one file.
func (p *proxy) seek(resp *http.Response, body io.Reader) (io.Reader, error) {
	first, end, _ := strings.Cut(strings.TrimPrefix(resp.Request.Header.Get("Range"), "bytes="), "-")
	from, err := strconv.ParseInt(first, 10, 64)
	if err != nil || resp.StatusCode != http.StatusOK || from >= resp.ContentLength {
		return body, nil //nolint:nilerr // another kind of request, or the length is unknown
	}
	last := resp.ContentLength - 1
	if to, err := strconv.ParseInt(end, 10, 64); err == nil && to >= from {
		last = min(last, to)
	}
	if _, err := io.CopyN(io.Discard, body, from); err != nil {
		return nil, source.Errorf("read up to byte %d: %w", from, err)
	}
	resp.StatusCode = http.StatusPartialContent
	resp.Header.Set("Accept-Ranges", "bytes")
	resp.Header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, last, resp.ContentLength))
	resp.Header.Set("Content-Length", strconv.FormatInt(last-from+1, 10))
	return io.LimitReader(body, last-from+1), nil
}

// resolve replaces the pseudo host by the stream's server. Only that server receives the password and the query of
// the stream's address, which may be a key.
func (p *proxy) resolve(asked url.URL) url.URL {
	if asked.Hostname() != pseudoHost {
		if port, err := strconv.Atoi(asked.Port()); err == nil && port > tlsPorts {
			host := net.JoinHostPort(asked.Hostname(), strconv.Itoa(port-tlsPorts))
			asked.Scheme, asked.Host = "https", strings.TrimSuffix(host, ":443")
		}
		return asked
	}
	asked.Scheme, asked.Host, asked.User = p.target.Scheme, p.target.Host, p.target.User
	if asked.EscapedPath() == p.target.EscapedPath() && asked.RawQuery == "" {
		asked.RawQuery = p.target.RawQuery
	}
	asked.Path = cmp.Or(asked.Path, "/")
	return asked
}

// location returns a redirect for ffmpeg: to the pseudo host within the stream's own server, and without TLS to others.
func (p *proxy) location(from *url.URL, where string) string {
	u, err := from.Parse(where)
	if err != nil {
		return where
	}
	if u.Scheme == p.target.Scheme && strings.EqualFold(u.Host, p.target.Host) {
		u.Scheme, u.Host = "http", pseudoHost
		if u.EscapedPath() == p.target.EscapedPath() && u.RawQuery == p.target.RawQuery {
			u.RawQuery = "" // resolve restores it
		}
	} else if u.Scheme == "https" {
		port, _ := strconv.Atoi(cmp.Or(u.Port(), "443"))
		u.Scheme, u.Host = "http", net.JoinHostPort(u.Hostname(), strconv.Itoa(port+tlsPorts))
	}
	u.User = nil
	return u.String()
}

// flusher flushes each write, for live streams.
type flusher struct{ w http.ResponseWriter }

// Write implements io.Writer.
func (f flusher) Write(b []byte) (int, error) {
	n, err := f.w.Write(b)
	if err == nil {
		err = http.NewResponseController(f.w).Flush()
	}
	return n, err
}
