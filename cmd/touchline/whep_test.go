//go:build integration && !nodemo

package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/internal/e2e/browser"
	"touchline/internal/e2e/mediamtx"
	"touchline/worlds"
)

// hum is the pitch of the camera's sound in TestWHEP, in Hz, above any voice. humLevel is an eighth of full scale, in dB.
const hum, humLevel = 10000, -18.1

// TestWHEP plays a demo whose camera has sound with three players: that of the documentation on a page of another
// origin, MediaMTX, which pulls by WHEP and serves RTSP, and MediaMTX's own web player.
func TestWHEP(t *testing.T) {
	dir := t.TempDir()
	match, clip := filepath.Join(dir, "match.mkv"), filepath.Join(dir, "clip.mkv")
	renderMatch(t, match, 20)
	out, err := exec.CommandContext(t.Context(), "ffmpeg", slices.Concat([]string{
		"-v", "error", "-nostdin", "-i", match, "-f", "lavfi", "-i", fmt.Sprintf("sine=frequency=%d:sample_rate=48000", hum),
		"-shortest", "-c:a", "libopus", "-b:a", "96k", "-threads", "1",
	}, encoders["h264"], []string{clip})...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	_, home := start(t, nil, "demo", "--listen", "127.0.0.1:0", "--source", clip)
	page := playerPage(t)

	// A page of another origin needs a token, which the page's API returns on this machine.
	resp, err := http.Post(home+"api/livekit/token", "application/json", strings.NewReader(`{"role": "viewer", "name": "Vera"}`))
	require.NoError(t, err)
	defer resp.Body.Close()
	var grant struct{ Token, Room string }
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&grant))
	player := func(token string) string {
		return page.URL + "/?" + url.Values{"url": {home + "whep/" + grant.Room}, "token": {token}}.Encode()
	}
	refused := open(t, player(""), browser.Options{})
	require.Eventually(t, func() bool { return strings.Contains(strings.Join(refused.Problems(), " "), "401") }, soon, 50*time.Millisecond)
	refused.Close()

	b := watches(t, player(grant.Token))

	// A late player shows a picture, and the comments of before.
	late := open(t, player(grant.Token), browser.Options{})
	require.NoError(t, late.Until(later, `spy.first > 0`))
	began, err := browser.Eval[float64](late, soon, `(async () => { await 0; return performance.getEntriesByType('resource').find((e) => e.name.includes('/whep/')).responseEnd / 1000 })()`)
	require.NoError(t, err)
	t.Logf("late viewer: first picture %.2f s after the answer", firstPicture(t, late)-began)
	require.NoError(t, late.Until(soon, `document.querySelectorAll('#said li').length > 0`), "comments of before")

	// DELETE ends the session; a second one fails.
	end, err := browser.Eval[int](late, soon, `fetch(window.session, { method: 'DELETE' }).then((r) => r.status)`)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, end)
	require.NoError(t, late.Until(soon, `pc.connectionState === 'closed' || pc.connectionState === 'failed' || pc.connectionState === 'disconnected'`))

	// Programs on this machine need no token, pages of other origins do.
	post := func(origin string) int {
		r, err := http.NewRequest(http.MethodPost, home+"whep/"+grant.Room, strings.NewReader("v=0\r\n"))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/sdp")
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer resp.Body.Close()
		return resp.StatusCode
	}
	require.Equal(t, http.StatusBadRequest, post(""), "no media section")
	require.Equal(t, http.StatusUnauthorized, post("http://elsewhere.example"))
	late.Close()
	b.Close()

	// The token is in the address, because MediaMTX and its player have no other place for it.
	address := "127.0.0.1" + home[strings.LastIndexByte(home, ':'):] + "whep/" + grant.Room + "?key=" + grant.Token
	m := startMediaMTX(t, mediamtx.Pulled{Name: "open-whep", Source: "whep://" + address})
	script := fmt.Sprintf("http://127.0.0.1:%d/open-whep/reader.js", m.WebRTC)
	reader := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `<!doctype html><link rel="icon" href="data:,"><video id="picture" autoplay playsinline></video>
			<script src=%q></script><script>new MediaMTXWebRTCReader({url: %q, onError: (e) => console.error(e),
			onTrack: (e) => { document.getElementById('picture').srcObject = e.streams[0] }})</script>`, script, "http://"+address)
	}))
	t.Cleanup(reader.Close)
	theirs := open(t, reader.URL, browser.Options{})
	require.NoError(t, theirs.Until(later, `document.getElementById('picture').videoWidth > 0`), "%q", theirs.Problems())
	counts(t, theirs, counts(t, theirs, 0))
	heard(t, theirs, later)
	theirs.Close()
	relayed(t, m)
}

