//go:build integration

package rtsp_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gortsplib/v5"
	"github.com/bluenviron/gortsplib/v5/pkg/auth"
	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/pion/rtp"
	"github.com/pion/rtp/codecs"
	"github.com/stretchr/testify/require"
	opus "gopkg.in/hraban/opus.v2"

	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/codec"
	"touchline/media/source"
	"touchline/media/source/rtsp"
)

var errEnough = errors.New("enough pictures")

// pull opens a camera for n pictures.
func pull(t *testing.T, address string, n int, change func(*rtsp.Options)) (frames []media.EncodedFrame, sounds int, err error) {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	o := rtsp.Options{Access: source.Access{Address: source.Address{URL: u}, Allow: source.Allow{Loopback: true}, Now: time.Now}}
	if change != nil {
		change(&o)
	}
	cam, err := rtsp.New(o)
	require.NoError(t, err)
	ctx, stop := context.WithCancelCause(t.Context())
	timer := time.AfterFunc(20*time.Second, func() { stop(errors.New("no picture in 20 s")) })
	defer timer.Stop()
	err = cam.Pull(ctx, source.Sink{
		Frame: func(f media.EncodedFrame) {
			if frames = append(frames, f); len(frames) == n {
				stop(errEnough)
			}
		},
		Opus: func(o source.Opus) {
			require.NotEmpty(t, o.Payload)
			sounds++
		},
	})
	return frames, sounds, err
}

var x264 = []string{
	"-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-pix_fmt", "yuv420p", "-g", "25", "-b:v", "300k",
}

// decodes returns the number of pictures that ffmpeg decodes.
func decodes(t *testing.T, kind string, frames []media.EncodedFrame) int {
	t.Helper()
	var stream bytes.Buffer
	for _, f := range frames {
		stream.Write(f.Data)
	}
	cmd := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-f", kind, "-i", "pipe:0", "-f", "framemd5", "-fps_mode", "passthrough", "pipe:1")
	cmd.Stdin = &stream
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	require.NoError(t, err)
	require.Empty(t, complaints.String())
	n := 0
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "#") {
			n++
		}
	}
	return n
}

func TestCodecs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		codec media.Codec
		args  []string
		check string // ffmpeg's name of the bare stream
	}{
		{"H264", media.H264, x264, "h264"},
		// The parameter sets are in the SDP only, as with many cameras.
		{"H264 with sets in the SDP", media.H264, append([]string{"-flags", "+global_header"}, x264...), "h264"},
		{
			"H265 with sets in the SDP", media.H265, []string{
				"-flags", "+global_header", "-c:v", "libx265", "-preset", "ultrafast", "-tune", "zerolatency", "-pix_fmt", "yuv420p",
				"-x265-params", "keyint=25:bframes=0:log-level=none:pools=1",
			}, "hevc",
		},
		{"VP8", media.VP8, []string{"-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-g", "25", "-pix_fmt", "yuv420p"}, ""},
		{
			"VP9", media.VP9, []string{
				"-strict", "experimental", "-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-g", "25",
				"-lag-in-frames", "0", "-pix_fmt", "yuv420p",
			}, "",
		},
		{"MJPEG", codec.MJPEG, []string{"-c:v", "mjpeg", "-q:v", "5", "-pix_fmt", "yuvj420p", "-huffman", "default"}, "mjpeg"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCamera(t, cameraOptions{})
			c.film(t, tt.args...)
			frames, _, err := pull(t, c.url(), 40, nil)
			require.ErrorIs(t, err, errEnough)
			require.True(t, frames[0].KeyFrame)
			for i, f := range frames {
				require.Equal(t, tt.codec, f.Codec)
				height := 180
				if tt.codec == codec.MJPEG {
					height = 184 // RFC 2435 counts in eights
				}
				require.Equal(t, [2]int{320, height}, [2]int{f.Width, f.Height})
				if i > 0 {
					require.InDelta(t, 40, (f.PTS - frames[i-1].PTS).Milliseconds(), 1, "picture %d", i)
					require.True(t, f.Arrival.After(frames[i-1].Arrival))
				}
			}
			if tt.check != "" {
				require.Equal(t, len(frames), decodes(t, tt.check, frames))
			}
		})
	}
}

