//go:build integration

package camera_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"
	pionmedia "github.com/pion/webrtc/v4/pkg/media"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/camera"
	"touchline/agent/room"
	"touchline/media"
	"touchline/media/source/whip"
)

// TestWHIPDelay measures from a sender's write to the room's viewer: 2 Mbit/s
// of 720p30 H264, each access unit with its number.
func TestWHIPDelay(t *testing.T) {
	s := newStage(t)
	senders := camera.NewSenders(camera.Options{URL: s.server.URL(), Keys: s.keys, LoopbackOnly: true, Codec: programPath(), Log: zerolog.Nop()})
	server, err := whip.New(whip.Options{
		Keys: []whip.StreamKey{{Key: "a-good-long-key", Room: "delay", Identity: "obs"}}, Open: senders.Open, LoopbackOnly: true, Now: time.Now,
	})
	require.NoError(t, err)
	run(t, senders.Run)
	run(t, server.Run)
	require.Eventually(t, func() bool { return server.UDPPort() > 0 }, 5*time.Second, time.Millisecond)
	api := httptest.NewServer(server.Handler())
	t.Cleanup(api.Close)

	out, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=1280x720:rate=30",
		"-frames:v", "60", "-c:v", "libx264", "-preset", "superfast", "-tune", "zerolatency", "-pix_fmt", "yuv420p", "-profile:v", "baseline",
		"-g", "30", "-b:v", "2M", "-maxrate", "2M", "-bufsize", "500k", "-x264-params", "aud=1", "-f", "h264", "pipe:1").Output()
	require.NoError(t, err)
	units := bytes.Split(out, []byte{0, 0, 0, 1, 9})[1:]

	m := &webrtc.MediaEngine{}
	require.NoError(t, m.RegisterDefaultCodecs())
	e := webrtc.SettingEngine{}
	e.SetIncludeLoopbackCandidate(true)
	pc, err := webrtc.NewAPI(webrtc.WithMediaEngine(m), webrtc.WithSettingEngine(e)).NewPeerConnection(webrtc.Configuration{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = pc.GracefulClose() })
	track, err := webrtc.NewTrackLocalStaticSample(webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeH264}, "video", "stream")
	require.NoError(t, err)
	_, err = pc.AddTransceiverFromTrack(track, webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionSendonly})
	require.NoError(t, err)
	offer, err := pc.CreateOffer(nil)
	require.NoError(t, err)
	gathered := webrtc.GatheringCompletePromise(pc)
	require.NoError(t, pc.SetLocalDescription(offer))
	<-gathered
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api.URL+"/whip/delay", strings.NewReader(pc.LocalDescription().SDP))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/sdp")
	r.Header.Set("Authorization", "Bearer a-good-long-key")
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	answer, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, resp.StatusCode, string(answer))
	require.NoError(t, pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: string(answer)}))

	var mu sync.Mutex
	sent := map[uint32]time.Time{}
	run(t, func(ctx context.Context) error {
		tick := time.NewTicker(time.Second / 30)
		defer tick.Stop()
		for n := uint32(1); ; n++ {
			// In front of the slices a SEI of unregistered data (H.264 section D.1.7) with the number.
			sei := append([]byte{0, 0, 0, 1, 6, 5, 20}, bytes.Repeat([]byte{0xa5}, 16)...)
			number := binary.BigEndian.AppendUint32(nil, n|0x80808080)
			sei = append(append(sei, number...), 0x80)
			mu.Lock()
			sent[n|0x80808080] = time.Now()
			mu.Unlock()
			// Without the delimiter's own byte.
			_ = track.WriteSample(pionmedia.Sample{Data: append(sei, units[int(n-1)%len(units)][1:]...), Duration: time.Second / 30})
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	})
	bot, err := room.New(room.Options{
		URL: s.server.URL(), Keys: s.keys, Room: "delay", Identity: "viewer", Name: "viewer", LoopbackOnly: true,
		Watch: media.WatchConfig{Identity: "obs"}, Log: zerolog.Nop(),
	})
	require.NoError(t, err)
	run(t, bot.Run)
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	var delays []time.Duration
	for len(delays) < 180 {
		f, err := bot.Watcher().ReadFrame(ctx)
		require.NoError(t, err)
		i := bytes.Index(f.Data, bytes.Repeat([]byte{0xa5}, 16))
		if i < 0 || i+20 > len(f.Data) {
			continue
		}
		mu.Lock()
		at, ok := sent[binary.BigEndian.Uint32(f.Data[i+16:])]
		mu.Unlock()
		if ok {
			delays = append(delays, f.Received.Sub(at))
		}
	}
	delays = delays[30:]
	slices.Sort(delays)
	p50, p95 := delays[len(delays)/2], delays[len(delays)*95/100]
	t.Logf("sender to viewer: p50 %v, p95 %v", p50.Round(100*time.Microsecond), p95.Round(100*time.Microsecond))
	require.Less(t, p95, 80*time.Millisecond, "twice the bound of 40 ms, for a busy machine")
}
