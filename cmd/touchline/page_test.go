//go:build integration && !nodemo

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"touchline/internal/e2e/browser"
	"touchline/media"
	"touchline/worlds"
)

// Timeouts, generous for a busy machine.
const (
	soon  = 2 * time.Minute
	later = 5 * time.Minute
)

// spy records the page's connections and layout shifts.
const spy = `
window.spy = { pcs: [], shift: 0, shifts: [] };
(() => {
  const Native = window.RTCPeerConnection;
  window.RTCPeerConnection = function (...args) {
    const pc = new Native(...args);
    window.spy.pcs.push(pc);
    return pc;
  };
  window.RTCPeerConnection.prototype = Native.prototype;
  Object.setPrototypeOf(window.RTCPeerConnection, Native);
  // Cumulative Layout Shift: the worst burst of shifts, less than 1 s from one to the next and at most 5 s together.
  let burst = 0, began = -Infinity, last = -Infinity;
  new PerformanceObserver((list) => {
    for (const e of list.getEntries()) {
      if (e.hadRecentInput) continue;
      if (e.startTime - last > 1000 || e.startTime - began > 5000) [burst, began] = [0, e.startTime];
      [burst, last] = [burst + e.value, e.startTime];
      window.spy.shift = Math.max(window.spy.shift, burst);
      window.spy.shifts.push(e.value.toFixed(4) + ' ' + e.sources.map((s) => s.node?.id || s.node?.className || s.node?.nodeName).join(','));
    }
  }).observe({ type: 'layout-shift', buffered: true });
})();
for (const type of ['loadeddata', 'resize']) {
  addEventListener(type, (e) => {
    if (e.target.id === 'picture' && e.target.videoWidth > 0) window.spy.first ??= performance.now() / 1000;
  }, true);
}
window.spy.inbound = async (kind) => {
  const all = [];
  for (const pc of window.spy.pcs) {
    if (pc.connectionState === 'closed') continue;
    for (const s of (await pc.getStats()).values()) if (s.type === 'inbound-rtp' && s.kind === kind) all.push(s);
  }
  return all;
};
// The sound of all connections so far, including closed ones.
window.spy.heard = new Map();
window.spy.energy = async () => {
  for (const [n, pc] of window.spy.pcs.entries()) {
    if (pc.connectionState === 'closed') continue;
    for (const s of (await pc.getStats()).values())
      if (s.type === 'inbound-rtp' && s.kind === 'audio') window.spy.heard.set(n + s.id, s.totalAudioEnergy);
  }
  return [...window.spy.heard.values()].reduce((sum, e) => sum + e, 0);
};
// Pictures shown so far, also after a reconnect that resets the player's count.
window.spy.shown = 0;
let player = 0;
setInterval(() => {
  const now = document.getElementById('picture')?.getVideoPlaybackQuality().totalVideoFrames ?? 0;
  window.spy.shown += now < player ? now : now - player;
  player = now;
}, 100);
`

// problems returns the errors on a page's console, without those of a busy machine: a thumbnail that the page asks for late is gone,
// the wall asks for a room's picture before there is one, and LiveKit's client loses its connection and makes another one.
func problems(b interface{ Problems() []string }) []string {
	return slices.DeleteFunc(b.Problems(), func(p string) bool {
		return strings.Contains(p, "404") && (strings.Contains(p, "/api/frames/") || strings.Contains(p, "/frame?w=")) ||
			strings.Contains(p, "NegotiationError: negotiation timed out") || strings.Contains(p, "WebSocket is already in CLOSING or CLOSED state")
	})
}

// open opens the page in a browser.
func open(t *testing.T, url string, o browser.Options) *browser.Browser {
	t.Helper()
	o.Script = spy
	b, err := browser.Open(context.WithoutCancel(t.Context()), o)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			shoot(t, b, "failed-"+strings.ReplaceAll(t.Name(), "/", "-"))
			t.Logf("console: %q", b.Problems())
		}
		b.Close()
	})
	require.NoError(t, b.Navigate(url))
	return b
}

// text returns the text of an element.
func text(t *testing.T, b browser.Page, selector string) string {
	t.Helper()
	s, err := browser.Eval[string](b, soon, "document.querySelector('"+selector+"')?.innerText ?? ''")
	require.NoError(t, err)
	return strings.TrimSpace(s)
}

// shownMore is the number of new pictures in a moving picture.
const shownMore = 10

// plays waits until the page shows a moving picture. It counts pictures, which
// may be late under load.
func plays(t *testing.T, b browser.Page, within time.Duration) {
	t.Helper()
	require.NoError(t, b.Until(within, `(() => { const v = document.getElementById('picture');
		if (!(v.videoWidth > 0) || !document.getElementById('curtain').hidden) { delete spy.from; return false }
		spy.from ??= spy.shown;
		return spy.shown >= spy.from + `+strconv.Itoa(shownMore)+` && delete spy.from })()`))
}

// snapshots waits until a page has taken snapshots of a room that changes each second.
func snapshots(t *testing.T, b browser.Page) {
	t.Helper()
	_, err := browser.Eval[bool](b, soon, `new Promise((done) => {
		const events = new EventSource('/api/events');
		let n = 0;
		events.addEventListener('snapshot', () => ++n === 4 && (events.close(), done(true)));
	})`)
	require.NoError(t, err)
}

