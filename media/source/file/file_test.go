//go:build integration

package file_test

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/source"
	"touchline/media/source/file"
)

var errEnough = errors.New("enough pictures")

// make2s makes a clip of two seconds, 25 pictures a second; args that have
// another input limit the length themselves.
func make2s(t *testing.T, name string, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	all := append([]string{
		"-v", "error", "-nostdin", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25", "-t", "2", "-threads", "1",
	}, args...)
	out, err := exec.CommandContext(t.Context(), maker(), append(all, path)...).CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

var x264 = []string{"-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-pix_fmt", "yuv420p", "-g", "25"}

// play plays n pictures or until the clip ends.
func play(t *testing.T, address string, n int, change func(*file.Options)) (frames []media.EncodedFrame, at []time.Time, err error) {
	t.Helper()
	a, err := source.ParseAddress(address)
	require.NoError(t, err)
	o := file.Options{Access: source.Access{Address: a, Allow: source.AllowEverything(), Now: time.Now}}
	if change != nil {
		change(&o)
	}
	clip, err := file.New(o)
	require.NoError(t, err)
	ctx, stop := context.WithCancelCause(t.Context())
	timer := time.AfterFunc(20*time.Second, func() { stop(errors.New("no end in 20 s")) })
	defer timer.Stop()
	err = clip.Pull(ctx, source.Sink{Frame: func(f media.EncodedFrame) {
		at = append(at, time.Now())
		if frames = append(frames, f); len(frames) == n {
			stop(errEnough)
		}
	}, Opus: func(source.Opus) {}})
	return frames, at, err
}

// TestContainersAndCodecs plays each container. Its sound is in sync with its picture,
// without the priming of the encoders.
func TestContainersAndCodecs(t *testing.T) {
	aac, libopus, mp3, vorbis := []string{"-c:a", "aac"}, []string{"-c:a", "libopus"}, []string{"-c:a", "libmp3lame"}, []string{"-c:a", "libvorbis"}
	mjpeg, mpeg4 := []string{"-c:v", "mjpeg", "-q:v", "5", "-pix_fmt", "yuvj420p"}, []string{"-c:v", "mpeg4", "-q:v", "5"}
	// ffmpeg writes Opus to Matroska this much too early: it counts the pre-skip twice.
	const twice = -6500 * time.Microsecond
	tests := []struct {
		name  string
		args  []string
		codec media.Codec
		off   time.Duration // by how much the sound is off in the file
		mute  bool
	}{
		{name: "vp8-opus.webm", args: with(libopus, vp8), codec: media.VP8, off: twice},
		{name: "vp8-vorbis.webm", args: with(vorbis, vp8), codec: media.VP8},
		{name: "vp8-flac.mkv", args: with([]string{"-c:a", "flac"}, vp8), codec: media.VP8},
		{name: "vp9-opus.webm", args: with(libopus, vp9), codec: media.VP9, off: twice},
		{name: "vp9-mp3.mp4", args: with(mp3, vp9), codec: media.VP9},
		{name: "av1-opus.mkv", args: with(libopus, av1), codec: media.AV1, off: twice},
		{name: "av1-aac.mp4", args: with(aac, av1), codec: media.AV1},
		{name: "h264-aac.mp4", args: with(append([]string{"-ar", "44100"}, aac...), x264), codec: media.H264},
		{name: "h264-aac.mkv", args: with(aac, x264), codec: media.H264},
		{name: "h264-aac.ts", args: with(aac, x264), codec: media.H264},
		{name: "h264-aac.flv", args: with(aac, x264), codec: media.H264},
		{name: "h264-opus.mp4", args: with(libopus, x264), codec: media.H264},
		{name: "h264-opus-5.1.mkv", args: with(append([]string{"-ac", "6"}, libopus...), x264), codec: media.H264, off: twice},
		{name: "h264-mp2.ts", args: with([]string{"-c:a", "mp2"}, x264), codec: media.H264},
		{name: "h265-ac3.mp4", args: with([]string{"-c:a", "ac3"}, x265), codec: media.H265},
		{name: "mpeg4-pcm.avi", args: with([]string{"-c:a", "pcm_s16le"}, mpeg4), codec: media.H264},
		{name: "mjpeg-pcm.mov", args: with([]string{"-c:a", "pcm_s16le"}, mjpeg), codec: media.H264},
		{name: "theora-vorbis.ogv", args: with(vorbis, []string{"-c:v", "libtheora", "-pix_fmt", "yuv420p"}), codec: media.H264},
		{name: "a strange 'name.gif", args: []string{"-t", "2"}, codec: media.H264, mute: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			l := listen(t, make2s(t, tt.name, tt.args...), 0, nil)
			require.InDelta(t, 50, len(l.frames), 1)
			require.True(t, l.frames[0].KeyFrame)
			for i, f := range l.frames {
				require.Equal(t, tt.codec, f.Codec)
				require.Equal(t, [2]int{320, 180}, [2]int{f.Width, f.Height})
				require.Zero(t, f.Epoch)
				if i > 0 {
					require.InDelta(t, 40, (f.PTS-l.frames[i-1].PTS).Seconds()*1000, 1.1)
				}
			}
			// Paced by the clip's own clock.
			first, last := l.frames[0], l.frames[len(l.frames)-1]
			took := last.Received.Sub(first.Received)
			require.Greater(t, took, last.PTS-300*time.Millisecond)
			if tt.mute {
				require.Zero(t, l.packets)
				return
			}
			require.InDelta(t, 100, l.packets, 4)
			require.Len(t, l.offsets, 1)
			t.Logf("sound %v later than its picture, %d gaps", l.offsets[0], l.gaps)
			require.InDelta(t, tt.off.Seconds(), l.offsets[0].Seconds(), inStep.Seconds())
		})
	}
}

