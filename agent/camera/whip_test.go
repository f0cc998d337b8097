//go:build integration

package camera_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/camera"
	"touchline/agent/room/conn"
	"touchline/internal/e2e/browser"
	"touchline/media/signaling"
	"touchline/media/source/whip"
)

// whipPage sends the browser's camera and microphone by WHIP, as pages do.
const whipPage = `<!doctype html><title>whip</title><link rel="icon" href="data:,">
<script type="module">
  const q = new URLSearchParams(location.search);
  window.send = async () => {
    const stream = window.stream ??= await navigator.mediaDevices.getUserMedia({ video: { width: 640, height: 360, frameRate: 15 }, audio: true });
    const pc = window.pc = new RTCPeerConnection();
    for (const track of stream.getTracks()) {
      const t = pc.addTransceiver(track, { direction: 'sendonly', streams: [stream] });
      if (track.kind === 'video' && q.get('codec')) {
        const all = RTCRtpSender.getCapabilities('video').codecs;
        const first = all.filter((c) => c.mimeType === 'video/' + q.get('codec'));
        t.setCodecPreferences([...first, ...all.filter((c) => !first.includes(c))]);
        const p = t.sender.getParameters();
        p.degradationPreference = 'maintain-resolution';
        await t.sender.setParameters(p);
      }
    }
    await pc.setLocalDescription();
    const r = await fetch(q.get('to'), { method: 'POST', body: pc.localDescription.sdp,
      headers: { 'Content-Type': 'application/sdp', Authorization: 'Bearer ' + q.get('token') } });
    if (r.status !== 201) throw new Error(r.status + ' ' + await r.text());
    window.session = new URL(r.headers.get('Location'), q.get('to'));
    window.tag = r.headers.get('ETag');
    await pc.setRemoteDescription({ type: 'answer', sdp: await r.text() });
    // Candidates are trickled, as in RFC 9725 section 4.3.2.
    pc.onicecandidate = null;
    const sdp = pc.localDescription.sdp;
    const line = (k) => sdp.match(new RegExp('a=' + k + ':.*'))[0];
    const found = sdp.split('\r\n').filter((l) => l.startsWith('a=candidate'));
    const t = await fetch(window.session, { method: 'PATCH',
      headers: { 'Content-Type': 'application/trickle-ice-sdpfrag', 'If-Match': window.tag },
      body: [line('ice-ufrag'), line('ice-pwd'), sdp.match(/m=.*/)[0], line('mid'), ...found, 'a=end-of-candidates', ''].join('\r\n') });
    window.trickled = t.status;
  };
  window.leave = async () => {
    const r = await fetch(window.session, { method: 'DELETE' });
    window.pc.close();
    return r.status;
  };
  window.send().then(() => { window.sent = true }, (err) => { window.failed = String(err) });
</script>`

// TestChromium sends by WHIP from a real browser, and reads the frame counter in the room.
func TestChromium(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	h264 := clip(t, "clip.mp4", plain...)
	film := filepath.Join(t.TempDir(), "clip.mjpeg")
	out, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-i", h264, "-c:v", "mjpeg", "-q:v", "3", "-pix_fmt", "yuvj420p", film).CombinedOutput()
	require.NoError(t, err, string(out))

	senders := camera.NewSenders(camera.Options{URL: s.server.URL(), Keys: s.keys, LoopbackOnly: true, Codec: programPath(), Log: zerolog.Nop()})
	server, err := whip.New(whip.Options{Authorize: camera.Authorize(s.keys), Open: senders.Open, PortOptions: signaling.PortOptions{LoopbackOnly: true}, Now: time.Now})
	require.NoError(t, err)
	run(t, senders.Run)
	run(t, server.Run)
	require.Eventually(t, func() bool { return server.UDPPort() > 0 }, 2*time.Minute, time.Millisecond)
	mux := http.NewServeMux()
	mux.Handle("/whip/", server)
	api := httptest.NewServer(mux) // another origin than the page's: CORS is part of it
	t.Cleanup(api.Close)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(whipPage)) }))
	t.Cleanup(page.Close)

	b, err := browser.Open(context.WithoutCancel(t.Context()), browser.Options{Video: film})
	require.NoError(t, err)
	t.Cleanup(b.Close)
	for _, codec := range []string{"H264", "VP8"} {
		t.Run(codec, func(t *testing.T) {
			name := "whip-" + strings.ToLower(codec)
			token, err := conn.CameraToken(s.keys, conn.Person{Room: name, Identity: "phone"})
			require.NoError(t, err)
			require.NoError(t, b.Navigate(page.URL+"/?"+url.Values{
				"to": {api.URL + "/whip/" + name}, "token": {token}, "codec": {codec},
			}.Encode()))
			require.NoError(t, b.Until(2*time.Minute, "window.sent || window.failed"))
			failed, err := browser.Eval[string](b, 2*time.Minute, "window.failed ?? ''")
			require.NoError(t, err)
			require.Empty(t, failed)
			trickled, err := browser.Eval[int](b, 2*time.Minute, "window.trickled")
			require.NoError(t, err)
			require.Equal(t, http.StatusNoContent, trickled)

			seen := s.counters(t, name, "phone", 30)
			steps := 0
			for i := 1; i < len(seen); i++ {
				if seen[i] > seen[i-1] { // but where the clip begins again
					steps++
				}
			}
			require.Greater(t, steps, 15, "%v", seen)
			require.Len(t, server.Sessions(), 1)
			sent, err := browser.Eval[string](b, 2*time.Minute, `(async () => { const all = [...(await pc.getStats()).values()];
				return all.find((s) => s.type === 'outbound-rtp' && s.kind === 'video').codecId &&
				  all.find((s) => s.id === all.find((s) => s.type === 'outbound-rtp' && s.kind === 'video').codecId).mimeType })()`)
			require.NoError(t, err)
			require.Equal(t, "video/"+codec, sent)

			status, err := browser.Eval[int](b, 2*time.Minute, "window.leave()")
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, status)
			require.Empty(t, server.Sessions())
		})
	}
	require.Empty(t, b.Problems())
}
