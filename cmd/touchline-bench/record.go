package main

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"

	"touchline/internal/e2e/browser"
	"touchline/internal/e2e/stage"
	"touchline/media"
	"touchline/media/ingest"
)

// The stream for measureDecode: a browser's camera.
const (
	recordSeconds = 20
	// rampTime is the time a browser takes to reach its bit rate.
	rampTime = 10 * time.Second
	// keyFrameGap is the key frame interval in pictures: on a slow machine a browser sends fewer than 30 a second.
	keyFrameGap = 30
	// recordTime bounds a recording, on a machine that is too slow for 30 pictures a second.
	recordTime = 90 * time.Second
)

// recordPage sends the browser's camera with one codec to /offer.
const recordPage = `<!doctype html><title>camera</title><link rel="icon" href="data:,">
<script type="module">
  const q = new URLSearchParams(location.search);
  const want = q.get('codec'), mode = q.get('mode');
  try {
    const stream = await navigator.mediaDevices.getUserMedia({ video: { width: 1280, height: 720, frameRate: 30 } });
    const pc = window.pc = new RTCPeerConnection();
    const t = pc.addTransceiver(stream.getVideoTracks()[0], { direction: 'sendonly', 
      sendEncodings: [{ maxBitrate: 1700000, ...(mode ? { scalabilityMode: mode } : {}) }] });
    t.setCodecPreferences(RTCRtpSender.getCapabilities('video').codecs.filter((c) =>
      c.mimeType.toUpperCase() === 'VIDEO/' + want && !/profile-id=[1-3]/.test(c.sdpFmtpLine ?? '')));
    await pc.setLocalDescription();
    const p = t.sender.getParameters();
    p.degradationPreference = 'maintain-resolution';
    await t.sender.setParameters(p);
    while (pc.iceGatheringState !== 'complete') await new Promise((done) => setTimeout(done, 50));
    const answer = await fetch('/offer', { method: 'POST', body: pc.localDescription.sdp });
    await pc.setRemoteDescription({ type: 'answer', sdp: await answer.text() });
  } catch (err) {
    console.error(err);
  }
</script>`

// keptFrame is an access unit in a recording's file.
type keptFrame struct {
	KeyFrame, Discardable bool
	PTS                   time.Duration
	Width, Height         int
	Data                  []byte
}

func restored(c media.Codec, kept []keptFrame) *stage.Clip {
	out := &stage.Clip{}
	for _, f := range kept {
		out.Frames = append(out.Frames, media.EncodedFrame{
			Codec: c, KeyFrame: f.KeyFrame, Discardable: f.Discardable, PTS: f.PTS, Width: f.Width, Height: f.Height, Data: f.Data,
		})
	}
	return out
}

// browserClips returns the clips of recordBrowser, saved in a folder when there is one.
func browserClips(ctx context.Context, folder string, c media.Codec, mode string) (once, eachSecond *stage.Clip, err error) {
	if folder == "" {
		return recordBrowser(ctx, c, mode)
	}
	file := filepath.Join(folder, c.String()+mode+".gob")
	var kept [2][]keptFrame
	b, err := os.ReadFile(file) //nolint:gosec // named on the command line
	switch {
	case err == nil:
		if err := gob.NewDecoder(bytes.NewReader(b)).Decode(&kept); err != nil {
			return nil, nil, fmt.Errorf("read the recording %s: remove it to record again: %w", file, err)
		}
		return restored(c, kept[0]), restored(c, kept[1]), nil
	case !errors.Is(err, os.ErrNotExist):
		return nil, nil, fmt.Errorf("read a recording: %w", err)
	}
	if once, eachSecond, err = recordBrowser(ctx, c, mode); err != nil {
		return nil, nil, err
	}
	for i, from := range []*stage.Clip{once, eachSecond} {
		for _, f := range from.Frames {
			kept[i] = append(kept[i], keptFrame{f.KeyFrame, f.Discardable, f.PTS, f.Width, f.Height, f.Data})
		}
	}
	var out bytes.Buffer
	if err := gob.NewEncoder(&out).Encode(kept); err != nil {
		return nil, nil, fmt.Errorf("save the recording: %w", err)
	}
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		return nil, nil, fmt.Errorf("save the recording: %w", err)
	}
	return once, eachSecond, nil
}

// recordBrowser records a headless Chromium that sends a moving 720p30 scene with noise at 1.7 Mbit/s: 20 s with one
// key frame, then 20 s with a key frame requested every second. mode is a WebRTC scalability mode, "" for none.
func recordBrowser(ctx context.Context, c media.Codec, mode string) (once, eachSecond *stage.Clip, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*recordTime+rampTime)
	defer cancel()
	dir, err := os.MkdirTemp("", "touchline-record-")
	if err != nil {
		return nil, nil, fmt.Errorf("make a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "camera.mjpeg")
	out, err := exec.CommandContext(ctx, "ffmpeg", "-v", "error", "-nostdin", "-f", "lavfi", "-i",
		"testsrc2=s=1280x720:r=30,noise=alls=6:allf=t", "-t", "10", "-c:v", "mjpeg", "-q:v", "4", "-pix_fmt", "yuvj420p", file).CombinedOutput()
	if err != nil {
		return nil, nil, fmt.Errorf("make the browser's camera with ffmpeg: %w: %s", err, out)
	}
	r := &recorder{codec: c, done: make(chan struct{})}
	pages := httptest.NewServer(r)
	defer pages.Close()
	defer r.close()
	b, err := browser.Open(ctx, browser.Options{Width: 640, Height: 480, Video: file})
	if err != nil {
		return nil, nil, err
	}
	defer b.Close()
	if err := b.Navigate(pages.URL + "/?codec=" + c.String() + "&mode=" + mode); err != nil {
		return nil, nil, err
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		r.mu.Lock()
		got := len(r.clips[0].Frames) + len(r.clips[1].Frames)
		r.mu.Unlock()
		return nil, nil, fmt.Errorf("the browser sent %d of %d pictures: %v", got, 2*recordSeconds*30, b.Problems())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return &r.clips[0], &r.clips[1], nil
}

// recorder serves the browser's page and receives its video.
type recorder struct {
	codec media.Codec
	done  chan struct{} // closed when there are enough pictures

	mu    sync.Mutex
	pc    *webrtc.PeerConnection
	clips [2]stage.Clip // with one key frame, with one each second
	wg    sync.WaitGroup
}

// ServeHTTP implements http.Handler.
func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path != "/offer" {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, recordPage)
		return
	}
	const longest = 1 << 20
	offer, err := io.ReadAll(http.MaxBytesReader(w, req.Body, longest))
	if err == nil {
		var answer string
		if answer, err = r.answer(req.Context(), string(offer)); err == nil {
			_, _ = io.WriteString(w, answer)
			return
		}
	}
	http.Error(w, err.Error(), http.StatusBadRequest)
}