// TestLoopGoesOn: the first picture of the next run follows the last one by one frame
// interval, also if the sound of the file is longer than its picture.
func TestLoopGoesOn(t *testing.T) {
	t.Parallel()
	sound := []string{"-f", "lavfi", "-i", "sine=f=440:r=48000:d=0.9", "-c:a", "aac"}
	bFrames := []string{"-c:v", "libx264", "-preset", "ultrafast", "-bf", "2", "-pix_fmt", "yuv420p", "-g", "25"}
	tests := []struct {
		name string
		path string
		n    int
		step float64 // ms
	}{
		{"h264", make2s(t, "loop.mp4", append(x264, "-t", "0.8")...), 75, 40},
		{"longer sound", make2s(t, "sound.mp4", slices.Concat(sound, []string{"-r", "25"}, x264, []string{"-frames:v", "20"})...), 75, 40},
		{"film rate", make2s(t, "film.mp4", slices.Concat(sound, []string{"-r", "24000/1001"}, x264, []string{"-frames:v", "20"})...), 75, 1001.0 / 24},
		{"b frames", make2s(t, "b.mp4", slices.Concat(sound, bFrames, []string{"-frames:v", "20"})...), 75, 40},
		{"vp8", make2s(t, "loop.webm", slices.Concat(sound[:4], []string{"-c:a", "libvorbis"}, vp8, []string{"-frames:v", "20"})...), 75, 40},
		{"transcoded", make2s(t, "loop.mov", slices.Concat(sound, []string{"-c:v", "mpeg4", "-frames:v", "20"})...), 75, 40},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			frames, _, err := play(t, tt.path, tt.n, func(o *file.Options) { o.Loop = true })
			require.ErrorIs(t, err, errEnough)
			slices.SortFunc(frames, func(a, b media.EncodedFrame) int { return cmp.Compare(a.PTS, b.PTS) })
			frames = frames[:len(frames)-3] // of B frames, the last ones did not come
			for i := 1; i < len(frames); i++ {
				require.InDelta(t, tt.step, (frames[i].PTS-frames[i-1].PTS).Seconds()*1000, 1.1, "picture %d", i)
				require.InDelta(t, tt.step, frames[i].Arrival.Sub(frames[i-1].Arrival).Seconds()*1000, 1.1, "picture %d", i)
				require.Zero(t, frames[i].Epoch)
			}
		})
	}
}

