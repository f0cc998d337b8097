//go:build integration

package rtsp_test

import (
	"context"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/stretchr/testify/require"

	"touchline/internal/e2e/fakes"
	"touchline/media"
	"touchline/media/source"
	"touchline/media/source/rtsp"
)

// watched is a supervised camera of the test.
type watched struct {
	*source.Supervisor

	mu     sync.Mutex
	frames []media.EncodedFrame
	stop   func()
}

// watch opens a camera until the test or stop ends it.
func watch(t *testing.T, address string, change func(*rtsp.Options)) *watched {
	t.Helper()
	a, err := source.ParseAddress(address)
	require.NoError(t, err)
	o := rtsp.Options{Access: source.Access{Address: a, Allow: source.Allow{Loopback: true}, Now: time.Now}}
	if change != nil {
		change(&o)
	}
	cam, err := rtsp.New(o)
	require.NoError(t, err)
	w := &watched{}
	w.Supervisor, err = source.NewSupervisor(source.Options{
		Puller: cam, Hide: a.Hide, Now: time.Now, Random: rand.Float64, First: 8 * time.Second,
		Sink: source.Sink{Frame: func(f media.EncodedFrame) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.frames = append(w.frames, f)
		}},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(w.stop)
	return w
}

func (w *watched) pictures() []media.EncodedFrame {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.frames
}

// reaches waits for a number of pictures.
func (w *watched) reaches(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return len(w.pictures()) >= n }, time.Minute, 10*time.Millisecond, "%+v", w.Status())
}

// says waits for a reason.
func (w *watched) says(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(w.Status().Reason, text) }, time.Minute, 10*time.Millisecond, "%s: %+v", text, w.Status())
}

// fake starts the faulty camera. It must have no connection left when the test ends.
func fake(t *testing.T) *fakes.RTSP {
	t.Helper()
	c, err := fakes.ListenRTSP(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() {
		require.Eventually(t, func() bool { return c.Open() == 0 }, time.Minute, time.Millisecond)
		c.Close()
	})
	return c
}

// Faults of cameras that do not cost the picture.
func TestFaultyCameras(t *testing.T) {
	t.Parallel()
	login := fakes.User + ":" + "p%40ss"
	for _, path := range []string{
		"good", "options-404", "options-501", "options-405", "options-302", "options-close", "options-mute", "cseq", "aac-no-config", "backchannel", "bad-lines", "session-nonsense", "avpf",
		"avpf-offered", "savp-first",
		"transport-nonsense", "base-nonsense", "payload-other", "annexb", "annexb-split", "clock-ms",
		"login-basic", "login-digest", "login-once", "login-qop", "login-stale", "login-sha-offered", "login-nonsense", "login-close", "login-percent",
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			c := fake(t)
			with := ""
			switch {
			case path == "login-percent":
				with = fakes.User + ":" + fakes.PercentPassword
			case strings.HasPrefix(path, "login-"):
				with = login
			}
			w := watch(t, c.URL(path, with), nil)
			w.reaches(t, 3)
			require.Equal(t, 640, w.Status().Width)
			if path != "payload-other" {
				require.EqualValues(t, 1, c.Played.Load())
			}
			w.stop()
		})
	}
}

// A camera that answers keep-alives with a challenge goes on.
func TestChallengedKeepAlives(t *testing.T) {
	t.Parallel()
	c := fake(t)
	w := watch(t, c.URL("login-keepalive", fakes.User+":p%40ss"), nil)
	require.Eventually(t, func() bool { return c.KeepAlives.Load() >= 8 }, time.Minute, 10*time.Millisecond)
	require.EqualValues(t, 1, c.Played.Load(), "one session")
	w.stop()
}

func TestUDPRefusals(t *testing.T) {
	t.Parallel()
	udp := func(o *rtsp.Options) { o.Transport = rtsp.UDP }
	for _, path := range []string{"good", "tcp-only-461", "tcp-only-400", "tcp-only-500", "udp-silent", "udp-no-port", "udp-other-port", "udp-hangs", "udp-unplayed"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			w := watch(t, fake(t).URL(path, ""), udp)
			w.reaches(t, 30)
			w.stop()
		})
	}
	t.Run("auto", func(t *testing.T) {
		t.Parallel()
		watch(t, fake(t).URL("udp-only", ""), nil).reaches(t, 3)
		watch(t, fake(t).URL("tcp-silent", ""), nil).reaches(t, 3)
	})
	t.Run("forbidden", func(t *testing.T) {
		t.Parallel()
		watch(t, fake(t).URL("udp-only", ""), func(o *rtsp.Options) { o.Transport = rtsp.TCP }).says(t, "refuses TCP (status 461)")
	})
}

// A refused password is asked once for each challenge, and not again for minutes; one that worked before is asked again.
func TestRefusedPasswords(t *testing.T) {
	t.Parallel()
	c := fake(t)
	w := watch(t, c.URL("refused", "user:password"), nil)
	w.says(t, "the camera refuses the user or the password; it is asked again every 5 minutes")
	require.EqualValues(t, 1, c.Wrong.Load())
	require.Equal(t, source.Waiting, w.Status().State)
	w.stop()
	w = watch(t, c.URL("login-digest", ""), nil)
	w.says(t, "requires a user and a password: rtsp://USER:PASSWORD@HOST/PATH")
	w.stop()
}