func (r *recorder) answer(ctx context.Context, offer string) (string, error) {
	settings := webrtc.SettingEngine{}
	settings.SetIncludeLoopbackCandidate(true)
	settings.SetIPFilter(func(ip net.IP) bool { return ip.IsLoopback() })
	pc, err := webrtc.NewAPI(webrtc.WithSettingEngine(settings)).NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		return "", fmt.Errorf("make a peer connection: %w", err)
	}
	r.mu.Lock()
	r.pc = pc
	r.mu.Unlock()
	pc.OnTrack(func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) { r.wg.Go(func() { r.read(pc, track) }) })
	gathered := webrtc.GatheringCompletePromise(pc)
	if err := pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: offer}); err != nil {
		return "", fmt.Errorf("take the browser's offer: %w", err)
	}
	answer, err := pc.CreateAnswer(nil)
	if err != nil {
		return "", fmt.Errorf("answer the browser: %w", err)
	}
	if err := pc.SetLocalDescription(answer); err != nil {
		return "", fmt.Errorf("answer the browser: %w", err)
	}
	select {
	case <-gathered:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	return pc.LocalDescription().SDP, nil
}

// read keeps pictures from the first key frame after the ramp. A later key frame restarts the first clip; for the
// second one key frames are requested.
func (r *recorder) read(pc *webrtc.PeerConnection, track *webrtc.TrackRemote) {
	start := time.Now()
	asm := ingest.New(ingest.Options{Codec: r.codec})
	var asked time.Time
	sinceKey := 0
	for n := 0; n < len(r.clips); {
		packet, _, err := track.ReadRTP()
		if err != nil {
			return // the connection was closed
		}
		now := time.Now()
		frames := append(asm.Push(packet, now), asm.Tick(now)...)
		r.mu.Lock()
		for _, f := range frames {
			if sinceKey++; f.KeyFrame {
				sinceKey = 1
			}
			if n < len(r.clips) && now.Sub(start) > rampTime && r.keep(n, f) {
				n++
			}
		}
		waiting := len(r.clips[0].Frames) == 0 || n > 0 && sinceKey >= keyFrameGap
		r.mu.Unlock()
		if (asm.WantsKeyFrame(now) || waiting && now.Sub(start) > rampTime) && now.Sub(asked) > time.Second/2 {
			asked = now
			_ = pc.WriteRTCP([]rtcp.Packet{&rtcp.PictureLossIndication{MediaSSRC: uint32(track.SSRC())}})
		}
	}
	close(r.done)
}

// keep adds a picture to clip n and reports whether the clip is complete.
func (r *recorder) keep(n int, f media.EncodedFrame) bool {
	c := &r.clips[n]
	switch {
	case f.KeyFrame && n == 0 && f.Width == 1280:
		c.Frames = c.Frames[:0]
	case len(c.Frames) == 0 && (!f.KeyFrame || f.Width != 1280):
		return false
	}
	f.Packets = nil
	c.Frames = append(c.Frames, f)
	return len(c.Frames) == recordSeconds*30
}

func (r *recorder) close() {
	r.mu.Lock()
	pc := r.pc
	r.mu.Unlock()
	if pc != nil {
		_ = pc.Close()
	}
	r.wg.Wait()
}

// decoderAlone measures libavcodec by itself, in ffmpeg on one thread: the share of a core at fps pictures a second.
func decoderAlone(ctx context.Context, c media.Codec, match *stage.Clip, fps int) (float64, error) {
	name := map[media.Codec]string{media.VP8: "vp8", media.VP9: "libvpx-vp9", media.H264: "h264", media.AV1: "libdav1d"}[c]
	if name == "" {
		return 0, errors.New("no decoder for the codec: want VP8, VP9, H264 or AV1")
	}
	dir, err := os.MkdirTemp("", "touchline-alone-")
	if err != nil {
		return 0, fmt.Errorf("make a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "clip")
	if err := os.WriteFile(file, clipFile(match, c), 0o600); err != nil {
		return 0, fmt.Errorf("write the clip: %w", err)
	}
	cpu := func(args ...string) (time.Duration, error) {
		args = append(append([]string{"-v", "error", "-nostdin", "-threads", "1", "-c:v", name, "-i", file}, args...), "-f", "null", "-")
		cmd := exec.CommandContext(ctx, "ffmpeg", args...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("decode with ffmpeg: %w: %s", err, out)
		}
		return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
	}
	all, err := cpu()
	if err != nil {
		return 0, err
	}
	start, err := cpu("-frames:v", "1")
	if err != nil {
		return 0, err
	}
	return (all - start).Seconds() / (float64(len(match.Frames)) / float64(fps)), nil
}