func TestStart(t *testing.T) {
	t.Parallel()
	path := make2s(t, "start.mp4", x264...)
	frames, _, err := play(t, path, 0, func(o *file.Options) { o.Start = time.Second })
	require.ErrorIs(t, err, source.ErrEnded)
	require.InDelta(t, 25, len(frames), 1)
}

func TestBFramesKeepTheirTimes(t *testing.T) {
	t.Parallel()
	path := make2s(t, "b.mp4", "-c:v", "libx264", "-preset", "fast", "-bf", "2", "-pix_fmt", "yuv420p")
	frames, _, err := play(t, path, 0, nil)
	require.ErrorIs(t, err, source.ErrEnded)
	back := 0
	for i := 1; i < len(frames); i++ {
		if frames[i].PTS < frames[i-1].PTS {
			back++
		}
	}
	require.Positive(t, back)
}

func TestFilesThatAreRefused(t *testing.T) {
	_, _, err := play(t, "/nowhere/at/all.mp4", 0, nil)
	require.EqualError(t, err, "file all.mp4 does not exist; it is opened when it appears")
	require.False(t, source.IsPermanent(err), err)
	_, _, err = play(t, t.TempDir(), 0, nil)
	require.ErrorContains(t, err, "is a folder")
	require.True(t, source.IsPermanent(err), err)
	path := make2s(t, "x.mp4", x264...)
	_, _, err = play(t, path, 0, func(o *file.Options) { o.Allow = source.AllowCameras() })
	require.ErrorIs(t, err, source.ErrNotAllowed)
	text := filepath.Join(t.TempDir(), "x.txt")
	require.NoError(t, os.WriteFile(text, []byte("no video"), 0o600))
	_, _, err = play(t, text, 0, nil)
	require.True(t, source.IsPermanent(err), err)
	// A playlist on disk opens only files.
	list := filepath.Join(t.TempDir(), "x.m3u8")
	require.NoError(t, os.WriteFile(list, []byte("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nhttp://169.254.169.254/x.ts\n#EXT-X-ENDLIST\n"), 0o600))
	_, _, err = play(t, list, 0, nil)
	require.Error(t, err)
}

// web serves a folder as a remote server with a password.
func web(t *testing.T, dir string, asked *atomic.Int64) *httptest.Server {
	t.Helper()
	files := http.FileServer(http.Dir(dir))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		user, password, _ := r.BasicAuth()
		if user != "admin" || password != "p@ss" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	path := make2s(t, "clip.mp4", append(x264, "-movflags", "+faststart")...)
	var asked atomic.Int64
	s := web(t, filepath.Dir(path), &asked)
	base := strings.Replace(s.URL, "http://", "http://admin:p@ss@", 1)
	frames, _, err := play(t, base+"/clip.mp4", 0, nil)
	require.ErrorContains(t, err, "came to its end")
	require.InDelta(t, 50, len(frames), 1)

	frames, _, err = play(t, base+"/?to=/clip.mp4", 0, nil)
	require.ErrorContains(t, err, "came to its end")
	require.InDelta(t, 50, len(frames), 1)

	before := asked.Load()
	for _, allow := range []source.Allow{source.AllowCameras(), source.AllowPublic()} {
		_, _, err = play(t, base+"/clip.mp4", 0, func(o *file.Options) { o.Allow = allow })
		require.ErrorIs(t, err, source.ErrNotAllowed)
	}
	require.Equal(t, before, asked.Load(), "nothing was asked of it")
	_, _, err = play(t, base+"/?to=http://169.254.169.254/latest", 0, func(o *file.Options) { o.Allow = source.Allow{Loopback: true} })
	require.ErrorIs(t, err, source.ErrNotAllowed, "also after a redirect")
	_, _, err = play(t, base+"/?to="+url.QueryEscape("https://169.254.169.254/latest"), 0, func(o *file.Options) { o.Allow = source.Allow{Loopback: true} })
	require.ErrorIs(t, err, source.ErrNotAllowed, "also with TLS")
	_, _, err = play(t, base+"/nothing.mp4", 0, nil)
	require.ErrorContains(t, err, "404")
	require.NotContains(t, err.Error(), "p@ss")
}