func TestAV1(t *testing.T) {
	c := newCamera(t, cameraOptions{})
	write := c.publish(t, &format.AV1{PayloadTyp: 96})
	units := av1Units(t)
	done := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(done)
		packetizer := rtp.NewPacketizer(1400, 96, 7, &codecs.AV1Payloader{}, rtp.NewRandomSequencer(), 90000)
		for i := 0; ; i++ {
			for _, p := range packetizer.Packetize(units[i%len(units)], 3600) {
				write(p)
			}
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	frames, _, err := pull(t, c.url(), 20, nil)
	close(stop)
	<-done
	require.ErrorIs(t, err, errEnough)
	require.True(t, frames[0].KeyFrame)
	require.Equal(t, 160, frames[0].Width)
}

// av1Units encodes ten pictures as temporal units.
func av1Units(t *testing.T) [][]byte {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-nostdin", "-f", "lavfi", "-i",
		"testsrc2=size=160x90:rate=25", "-frames:v", "10", "-pix_fmt", "yuv420p", "-c:v", "libaom-av1", "-usage", "realtime",
		"-cpu-used", "8", "-lag-in-frames", "0", "-f", "ivf", "pipe:1").Output()
	require.NoError(t, err)
	var units [][]byte
	for rest := out[32:]; len(rest) > 12; {
		n := int(rest[0]) | int(rest[1])<<8 | int(rest[2])<<16
		units = append(units, rest[12:12+n])
		rest = rest[12+n:]
	}
	return units
}

func TestTransports(t *testing.T) {
	t.Parallel()
	t.Run("UDP", func(t *testing.T) {
		c := newCamera(t, cameraOptions{})
		c.film(t, x264...)
		frames, _, err := pull(t, c.url(), 30, func(o *rtsp.Options) { o.Transport = rtsp.UDP })
		require.ErrorIs(t, err, errEnough)
		require.Equal(t, 30, decodes(t, "h264", frames))
		require.Equal(t, []gortsplib.Protocol{gortsplib.ProtocolUDP}, c.protocols)
	})
	t.Run("UDP where TCP is refused", func(t *testing.T) {
		c := newCamera(t, cameraOptions{udpOnly: true})
		c.film(t, x264...)
		_, _, err := pull(t, c.url(), 10, nil)
		require.ErrorIs(t, err, errEnough)
		require.Equal(t, []gortsplib.Protocol{gortsplib.ProtocolUDP}, c.protocols)
		_, _, err = pull(t, c.url(), 10, func(o *rtsp.Options) { o.Transport = rtsp.TCP })
		require.ErrorContains(t, err, "461")
	})
	t.Run("TLS", func(t *testing.T) {
		c := newCamera(t, cameraOptions{tls: true})
		write := c.publish(t, &format.VP8{PayloadTyp: 96})
		_, _, err := pull(t, c.url(), 10, nil)
		require.ErrorContains(t, err, "--insecure")
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			packetizer := rtp.NewPacketizer(1200, 96, 7, &codecs.VP8Payloader{}, rtp.NewRandomSequencer(), 90000)
			for {
				// The smallest key frame: its header (RFC 6386 section 9.1) and random data.
				for _, p := range packetizer.Packetize([]byte{0x10, 0, 0, 0x9d, 1, 0x2a, 64, 0, 64, 0, 1, 2, 3}, 3000) {
					write(p)
				}
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
				}
			}
		}()
		_, _, err = pull(t, c.url(), 10, func(o *rtsp.Options) { o.Insecure = true })
		require.ErrorIs(t, err, errEnough)
		c.srtpOnly = true // some take SRTP only, inside TLS as well
		_, _, err = pull(t, c.url(), 10, func(o *rtsp.Options) { o.Insecure = true })
		close(stop)
		<-done
		require.ErrorIs(t, err, errEnough)
	})
}