// firstPicture returns the time from the request of the page to its first picture, in seconds.
func firstPicture(t *testing.T, b browser.Page) float64 {
	t.Helper()
	s, err := browser.Eval[float64](b, soon, "spy.first")
	require.NoError(t, err)
	return s
}

// picture returns the current picture of the page's video.
func picture(b browser.Page) (image.Image, error) {
	data, err := browser.Eval[string](b, soon, `(() => { const v = document.getElementById('picture');
		const c = document.createElement('canvas'); c.width = v.videoWidth; c.height = v.videoHeight;
		c.getContext('2d').drawImage(v, 0, 0); return c.toDataURL('image/png') })()`)
	if err != nil {
		return nil, err
	}
	_, data, _ = strings.Cut(data, ",")
	raw, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return nil, err
	}
	return png.Decode(bytes.NewReader(raw))
}

// counter reads the frame counter of a generated match in a picture.
func counter(img image.Image) (uint32, bool) {
	f := media.VideoFrame{Width: img.Bounds().Dx(), Height: img.Bounds().Dy()}
	for y := range f.Height {
		for x := range f.Width {
			r, g, b, _ := img.At(x, y).RGBA()
			f.Pix = append(f.Pix, byte(r>>8), byte(g>>8), byte(b>>8))
		}
	}
	return worlds.ReadCounter(f)
}

// counts waits until the picture has another counter.
func counts(t *testing.T, b browser.Page, not uint32) uint32 {
	t.Helper()
	var n uint32
	ok := false
	for end := time.Now().Add(later); (!ok || n == not) && time.Now().Before(end); {
		<-time.After(100 * time.Millisecond)
		img, err := picture(b) // none while the source changes
		if err == nil {
			n, ok = counter(img)
		}
	}
	require.True(t, ok, "the picture's counter cannot be read")
	require.NotEqual(t, not, n, "the picture stands still")
	return n
}

// commented waits for a comment with loaded pictures.
func commented(t *testing.T, b browser.Page, within time.Duration) {
	t.Helper()
	require.NoError(t, b.Until(within, `[...document.querySelectorAll('#list > li')].some((li) =>
		li.querySelector('.words').textContent.length > 3 && li.querySelector('.words').lang !== '' &&
		[...li.querySelectorAll('.thumb img')].some((i) => i.complete && i.naturalWidth > 0))`))
}

// captioned waits for words over the picture.
func captioned(t *testing.T, b browser.Page, within time.Duration) {
	t.Helper()
	require.NoError(t, b.Until(within, "document.querySelectorAll('#captions .word').length > 1"))
}

// heard waits for sound from the browser's speaker.
func heard(t *testing.T, b browser.Page, within time.Duration) {
	t.Helper()
	before, err := browser.Eval[float64](b, soon, "spy.energy()")
	require.NoError(t, err)
	require.NoError(t, b.Until(within, "spy.energy().then((e) => e - "+ftoa(before)+" > 1e-3)"))
}

// shoot keeps a screenshot in TOUCHLINE_SCREENSHOTS, if that is set.
func shoot(t *testing.T, b browser.Page, name string) {
	t.Helper()
	dir := os.Getenv("TOUCHLINE_SCREENSHOTS")
	if dir == "" {
		return
	}
	shot, err := b.Screenshot()
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), shot, 0o644)
	}
	if err != nil {
		t.Logf("no screenshot %s: %v", name, err)
	}
}

// clickText clicks the first element of a selector that contains a text.
func clickText(selector, words string) chromedp.Action[chromedp.Void] {
	return func(ctx context.Context, tab *chromedp.Target) (chromedp.Void, error) {
		at, err := chromedp.Evaluate[[]float64](`(() => { const e = [...document.querySelectorAll(`+strconv.Quote(selector)+
			`)].find((e) => e.innerText.includes(`+strconv.Quote(words)+`)); e.scrollIntoView({ block: 'nearest' });
			const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2] })()`)(ctx, tab)
		if err != nil {
			return chromedp.Void{}, err
		}
		return chromedp.MouseClickXY(at[0], at[1])(ctx, tab)
	}
}

// TestPageWithoutWebRTC visits the demo with a browser that has none: picture and voice come over HTTP.
func TestPageWithoutWebRTC(t *testing.T) {
	t.Parallel()
	_, url := start(t, nil, "demo", "--listen", "127.0.0.1:0")
	b, err := browser.Open(context.WithoutCancel(t.Context()), browser.Options{Script: `delete window.RTCPeerConnection;
		window.played = 0;
		const start = AudioBufferSourceNode.prototype.start;
		AudioBufferSourceNode.prototype.start = function (...when) { window.played++; return start.apply(this, when) };`})
	require.NoError(t, err)
	defer b.Close()
	require.NoError(t, b.Navigate(url))
	require.NoError(t, b.Until(later, "document.getElementById('picture-http').width === 640"), "console: %q", b.Problems())
	says(t, b, soon, "banner", "This browser has no WebRTC.")
	require.NoError(t, b.Until(later, "window.played > 50"), "pieces of the voice")
	require.NoError(t, b.Click("#open-numbers"))
	require.NoError(t, b.Until(soon, `[...document.querySelectorAll('.tiles div')].some((d) => /heard after seen\s*-?\d+ ms/i.test(d.innerText))`))
	shoot(t, b, "page-without-webrtc")
	require.Empty(t, problems(b))
}
