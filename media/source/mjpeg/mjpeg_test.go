package mjpeg_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"image"
	"image/jpeg"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/media"
	"touchline/media/codec"
	"touchline/media/source"
	"touchline/media/source/mjpeg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errEnough = errors.New("enough pictures")

// picture n, with restart markers off and a pattern that needs byte stuffing.
func picture(n, w, h int) []byte {
	img := image.NewYCbCr(image.Rect(0, 0, w, h), image.YCbCrSubsampleRatio420)
	r := rand.New(rand.NewPCG(uint64(n), 1))
	for i := range img.Y {
		img.Y[i] = byte(r.Uint32())
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, img, &jpeg.Options{Quality: 90}); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// withThumbnail adds an EXIF segment with a JPEG to a picture.
func withThumbnail(p []byte) []byte {
	body := append([]byte("Exif\x00\x00"), picture(99, 32, 32)...)
	n := len(body) + 2
	return append(append([]byte{0xff, 0xd8, 0xff, 0xe1, byte(n >> 8), byte(n)}, body...), p[2:]...)
}

func pull(t *testing.T, address string, n int, change func(*mjpeg.Options)) (frames []media.EncodedFrame, err error) {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	o := mjpeg.Options{Access: source.Access{Address: source.Address{URL: u}, Allow: source.Allow{Loopback: true}, Now: time.Now}, Interval: 20 * time.Millisecond}
	if change != nil {
		change(&o)
	}
	cam, err := mjpeg.New(o)
	require.NoError(t, err)
	ctx, stop := context.WithCancelCause(t.Context())
	timer := time.AfterFunc(10*time.Second, func() { stop(errors.New("no end in 10 s")) })
	defer timer.Stop()
	err = cam.Pull(ctx, source.Sink{Frame: func(f media.EncodedFrame) {
		if frames = append(frames, f); len(frames) == n {
			stop(errEnough)
		}
	}})
	return frames, err
}

// Cameras have right and wrong boundaries, lengths and ends.
func TestCameras(t *testing.T) {
	tests := []struct {
		name, kind string
		part       func(i int, p []byte) []byte
	}{
		{"by the book", "multipart/x-mixed-replace; boundary=frame", func(_ int, p []byte) []byte {
			return fmt.Appendf(nil, "--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n%s\r\n", len(p), p)
		}},
		{"quoted boundary, no length", `multipart/x-mixed-replace; boundary="a b"`, func(_ int, p []byte) []byte {
			return fmt.Appendf(nil, "--a b\r\nContent-Type: image/jpeg\r\n\r\n%s\r\n", p)
		}},
		{"boundary with its dashes", "multipart/x-mixed-replace;boundary=--myboundary", func(_ int, p []byte) []byte {
			return fmt.Appendf(nil, "--myboundary\nContent-type: image/jpeg\n\n%s\n", p)
		}},
		{"illegal boundary", "multipart/x-mixed-replace; boundary=<<<>>>", func(_ int, p []byte) []byte {
			return fmt.Appendf(nil, "--<<<>>>\r\n\r\n%s", p)
		}},
		{"no boundary", "multipart/x-mixed-replace", func(_ int, p []byte) []byte { return fmt.Appendf(nil, "--x\r\n\r\n%s", p) }},
		{"wrong length", "multipart/x-mixed-replace; boundary=f", func(_ int, p []byte) []byte {
			return fmt.Appendf(nil, "--f\r\nContent-Length: 17\r\n\r\n%s\r\n", p)
		}},
		{"bare pictures", "application/octet-stream", func(_ int, p []byte) []byte { return p }},
		{"no type", "", func(_ int, p []byte) []byte { return p }},
		{"thumbnails", "multipart/x-mixed-replace; boundary=f", func(_ int, p []byte) []byte {
			return fmt.Appendf(nil, "--f\r\n\r\n%s\r\n", withThumbnail(p))
		}},
		{"padding after the end", "multipart/x-mixed-replace; boundary=f", func(_ int, p []byte) []byte {
			return fmt.Appendf(nil, "--f\r\n\r\n%s\x00\x00\x00\xff\xff\r\n", p)
		}},
		{"no end marker", "multipart/x-mixed-replace; boundary=f", func(_ int, p []byte) []byte {
			return fmt.Appendf(nil, "--f\r\n\r\n%s\r\n", p[:len(p)-2])
		}},
		{"a broken one in between", "multipart/x-mixed-replace; boundary=f", func(i int, p []byte) []byte {
			if i%3 == 1 {
				p = append([]byte{0xff, 0xd8, 0xff, 0xe0, 0, 0, 1, 2}, p...)
			}
			return fmt.Appendf(nil, "--f\r\n\r\n%s\r\n", p)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header()["Content-Type"] = []string{tt.kind}
				for i := 0; r.Context().Err() == nil; i++ {
					if _, err := w.Write(tt.part(i, picture(i, 160, 120))); err != nil {
						return
					}
					_ = http.NewResponseController(w).Flush()
					time.Sleep(5 * time.Millisecond)
				}
			}))
			defer s.Close()
			frames, err := pull(t, s.URL, 12, nil)
			require.ErrorIs(t, err, errEnough)
			for i, f := range frames {
				require.Equal(t, codec.MJPEG, f.Codec)
				require.Equal(t, [2]int{160, 120}, [2]int{f.Width, f.Height})
				_, err := jpeg.Decode(bytes.NewReader(f.Data))
				require.NoError(t, err, "picture %d", i)
				if i > 0 {
					require.Greater(t, f.PTS, frames[i-1].PTS)
				}
			}
		})
	}
}