// TestListsOfOtherKindsAreNotFollowed: a list that only ffmpeg's own formats read, past the checks of addresses.
func TestListsOfOtherKindsAreNotFollowed(t *testing.T) {
	t.Parallel()
	path := make2s(t, "clip.mp4", append(x264, "-movflags", "+faststart")...)
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(path), "list"), []byte("ffconcat version 1.0\nfile clip.mp4\n"), 0o600))
	var asked atomic.Int64
	s := web(t, filepath.Dir(path), &asked)
	frames, _, err := play(t, strings.Replace(s.URL, "http://", "http://admin:p@ss@", 1)+"/list", 0, nil)
	require.ErrorContains(t, err, "look at the video")
	require.Empty(t, frames)
}

// A server with a self-signed certificate.
func TestHTTPS(t *testing.T) {
	t.Parallel()
	path := make2s(t, "clip.mp4", append(x264, "-movflags", "+faststart")...)
	s := httptest.NewTLSServer(http.FileServer(http.Dir(filepath.Dir(path))))
	t.Cleanup(s.Close)
	_, _, err := play(t, s.URL+"/clip.mp4", 1, nil)
	require.ErrorContains(t, err, "certificate")
	frames, _, err := play(t, s.URL+"/clip.mp4", 25, func(o *file.Options) { o.Insecure = true })
	require.ErrorIs(t, err, errEnough)
	require.GreaterOrEqual(t, len(frames), 25, "some more may be under way")
}

// A live HLS stream: a playlist that grows, in real time.
func TestHLS(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, "ffmpeg", append(append([]string{
		"-v", "error", "-nostdin", "-re", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25", "-threads", "1",
	}, x264...), "-f", "hls", "-hls_time", "1", "-hls_list_size", "4", filepath.Join(dir, "live.m3u8"))...)
	require.NoError(t, cmd.Start())
	defer func() {
		cancel()
		_ = cmd.Wait()
	}()
	require.Eventually(t, func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, "live.m3u8"))
		return strings.Count(string(text), ".ts") >= 3
	}, 2*time.Minute, 20*time.Millisecond)
	var asked atomic.Int64
	s := web(t, dir, &asked)
	began := time.Now()
	frames, at, err := play(t, strings.Replace(s.URL, "http://", "http://admin:p%40ss@", 1)+"/live.m3u8", 125, nil)
	require.ErrorIs(t, err, errEnough)
	t.Logf("first picture after %v", at[0].Sub(began).Round(time.Millisecond))
	for i := 1; i < len(frames); i++ {
		require.InDelta(t, 40, (frames[i].PTS-frames[i-1].PTS).Seconds()*1000, 1.1)
	}
	require.Greater(t, at[124].Sub(began).Seconds(), 124*0.04-0.5, "no burst")
}

// The password is on no command line, which all users of the machine can read.
func TestPasswordIsOnNoCommandLine(t *testing.T) {
	t.Parallel()
	path := make2s(t, "clip.mp4", append(x264, "-movflags", "+faststart")...)
	var asked atomic.Int64
	s := web(t, filepath.Dir(path), &asked)
	a, err := source.ParseAddress(strings.Replace(s.URL, "http://", "http://admin:p@ss@", 1) + "/clip.mp4?sig=verysecret")
	require.NoError(t, err)
	clip, err := file.New(file.Options{Access: source.Access{Address: a, Allow: source.AllowEverything(), Now: time.Now}})
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = clip.Pull(t.Context(), source.Sink{Frame: func(media.EncodedFrame) {}})
	}()
	seen := 0
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-time.After(20 * time.Millisecond):
		}
		entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
		require.NoError(t, err)
		for _, e := range entries {
			line, _ := os.ReadFile(e)
			if text := string(line); strings.Contains(text, "stream.invalid") {
				seen++
				require.NotContains(t, text, "p@ss")
				require.NotContains(t, text, "verysecret")
			}
		}
	}
	require.Positive(t, seen)
}
