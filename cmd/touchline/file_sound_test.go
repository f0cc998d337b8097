//go:build integration && !nodemo

package main

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/agent/room/conn"
	"touchline/internal/e2e/browser"
	"touchline/internal/e2e/stage"
	"touchline/worlds"
)

// meter measures the tone of an audio element before its volume.
const meter = `(() => {
	window.spy.tone = (id, hz) => {
		const stream = document.getElementById(id)?.srcObject;
		if (!stream?.getAudioTracks().length) return 0;
		if (spy.metered !== stream) {
			spy.metered = stream;
			spy.audio ??= new AudioContext();
			spy.analyser = spy.audio.createAnalyser();
			spy.analyser.fftSize = 4096;
			spy.audio.createMediaStreamSource(stream).connect(spy.analyser);
		}
		const bins = new Float32Array(spy.analyser.frequencyBinCount);
		spy.analyser.getFloatFrequencyData(bins);
		const at = Math.round(hz * spy.analyser.fftSize / spy.audio.sampleRate);
		// The tone is 20 dB above the levels an octave away.
		return Math.max(...bins.slice(at - 1, at + 2)) > -40 && Math.max(...bins.slice(2 * at - 1, 2 * at + 2)) < bins[at] - 20 ? bins[at] : 0;
	};
	return true;
})()`

// The sound of a file played on the page reaches the room, but is not audible on that page. The page's slider
// changes the volume, also by keyboard, and keeps its position over a reload.
func TestFileOfThePageIsHeard(t *testing.T) {
	clip := numberedClip(t)
	h := newHouse(t)
	_, url := h.bot(t, "file")
	b := open(t, url, browser.Options{})
	require.NoError(t, b.Until(later, `document.getElementById('chip-words').textContent !== ''`))
	_, err := browser.Eval[bool](b, soon, meter)
	require.NoError(t, err)
	hidden, err := browser.Eval[bool](b, soon, `document.getElementById('camera-sound').hidden`)
	require.NoError(t, err)
	require.True(t, hidden, "there is no sound to turn down yet")
	require.NoError(t, b.Click("#open-source"))
	require.NoError(t, b.Do(soon, chromedp.SetUploadFiles("input[type=file]", []string{clip})))
	noted(t, b, "It is being watched.")

	require.NoError(t, b.Until(later, `spy.tone('camera-audio', 500) !== 0`), "the file's tone is not heard")
	level, err := browser.Eval[float64](b, soon, `spy.tone('camera-audio', 500)`)
	require.NoError(t, err)
	t.Logf("500 Hz at %.0f dBFS", level)
	inStep(t, h, "file")
	// The preview is muted.
	own, err := browser.Eval[int](b, soon, `[...document.querySelectorAll('audio, video')].filter((e) =>
		!['sound', 'camera-audio'].includes(e.id) && (e.srcObject?.getAudioTracks().length ?? 0) > 0).length`)
	require.NoError(t, err)
	require.Zero(t, own)
	// The drawer would capture the keys.
	require.NoError(t, b.Do(soon, chromedp.KeyEvent(kb.Escape)))

	const volume = `document.getElementById('camera-audio').volume`
	is := func(want float64) {
		t.Helper()
		require.NoError(t, b.Until(soon, `Math.abs(`+volume+` - `+ftoa(want)+`) < 0.001`))
	}
	is(1)
	muted, err := browser.Eval[bool](b, soon, `document.getElementById('camera-audio').muted`)
	require.NoError(t, err)
	require.False(t, muted)
	require.NoError(t, b.Until(soon, `!document.getElementById('camera-sound').hidden`))
	require.NoError(t, b.Do(soon, chromedp.Focus("#camera-volume"), chromedp.KeyEvent(kb.Home)))
	is(0)
	for range 3 {
		require.NoError(t, b.Do(soon, chromedp.KeyEvent(kb.ArrowRight)))
	}
	is(0.03)
	require.NoError(t, b.Do(soon, chromedp.KeyEvent(kb.PageUp)))
	is(0.13)
	voice, err := browser.Eval[float64](b, soon, `document.getElementById('sound').volume`)
	require.NoError(t, err)
	assert.InDelta(t, 1, voice, 0.001, "the voice stays as it was")

	require.NoError(t, b.Reload())
	is(0.13)
	// The master slider moves both.
	require.NoError(t, b.Do(soon, chromedp.Focus("#volume"), chromedp.KeyEvent(kb.Home), chromedp.KeyEvent(kb.PageUp)))
	is(0.013)
	problems := slices.DeleteFunc(problems(b), func(p string) bool { return strings.Contains(p, "/api/sources") }) // this bot has none
	assert.Empty(t, problems)
}

// numberedClip makes a match of 8 s with frame counters, a beep each second and a constant tone of 500 Hz.
func numberedClip(t *testing.T) string {
	t.Helper()
	world, err := worlds.New(worlds.Options{Seed: 2, FPS: matchFPS, Counter: true})
	require.NoError(t, err)
	clip := filepath.Join(t.TempDir(), "clip.webm")
	require.NoError(t, encode(world, 8*matchFPS,
		"-f", "lavfi", "-i", "aevalsrc='0.1*sin(2*PI*500*t)+if(lt(mod(t,1),0.1),0.4*sin(2*PI*1200*t),0)':s=48000:d=8",
		"-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-b:v", "2M", "-c:a", "libopus", clip))
	return clip
}

const matchFPS = 15

// inStep compares the beeps with their pictures at a viewer.
func inStep(t *testing.T, h *house, name string) {
	t.Helper()
	token, err := conn.ViewerToken(h.keys, conn.Person{Room: name, Identity: "listener"})
	require.NoError(t, err)
	v, err := stage.NewViewer(stage.ViewerOptions{URL: h.server.URL(), Token: token, Log: h.log})
	require.NoError(t, err)
	keepRunning(t, v.Run)
	var offsets []time.Duration
	require.Eventually(t, func() bool {
		offsets = stage.BeepOffsets(v.Seen(), matchFPS)
		slices.SortFunc(offsets, func(a, b time.Duration) int { return cmp.Compare(a.Abs(), b.Abs()) })
		// 40 ms on an idle machine; on a busy one the browser shows and encodes some pictures late.
		return len(offsets) >= 6 && offsets[1].Abs() < 250*time.Millisecond
	}, later, 100*time.Millisecond, "beeps and their pictures")
	t.Log("sound later than its picture at a viewer:", offsets)
}
