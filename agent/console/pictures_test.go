package console_test

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math/rand/v2"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/console"
	"touchline/agent/events"
	"touchline/internal/clocktest"
	"touchline/media/speech"
	"touchline/media/window"
)

func TestNewestPicture(t *testing.T) {
	t.Parallel()
	st := newStudio()
	r := open(t, console.Options{Room: console.Room{Bot: newDesk(), Pictures: st}})
	a := r.ask("GET", "/api/frame", "")
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "image/jpeg", a.header.Get("Content-Type"))
	img := decodeJPEG(t, a.body)
	require.Equal(t, 64, img.Bounds().Dx())
	requireRed(t, img.At(30, 10), 200)

	st.mu.Lock()
	st.none = true
	st.mu.Unlock()
	a = r.ask("GET", "/api/frame", "")
	require.Equal(t, http.StatusNotFound, a.status)
	_, message, _ := a.problem(t)
	require.Contains(t, message, "no camera")

	st.mu.Lock()
	st.none = false
	st.frame.Pix = st.frame.Pix[:10] // a picture that is none
	st.mu.Unlock()
	require.Equal(t, http.StatusInternalServerError, r.ask("GET", "/api/frame", "").status)
}

// TestThumbnailsAreShared: the tiles of many pages share one thumbnail, which is never old.
func TestThumbnailsAreShared(t *testing.T) {
	t.Parallel()
	const readers = 40
	st := newStudio()
	r := open(t, console.Options{Room: console.Room{Bot: newDesk(), Pictures: st}})
	asked := func() int {
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.asked
	}
	all := func(status int) {
		t.Helper()
		before, began := asked(), time.Now()
		var wg sync.WaitGroup
		got := make([]answer, readers)
		for i := range got {
			wg.Go(func() { got[i] = r.ask("GET", "/api/frame?w=32", "") })
		}
		wg.Wait()
		for _, a := range got {
			require.Equal(t, status, a.status, "%s", a.body)
		}
		most := 1 + int(time.Since(began)/console.StillFresh)
		require.LessOrEqual(t, asked()-before, most)
	}
	all(http.StatusOK)
	require.Equal(t, 16, decodeJPEG(t, r.ask("GET", "/api/frame?w=16", "").body).Bounds().Dx(), "each width is another")
	st.mu.Lock()
	st.frame = picture(64, 36, 90)
	st.mu.Unlock()
	requireRed(t, decodeJPEG(t, r.ask("GET", "/api/frame", "").body).At(30, 10), 90)
	require.Eventually(t, func() bool {
		red, _, _, _ := decodeJPEG(t, r.ask("GET", "/api/frame?w=32", "").body).At(15, 5).RGBA()
		return red>>8 < 100
	}, wait, 10*time.Millisecond)
	st.mu.Lock()
	st.none = true
	st.mu.Unlock()
	require.Eventually(t, func() bool { return r.ask("GET", "/api/frame?w=32", "").status == http.StatusNotFound }, wait, 10*time.Millisecond)
	all(http.StatusNotFound)
}

func requireRed(t *testing.T, c color.Color, want int) {
	t.Helper()
	red, green, _, _ := c.RGBA()
	require.InDelta(t, want, int(red>>8), 6)
	require.InDelta(t, 0, int(green>>8), 6)
}