func TestSinglePictures(t *testing.T) {
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n++
		w.Header().Set("Content-Type", "image/jpeg")
		_, _ = w.Write(picture(n, 160, 120))
	}))
	defer s.Close()
	began := time.Now()
	frames, err := pull(t, s.URL, 10, nil)
	require.ErrorIs(t, err, errEnough)
	require.GreaterOrEqual(t, time.Since(began), 9*20*time.Millisecond)
	require.NotEqual(t, frames[0].Data, frames[1].Data)
}

// TestSinglePicturesOfServers: other types, and the status of a part, are no reason to give up the polling.
func TestSinglePicturesOfServers(t *testing.T) {
	for kind, status := range map[string]int{
		"application/octet-stream": http.StatusOK, "": http.StatusOK, "text/html": http.StatusOK, "image/jpeg": http.StatusPartialContent,
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = []string{kind}
			w.WriteHeader(status)
			_, _ = w.Write(picture(1, 160, 120))
		}))
		_, err := pull(t, s.URL, 3, nil)
		s.Close()
		require.ErrorIs(t, err, errEnough, kind)
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/page":
			fmt.Fprint(w, "<html></html>")
		case "/playlist":
			w.Header().Set("Content-Type", "application/vnd.apple.mpegurl")
			fmt.Fprint(w, "#EXTM3U")
		case "/endless":
			w.Header().Set("Content-Type", "multipart/x-mixed-replace; boundary=f")
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		case "/huge":
			w.Header().Set("Content-Type", "multipart/x-mixed-replace; boundary=f")
			p := picture(1, 160, 120)
			_, _ = w.Write(p[:len(p)-2])
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		case "/empty":
			w.Header().Set("Content-Type", "multipart/x-mixed-replace; boundary=f")
		case "/away":
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer s.Close()
	for path, want := range map[string]string{
		"/page": "text/html", "/playlist": "mpegurl", "/endless": "without one", "/huge": "larger", "/empty": "EOF", "/x": "404",
		"/away": "may not be opened",
	} {
		_, err := pull(t, s.URL+path, 1, nil)
		require.ErrorContains(t, err, want, path)
		require.Equal(t, path == "/playlist", errors.Is(err, mjpeg.ErrOther))
		require.Equal(t, path == "/page", errors.Is(err, source.ErrPage))
	}
	_, err := pull(t, s.URL, 1, func(o *mjpeg.Options) { o.Allow = source.AllowCameras() })
	require.ErrorIs(t, err, source.ErrNotAllowed)
	x := source.Address{URL: &url.URL{Scheme: "http", Host: "x"}}
	for _, bad := range []mjpeg.Options{
		{}, {Access: source.Access{Address: x}}, {Access: source.Access{Address: x, Now: time.Now}, Interval: time.Hour},
	} {
		_, err := mjpeg.New(bad)
		require.Error(t, err)
	}
}

// digestServer checks answers by RFC 7616.
func digestServer(t *testing.T, challenge string, sum func() hash.Hash) *httptest.Server {
	t.Helper()
	value := func(header, name string) string {
		m := regexp.MustCompile(name + `="?([^",]+)"?`).FindStringSubmatch(header)
		if m == nil {
			return ""
		}
		return m[1]
	}
	h := func(s string) string {
		x := sum()
		x.Write([]byte(s))
		return hex.EncodeToString(x.Sum(nil))
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, "/x?y=z", http.StatusFound)
			return
		}
		got := r.Header.Get("Authorization")
		a1, a2 := h("admin:cam:p@ss"), h("GET:"+r.URL.RequestURI())
		want := h(a1 + ":n1:" + a2)
		if strings.Contains(challenge, "qop") {
			want = h(a1 + ":n1:" + value(got, "nc") + ":" + value(got, "cnonce") + ":auth:" + a2)
		}
		if !strings.HasPrefix(got, "Digest ") || value(got, "response") != want || value(got, "uri") != r.URL.RequestURI() {
			w.Header().Add("WWW-Authenticate", `Basic realm="cam"`)
			w.Header().Add("WWW-Authenticate", challenge)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "image/jpeg")
		_, _ = w.Write(picture(1, 160, 120))
	}))
	t.Cleanup(s.Close)
	return s
}