func TestOpusIsForwarded(t *testing.T) {
	t.Parallel()
	c := newCamera(t, cameraOptions{})
	c.film(t, append([]string{"-f", "lavfi", "-i", "sine", "-c:a", "libopus", "-ac", "2", "-ar", "48000"}, x264...)...)
	_, sounds, err := pull(t, c.url(), 40, nil)
	require.ErrorIs(t, err, errEnough)
	require.Greater(t, sounds, 20)
}

// The sound of IP cameras, G.711 or AAC, is transcoded to Opus.
func TestSoundBecomesOpus(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"PCMU": {"-c:a", "pcm_mulaw", "-ac", "1", "-ar", "8000"}, "PCMA": {"-c:a", "pcm_alaw", "-ac", "1", "-ar", "8000"},
		"AAC": {"-c:a", "aac", "-ac", "1", "-ar", "16000"}, "AAC stereo": {"-c:a", "aac", "-ac", "2", "-ar", "44100"},
		"AAC in LATM": {"-c:a", "aac", "-ac", "1", "-ar", "16000", "-rtpflags", "latm"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCamera(t, cameraOptions{})
			c.film(t, append(append([]string{"-f", "lavfi", "-i", "sine=f=440"}, args...), x264...)...)
			a, err := source.ParseAddress(c.url())
			require.NoError(t, err)
			camera, err := rtsp.New(rtsp.Options{Access: source.Access{Address: a, Allow: source.AllowEverything(), Now: time.Now}})
			require.NoError(t, err)
			dec, err := opus.NewDecoder(48000, 1)
			require.NoError(t, err)
			ctx, stop := context.WithTimeoutCause(t.Context(), 2*time.Minute, errors.New("no sound in two minutes"))
			defer stop()
			ctx, enough := context.WithCancelCause(ctx)
			pcm := make([]int16, 5760)
			var packets, crossings, samples int
			var last uint32
			var first time.Time
			err = camera.Pull(ctx, source.Sink{Frame: func(media.EncodedFrame) {}, Opus: func(o source.Opus) {
				if packets == 0 {
					first = o.Received
				} else {
					require.Equal(t, last+960, o.Timestamp, "20 ms each")
				}
				last = o.Timestamp
				n, err := dec.Decode(o.Payload, pcm)
				require.NoError(t, err)
				if packets++; packets > 25 {
					samples += n
					for k := 1; k < n; k++ {
						if pcm[k-1] < 0 && pcm[k] >= 0 {
							crossings++
						}
					}
				}
				if packets == 100 {
					t.Logf("99 packets of 20 ms within %v", o.Received.Sub(first))
					enough(errEnough)
				}
			}})
			require.ErrorIs(t, err, errEnough)
			require.InDelta(t, 440, float64(crossings)/float64(samples)*48000, 15, "Hz")
		})
	}
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	for name, method := range map[string]auth.VerifyMethod{
		"basic": auth.VerifyMethodBasic, "digest MD5": auth.VerifyMethodDigestMD5, "digest SHA-256": auth.VerifyMethodDigestSHA256,
	} {
		t.Run(name, func(t *testing.T) {
			c := newCamera(t, cameraOptions{methods: []auth.VerifyMethod{method}})
			c.film(t, x264...)
			c.user, c.password = "admin", "hunter2"
			_, _, err := pull(t, c.url(), 3, nil)
			require.ErrorIs(t, err, errEnough)
			for _, address := range []string{
				strings.Replace(c.url(), "hunter2", "hunter3", 1), strings.Replace(c.url(), "admin:hunter2@", "", 1),
			} {
				_, _, err = pull(t, address, 3, nil)
				require.False(t, source.IsPermanent(err), err)
				require.ErrorContains(t, err, "password")
				require.NotContains(t, err.Error(), "hunter")
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	c := newCamera(t, cameraOptions{})
	_, _, err := pull(t, c.url(), 1, nil)
	require.ErrorContains(t, err, "404")
	require.False(t, source.IsPermanent(err), "it may come")

	_, _, err = pull(t, c.url(), 1, func(o *rtsp.Options) { o.Allow = source.AllowCameras() })
	require.ErrorIs(t, err, source.ErrNotAllowed)
	require.True(t, source.IsPermanent(err))

	c.redirect = "rtsp://169.254.169.254/cam"
	_, _, err = pull(t, c.url(), 1, nil)
	require.ErrorIs(t, err, source.ErrNotAllowed, "also after a redirect")
	_, port, _ := strings.Cut(c.server.RTSPAddress, ":")
	c.redirect = "rtsp://localhost:" + port + "/cam"
	_, _, err = pull(t, strings.Replace(c.url(), "rtsp://", "rtsp://admin:hunter2@", 1), 1, nil)
	require.ErrorContains(t, err, "another host", "with the password")
	c.redirect = ""

	c.publish(t, &format.G711{PayloadTyp: 8, SampleRate: 8000, ChannelCount: 1})
	_, _, err = pull(t, c.url(), 1, nil)
	require.ErrorContains(t, err, "the camera offers PCMA")
	c.publish(t, &format.MPEG1Video{})
	_, _, err = pull(t, c.url(), 1, nil)
	require.ErrorContains(t, err, "the camera offers MPEG-1/2 Video")

	for _, bad := range []string{"http://cam/", "rtsp:///x"} {
		u, err := url.Parse(bad)
		require.NoError(t, err)
		_, err = rtsp.New(rtsp.Options{Access: source.Access{Address: source.Address{URL: u}, Now: time.Now}})
		require.Error(t, err)
	}
}

// A camera that was off is live within three seconds of its return, including the wait for a key frame.
func TestCameraComesBack(t *testing.T) {
	t.Parallel()
	c := newCamera(t, cameraOptions{})
	stop := c.film(t, x264...)
	u, err := url.Parse(c.url())
	require.NoError(t, err)
	cam, err := rtsp.New(rtsp.Options{Access: source.Access{Address: source.Address{URL: u}, Allow: source.Allow{Loopback: true}, Now: time.Now}})
	require.NoError(t, err)
	frames := make(chan time.Time, 4096)
	sup, err := source.NewSupervisor(source.Options{
		Puller: cam, Sink: source.Sink{Frame: func(media.EncodedFrame) { frames <- time.Now() }},
		Now: time.Now, Random: rand.Float64,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- sup.Run(ctx) }()
	next := func() time.Time {
		select {
		case at := <-frames:
			return at
		case <-time.After(2 * time.Minute):
			t.Fatal("no picture")
			return time.Time{}
		}
	}
	next()
	stop()
	c.server.Close()
	require.Eventually(t, func() bool { return sup.Status().State == source.Waiting }, 2*time.Minute, 10*time.Millisecond)
	for len(frames) > 0 {
		<-frames
	}
	again := newCamera(t, cameraOptions{address: c.server.RTSPAddress})
	again.film(t, x264...)
	back := time.Now()
	t.Logf("first picture %v after the camera was back", next().Sub(back))
	cancel()
	require.NoError(t, <-ended)
}

// A panic in a callback, on a library's goroutine, is an error of Pull, which releases
// everything.
func TestCrashIsAnError(t *testing.T) {
	c := newCamera(t, cameraOptions{})
	c.film(t, x264...)
	u, err := url.Parse(c.url())
	require.NoError(t, err)
	cam, err := rtsp.New(rtsp.Options{Access: source.Access{Address: source.Address{URL: u}, Allow: source.Allow{Loopback: true}, Now: time.Now}})
	require.NoError(t, err)
	err = cam.Pull(t.Context(), source.Sink{Frame: func(media.EncodedFrame) { panic("a strange picture") }})
	p, crash := rescue.Of(err)
	require.True(t, crash, "it ended with %v", err)
	require.Equal(t, "a strange picture", p.Value)
}