// relayed checks the stream of MediaMTX: moving pictures, the voice, and the camera's sound, 12 dB lower.
func relayed(t *testing.T, m *mediamtx.Server) {
	t.Helper()
	dir := t.TempDir()
	pictures, sounds := filepath.Join(dir, "pictures.yuv"), filepath.Join(dir, "sounds.pcm")
	ctx, cancel := context.WithTimeout(t.Context(), later)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ffmpeg", "-v", "error", "-nostdin", "-rtsp_transport", "tcp", "-t", "15",
		"-i", fmt.Sprintf("rtsp://127.0.0.1:%d/open-whep", m.RTSP),
		"-map", "0:v", "-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "yuv420p", pictures,
		"-map", "0:a", "-f", "s16le", "-ac", "1", "-ar", "48000", sounds).CombinedOutput()
	require.NoError(t, err, "%s", out)

	raw, err := os.ReadFile(pictures)
	require.NoError(t, err)
	var numbers []uint32
	for frame := range slices.Chunk(raw, cameraWidth*cameraHeight*3/2) {
		if n, ok := worlds.ReadCounterI420(frame, cameraWidth, cameraHeight); ok {
			numbers = append(numbers, n)
		}
	}
	require.Greater(t, len(numbers), cameraFPS, "pictures of 15 s: %s", out)
	for i, n := range numbers[1:] {
		// The clip repeats every 20 s.
		require.True(t, n > numbers[i] || n < 2*cameraFPS && numbers[i] > 18*cameraFPS, "%d follows %d", n, numbers[i])
	}

	raw, err = os.ReadFile(sounds)
	require.NoError(t, err)
	var hums, voices []float64 // dB, each 20 ms
	for piece := range slices.Chunk(raw, 2*960) {
		pcm := make([]float64, len(piece)/2)
		for i := range pcm {
			pcm[i] = float64(int16(binary.LittleEndian.Uint16(piece[2*i:]))) / 32768
		}
		var re, im, low float64
		for i, v := range pcm {
			sin, cos := math.Sincos(2 * math.Pi * hum * float64(i) / 48000)
			re, im = re+v*cos, im+v*sin
			if i >= 24 { // five periods of the hum cancel it
				mean := 0.0
				for _, u := range pcm[i-24 : i] {
					mean += u / 24
				}
				low += mean * mean
			}
		}
		level := 20 * math.Log10(2*math.Hypot(re, im)/float64(len(pcm))+1e-9)
		if level < -60 { // before the sound
			continue
		}
		hums, voices = append(hums, level), append(voices, 10*math.Log10(low/float64(len(pcm))+1e-9))
	}
	require.Greater(t, len(hums), 50, "sound of 15 s")
	slices.Sort(hums)
	slices.Sort(voices)
	under, voice := hums[len(hums)/4], voices[len(voices)*9/10]
	t.Logf("%d pictures; the camera's sound: %.1f dB, of %.1f; the voice: %.1f dB", len(numbers), under, humLevel, voice)
	require.InDelta(t, humLevel-12, under, 2, "below the voice")
	require.Greater(t, voice, -35.0)
}

// playerPage serves the documentation's player from another origin.
func playerPage(t *testing.T) *httptest.Server {
	t.Helper()
	html, err := os.ReadFile(filepath.Join(moduleRoot, "docs", "whep-player.html"))
	require.NoError(t, err)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(html) }))
	t.Cleanup(page.Close)
	return page
}

// watches opens a player and waits for moving pictures, a voice and comments.
func watches(t *testing.T, player string) *browser.Browser {
	t.Helper()
	b := open(t, player, browser.Options{})
	require.NoError(t, b.Until(later, `document.getElementById('picture').videoWidth > 0`), "%q", b.Problems())
	t.Logf("first picture %.2f s after the page was asked for", firstPicture(t, b))
	counts(t, b, counts(t, b, 0))                                                             // the picture moves
	_, err := browser.Eval[bool](b, soon, `document.getElementById('picture').muted = false`) // like a click on the controls
	require.NoError(t, err)
	heard(t, b, later)
	require.NoError(t, b.Until(later, `document.querySelectorAll('#said li').length > 1`))
	t.Logf("said: %q", text(t, b, "#said li"))
	return b
}