func TestSeenPictures(t *testing.T) {
	t.Parallel()
	hub := events.NewHub(events.Options{History: 2})
	r := open(t, console.Options{Room: console.Room{Hub: hub}})
	get := func(id uint64, query string) answer {
		return r.ask("GET", fmt.Sprintf("/api/frames/%d%s", id, query), "")
	}
	kept := func(id uint64) func() bool { return func() bool { return get(id, "").status == http.StatusOK } }

	require.Eventually(t, func() bool { // from when the hub runs
		hub.Frames(1, []window.Frame{{ID: 10, VideoFrame: picture(1280, 720, 90)}, {ID: 11, VideoFrame: picture(90, 160, 120)}})
		return kept(11)()
	}, wait, 50*time.Millisecond)
	img := decodeJPEG(t, get(10, "").body)
	require.Equal(t, "(448,252)", img.Bounds().Max.String(), "the long side is 448")
	requireRed(t, img.At(200, 100), 90)
	img = decodeJPEG(t, get(10, "?w=160").body)
	require.Equal(t, "(160,90)", img.Bounds().Max.String())
	requireRed(t, img.At(80, 45), 90)
	require.Equal(t, "(90,160)", decodeJPEG(t, get(11, "").body).Bounds().Max.String(), "never made larger")
	require.Equal(t, get(11, "").body, get(11, "?w=160").body)
	for _, w := range []string{"0", "-1", "15", "449", "x", "1e3", "99999999999999999999"} {
		require.Equal(t, http.StatusBadRequest, get(10, "?w="+w).status, w)
	}

	// A picture of two looks lives as long as the later one; older looks go.
	for cycle := uint64(2); cycle <= 6; cycle++ {
		hub.Frames(cycle, []window.Frame{
			{ID: 11, VideoFrame: picture(90, 160, 120)}, {ID: cycle * 10, VideoFrame: picture(32, 18, byte(cycle))},
		})
		require.Eventually(t, kept(cycle*10), wait, 5*time.Millisecond)
	}
	hub.Frames(7, []window.Frame{{ID: 70, VideoFrame: picture(32, 18, 7)}, {ID: 71}}) // the second is no picture
	require.Eventually(t, kept(70), wait, 5*time.Millisecond)
	require.False(t, kept(10)())
	require.True(t, kept(11)())
	require.False(t, kept(71)())
	require.Contains(t, string(r.ask("GET", "/metrics", "").body), "touchline_seen_frames_dropped_total 1")
}

func TestMJPEG(t *testing.T) {
	t.Parallel()
	st := newStudio()
	r := open(t, console.Options{Room: console.Room{Pictures: st, PictureRate: 100}})
	pulls, _, _ := st.counts()
	require.Zero(t, pulls, "nothing is decoded without watchers")

	watch := func() (*multipart.Reader, io.Closer) {
		resp := r.connect("/api/mjpeg")
		require.Equal(t, http.StatusOK, resp.StatusCode)
		kind, params, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
		require.NoError(t, err)
		require.Equal(t, "multipart/x-mixed-replace", kind)
		return multipart.NewReader(resp.Body, params["boundary"]), resp.Body
	}
	next := func(m *multipart.Reader) {
		part, err := m.NextPart()
		require.NoError(t, err)
		require.Equal(t, "image/jpeg", part.Header.Get("Content-Type"))
		data, err := io.ReadAll(part)
		require.NoError(t, err)
		require.Equal(t, strconv.Itoa(len(data)), part.Header.Get("Content-Length"))
		require.Equal(t, 64, decodeJPEG(t, data).Bounds().Dx())
	}
	one, closeOne := watch()
	two, closeTwo := watch()
	for range 3 {
		next(one)
		next(two)
	}
	pulls, pulling, _ := st.counts()
	require.Equal(t, []int{1, 1}, []int{pulls, pulling}, "decoded once for both")
	require.Contains(t, string(r.ask("GET", "/metrics", "").body), "touchline_mjpeg_viewers 2")
	require.NoError(t, closeOne.Close())
	next(two)
	require.NoError(t, closeTwo.Close())
	idle := func() bool {
		_, pulling, _ := st.counts()
		return pulling == 0
	}
	require.Eventually(t, idle, wait, 5*time.Millisecond, "decoding ends with the last watcher")
	three, _ := watch()
	next(three)
	pulls, _, _ = st.counts()
	require.Equal(t, 2, pulls)
}

// TestMJPEGSlowWatcher: a watcher that does not read loses pictures, the other gets them.
func TestMJPEGSlowWatcher(t *testing.T) {
	t.Parallel()
	st := newStudio()
	st.frame = picture(640, 360, 0)
	noise := rand.New(rand.NewPCG(1, 2))
	for i := range st.frame.Pix {
		st.frame.Pix[i] = byte(noise.Uint32())
	}
	r := open(t, console.Options{Room: console.Room{Pictures: st, PictureRate: 1000, JPEGQuality: 100}})
	u, err := url.Parse(r.URL())
	require.NoError(t, err)
	slowConn(t, u.Host, "/api/mjpeg") // and never reads
	m := multipart.NewReader(r.connect("/api/mjpeg").Body, "picture")
	began := time.Now()
	for strings.Contains(string(r.ask("GET", "/metrics", "").body), "touchline_mjpeg_dropped_frames_total 0") {
		for range 5 {
			_, err := m.NextPart()
			require.NoError(t, err)
		}
		require.Less(t, time.Since(began), 6*wait, "the sockets between have room for only so much")
	}
}