func TestAuthentication(t *testing.T) {
	for _, tt := range []struct {
		challenge string
		sum       func() hash.Hash
	}{
		{`Digest realm="cam", nonce="n1"`, md5.New},
		{`Digest realm="cam",qop="auth-int,auth",nonce="n1", opaque="o"`, md5.New},
		{`Digest algorithm=SHA-256, realm="cam", nonce="n1", qop="auth"`, sha256.New},
	} {
		s := digestServer(t, tt.challenge, tt.sum)
		good := strings.Replace(s.URL, "http://", "http://admin:p%40ss@", 1) + "/x?y=z"
		_, err := pull(t, good, 3, nil)
		require.ErrorIs(t, err, errEnough)
		_, err = pull(t, strings.Replace(good, "/x?y=z", "/moved", 1), 3, nil)
		require.ErrorIs(t, err, errEnough)
		for _, bad := range []string{s.URL, strings.Replace(good, "ss@", "sst@", 1)} {
			_, err = pull(t, bad, 1, nil)
			require.False(t, source.IsPermanent(err), "it is asked again later")
			require.ErrorContains(t, err, "password")
			require.NotContains(t, err.Error(), "p@s")
		}
	}
	basic := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "admin" || password != "p@ss" {
			w.Header().Add("WWW-Authenticate", `Basic realm="cam"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "image/jpeg")
		_, _ = w.Write(picture(1, 160, 120))
	}))
	defer basic.Close()
	_, err := pull(t, strings.Replace(basic.URL, "http://", "http://admin:p%40ss@", 1), 2, nil)
	require.ErrorIs(t, err, errEnough)
}

// endless is the start of a picture and then endless markers without a length.
type endless struct{ n, most int }

func (e *endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = []byte{0xff, 0xd0}[e.n&1]
		if e.n == 1 {
			b[i] = 0xd8
		}
		e.n++
	}
	if e.n > e.most {
		return 0, io.EOF
	}
	return len(b), nil
}

// TestMarkersAreBounded: a picture of markers alone is bounded.
func TestMarkersAreBounded(t *testing.T) {
	t.Parallel()
	e := &endless{most: 64 << 20}
	require.Empty(t, mjpeg.Pictures(e))
	require.Less(t, e.n, 9<<20)
}

// TestServersThatPause: a server without a new picture keeps the newest one, for ever if it says that there is none, for half a minute if it
// is busy. The advice has the time of the picture.
func TestServersThatPause(t *testing.T) {
	for name, tt := range map[string]struct {
		status int
		want   string
	}{
		"not modified": {http.StatusNotModified, "enough"}, "no content": {http.StatusNoContent, "enough"}, "empty": {http.StatusOK, "enough"},
		"busy": {http.StatusServiceUnavailable, "the server answers with status 503"},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "image/jpeg")
				if n := asked.Add(1); n == 1 || n == 12 {
					_, _ = w.Write(picture(1, 160, 120))
					return
				}
				w.WriteHeader(tt.status)
			}))
			defer s.Close()
			u, err := url.Parse(s.URL)
			require.NoError(t, err)
			began := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
			clock := func() time.Time { return began.Add(time.Duration(asked.Load()) * time.Second) }
			cam, err := mjpeg.New(mjpeg.Options{Access: source.Access{Address: source.Address{URL: u}, Allow: source.Allow{Loopback: true}, Now: clock}, Interval: time.Millisecond})
			require.NoError(t, err)
			ctx, stop := context.WithCancelCause(t.Context())
			var advice []string
			n := 0
			err = cam.Pull(ctx, source.Sink{
				Frame: func(f media.EncodedFrame) {
					if n++; n == 100 {
						stop(errEnough)
					}
					require.Equal(t, clock(), f.Arrival)
				},
				Advice: func(s string) { advice = append(advice, s) },
			})
			require.ErrorContains(t, err, tt.want)
			require.Greater(t, n, 40)
			require.Empty(t, advice[4], "a short pause is not told")
			require.Equal(t, fmt.Sprintf("Its picture is from 12:00:01: the server has no newer one (status %d).", tt.status), advice[9])
			require.Empty(t, advice[11], "a new picture")
		})
	}
}