func TestNames(t *testing.T) {
	t.Parallel()
	c := fake(t)
	watch(t, c.URL("redirect-loop", ""), nil).says(t, "status 302")
	watch(t, c.URL("mute", ""), nil).says(t, "does not answer in time")
	watch(t, "rtsps"+strings.TrimPrefix(c.URL("good", ""), "rtsp"), nil).says(t, "closed the connection without an answer")
}

// The table of reasons in docs/cameras.md is what cameras cause.
func TestTableOfReasons(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/cameras.md")
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(text), "### Reasons of IP cameras\n\n| reason | cause | remedy |\n|---|---|---|\n")
	require.True(t, ok)
	table, _, _ = strings.Cut(table, "\n\n")
	bare := func(o *rtsp.Options) { o.Transport = rtsp.TCP }
	path := func(path, login string) func(*testing.T) string {
		return func(t *testing.T) string {
			t.Helper()
			return fake(t).URL(path, login)
		}
	}
	cases := map[string]func(*testing.T) string{
		"no server at the camera's address: connection refused": func(*testing.T) string { return "rtsp://127.0.0.1:1/x" },
		"the camera does not answer in time":                    path("mute", ""),
		"closed the connection without an answer": func(t *testing.T) string {
			t.Helper()
			return strings.Replace(fake(t).URL("good", ""), "rtsp", "rtsps", 1)
		},
		"this machine does not trust the camera's certificate": func(t *testing.T) string {
			t.Helper()
			return newCamera(t, cameraOptions{tls: true}).url()
		},
		"the camera requires a user and a password":   path("login-digest", ""),
		"the camera refuses the user or the password": path("refused", "user:password"),
		"the camera has no stream at this path (404)": path("missing", ""),
		"the camera refuses TCP (status 461)":         path("udp-only", ""),
		"the camera encrypts its picture (SRTP)":      path("savp", ""),
		"the camera plays, but sends nothing":         path("nothing", ""),
		"pictures came, but no key frame":             path("never-key", ""),
		"pictures came, but no SPS and PPS":           path("no-sets", ""),
		"one of H264, H265, VP8, VP9, AV1 and MJPEG is needed": func(t *testing.T) string {
			t.Helper()
			c := newCamera(t, cameraOptions{})
			c.publish(t, &format.G711{PayloadTyp: 8, SampleRate: 8000, ChannelCount: 1})
			return c.url()
		},
	}
	rows := 0
	for line := range strings.Lines(table) {
		reason := strings.TrimSpace(strings.Split(line, "|")[1])
		require.Contains(t, cases, reason)
		rows++
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			watch(t, cases[reason](t), bare).says(t, reason)
		})
	}
	require.Len(t, cases, rows)
}

// A viewer of a camera with rare key frames has one after some seconds: the camera is opened again.
func TestRareKeyFrames(t *testing.T) {
	t.Parallel()
	c := fake(t)
	w := watch(t, c.URL("gop-long", ""), nil)
	w.reaches(t, 10)
	w.RequestKeyFrame()
	keys := func() (n int) {
		for _, f := range w.pictures() {
			if f.KeyFrame {
				n++
			}
		}
		return n
	}
	require.Eventually(t, func() bool { return keys() == 2 }, time.Minute, 10*time.Millisecond)
	require.Equal(t, source.Live, w.Status().State)
	frames := w.pictures()
	require.NotEqual(t, frames[0].Epoch, frames[len(frames)-1].Epoch)
	w.RequestKeyFrame()
	before := len(w.pictures())
	w.reaches(t, before+200)
	require.EqualValues(t, 2, c.Played.Load(), "at most once a minute")
}

// Clocks that stand still or run too fast are replaced by the arrival.
func TestClocksOfCameras(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"clock-still", "clock-10x"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			w := watch(t, fake(t).URL(path, ""), nil)
			enough := 75
			if path == "clock-10x" {
				enough = 250
			}
			w.reaches(t, enough)
			f := w.pictures()
			a, b := f[len(f)-50], f[len(f)-1]
			require.InDelta(t, b.Received.Sub(a.Received), b.PTS-a.PTS, float64(20*time.Millisecond))
			require.Equal(t, source.Live, w.Status().State)
		})
	}
}

// A server that accepts and says nothing costs five seconds, with and without TLS.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	for _, scheme := range []string{"rtsp", "rtsps"} {
		w := watch(t, scheme+"://"+l.Addr().String()+"/x", nil)
		w.says(t, "does not answer in time")
		require.Eventually(t, func() bool { return w.Status().Attempt > 1 }, time.Minute, 10*time.Millisecond)
		w.stop() // ends, although the handshake does not
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() {
		for {
			conn, err := closed.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	defer closed.Close()
	watch(t, "rtsp://"+closed.Addr().String()+"/x", nil).says(t, "without an answer")
}

// TestTurnedPicture: the RTP extension for orientation (3GPP TS 26.114 section 7.4.5) is kept with the picture.
func TestTurnedPicture(t *testing.T) {
	cam, err := fakes.ListenRTSP(t.Context())
	require.NoError(t, err)
	t.Cleanup(cam.Close)
	for path, want := range map[string]uint8{"turned": 1, "good": 0} {
		w := watch(t, cam.URL(path, ""), nil)
		w.reaches(t, 3)
		w.stop()
		for _, f := range w.pictures() {
			require.Equal(t, want, f.Turn)
		}
	}
}