func TestMJPEGRate(t *testing.T) {
	t.Parallel()
	st := newStudio()
	r := open(t, console.Options{Room: console.Room{Pictures: st, PictureRate: 20}})
	began := time.Now()
	m := multipart.NewReader(r.connect("/api/mjpeg").Body, "picture")
	for range 11 {
		_, err := m.NextPart()
		require.NoError(t, err)
	}
	require.Greater(t, time.Since(began), 10*45*time.Millisecond-30*time.Millisecond, "200 a second are offered, 20 wanted")
}

func TestAudioStream(t *testing.T) {
	t.Parallel()
	d, st := newDesk(), newStudio()
	r := open(t, console.Options{Room: console.Room{Bot: d, Sound: st}})
	due := time.Unix(1_700_000_000, 250_000_000)
	frame := func(after time.Duration, first int16) speech.Frame {
		pcm := make([]int16, 960)
		pcm[0] = first
		return speech.Frame{Due: due.Add(after), PCM: pcm}
	}
	st.sound <- frame(0, -2)
	resp := r.connect("/api/audio-stream")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	for name, want := range map[string]string{
		"X-Audio-Rate": "48000", "X-Audio-Channels": "1", "X-Audio-Format": "s16le", "Content-Type": "application/octet-stream",
		"X-Audio-Timestamp": "1700000000.256500", // with the encoder's delay in the room
	} {
		require.Equal(t, want, resp.Header.Get(name))
	}
	st.sound <- frame(20*time.Millisecond, 0x1234)
	st.sound <- frame(80*time.Millisecond, -32768) // two frames are missing
	got := make([]byte, 5*1920)
	_, err := io.ReadFull(resp.Body, got)
	require.NoError(t, err)
	want := make([]byte, len(got))
	copy(want, []byte{0xfe, 0xff})
	copy(want[1920:], []byte{0x34, 0x12})
	copy(want[4*1920:], []byte{0, 0x80})
	require.True(t, bytes.Equal(want, got), "a sample's place is its moment")
	require.Contains(t, string(r.ask("GET", "/metrics", "").body), "touchline_audio_lost_frames_total 2")
	require.Contains(t, string(r.ask("GET", "/metrics", "").body), "touchline_audio_listeners 1")
	st.sound <- frame(1200*time.Millisecond, 1)
	_, err = resp.Body.Read(got)
	require.ErrorIs(t, err, io.EOF, "a reader more than a second behind connects again")

	st.sound <- frame(2*time.Second, 1)
	resp = r.connect("/api/audio-stream")
	close(st.sound)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err, "the voice's end is the answer's")
	require.Eventually(t, func() bool {
		_, _, ended := st.counts()
		return ended == 2
	}, wait, time.Millisecond)
	require.Equal(t, http.StatusServiceUnavailable, r.ask("GET", "/api/audio-stream", "").status, "no voice")

	d.change(func(s *agent.Snapshot) { s.TTSEnabled = false })
	a := r.ask("GET", "/api/audio-stream", "")
	require.Equal(t, http.StatusNotFound, a.status)
	code, _, _ := a.problem(t)
	require.Equal(t, "no_speech", code)
}

// TestTimestampsAndTheWallClock: picture and voice stay together when the wall clock is set while they are read.
func TestTimestampsAndTheWallClock(t *testing.T) {
	t.Parallel()
	for _, step := range clocktest.Steps {
		st := newStudio()
		r := open(t, console.Options{Room: console.Room{Bot: newDesk(), Sound: st, Pictures: st}})
		now := time.Now()
		st.frame.Arrival = clocktest.Step(now.Add(time.Second), step)
		st.sound <- speech.Frame{Due: now, PCM: make([]int16, 960)}
		voice, err := strconv.ParseFloat(r.connect("/api/audio-stream").Header.Get("X-Audio-Timestamp"), 64)
		require.NoError(t, err)
		part, err := multipart.NewReader(r.connect("/api/mjpeg").Body, "picture").NextPart()
		require.NoError(t, err)
		picture, err := strconv.ParseFloat(part.Header.Get("X-Timestamp"), 64)
		require.NoError(t, err)
		require.InDelta(t, (time.Second - speech.EncoderDelay).Seconds(), picture-voice, 1e-5, step)
	}
}

// A request that waits for the making of others gets an answer before the server cuts it off, after 20 s.
func TestBusyThumbnail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/frames/1?w=16", http.NoBody)
		require.Equal(t, http.StatusServiceUnavailable, console.BusyThumbnail(r))
		require.Less(t, time.Since(began), 15*time.Second)
	})
}
