//go:build integration && !nodemo

package main

import (
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/internal/e2e/browser"
	"touchline/internal/e2e/whipclient"
	"touchline/media"
	"touchline/media/source"
	"touchline/media/source/rtsp/rtsptest"
)

// home returns an address of this machine, like that of an IP camera, and the
// kind of source to allow for it.
func home(t *testing.T) (ip string, allow []string) {
	t.Helper()
	found, err := mediaIP(t.Context(), "0.0.0.0:0")
	require.NoError(t, err)
	if a, err := netip.ParseAddr(found); err == nil && source.AllowCameras().Check(a) == nil {
		return found, nil
	}
	return "127.0.0.1", []string{"--allow", "private,loopback"}
}

// noted waits until the picker's note contains a text.
func noted(t *testing.T, b *browser.Browser, words string) {
	t.Helper()
	require.NoError(t, b.Until(later, `(document.querySelector('.source > .note')?.textContent ?? '').includes(`+strconv.Quote(words)+`)`),
		"it says %q", text(t, b, ".source > .note"))
}

// TestSourcePicker adds an IP camera on the page, switches it off and on, selects
// a generated world, then a WHIP sender.
func TestSourcePicker(t *testing.T) {
	clip, sent := filepath.Join(t.TempDir(), "clip.mp4"), filepath.Join(t.TempDir(), "clip.ivf")
	match, err := makeClip()
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), "ffmpeg", slices.Concat(
		[]string{"-v", "error", "-r", strconv.Itoa(clipFPS), "-i", match}, encoders["h264"], []string{clip}, encoders["vp8"], []string{sent},
	)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	units := ivf(t, sent)
	ip, allow := home(t)
	camera := rtsptest.New(t, ip, clip)
	t.Logf("camera at %s, allowed %v", camera.URL(""), allow)
	p, url := start(t, nil, append([]string{"demo", "--listen", "127.0.0.1:0"}, allow...)...)
	b := open(t, url, browser.Options{})
	plays(t, b, later)

	require.NoError(t, b.Click("#open-source"))
	require.NoError(t, b.Until(soon, `document.getElementById('whip-key')?.value.length >= 8`))
	whip, err := browser.Eval[string](b, soon, "document.getElementById('whip-url').value")
	require.NoError(t, err)
	require.Equal(t, strings.TrimSuffix(url, "/")+"/whip/demo", whip)
	require.NoError(t, b.Until(soon, `document.querySelector('.what').textContent.includes('the generated match')`))

	require.NoError(t, b.Type("#source-url", camera.URL("admin:hunter2")+"\r"))
	noted(t, b, "It is being watched.")
	plays(t, b, later)
	before := counts(t, b, 0)
	counts(t, b, before)
	require.NoError(t, b.Until(later, `document.querySelector('.cams li')?.innerText.includes('H264 `+strconv.Itoa(clipWidth)+` × `+strconv.Itoa(clipHeight)+`')`),
		"it says %q", text(t, b, ".cams"))
	commented(t, b, later)
	page, err := browser.Eval[string](b, soon, "document.documentElement.outerHTML")
	require.NoError(t, err)
	require.NotContains(t, page, "hunter2", "a password is shown")
	shoot(t, b, "picker-live")

	gone := time.Now()
	camera.Off()
	require.NoError(t, b.Until(later, `document.getElementById('chip-words').textContent === 'waiting for the camera'`))
	took := time.Since(gone)
	t.Logf("waiting for the camera is on the page %.1f s after it was switched off", took.Seconds())
	require.NoError(t, b.Until(soon, `document.querySelector('.cams li')?.innerText.includes('Waiting for the camera: ')`), "it says %q", text(t, b, ".cams"))
	require.NoError(t, b.Until(soon, `document.getElementById('banner-words').textContent.startsWith('Waiting for the camera: ')`))
	shoot(t, b, "picker-waiting")
	phone := open(t, url, browser.Options{Width: 390, Height: 844, Phone: true, Dark: true})
	require.NoError(t, phone.Until(soon, `document.getElementById('chip-words').textContent === 'waiting for the camera'`))
	require.NoError(t, phone.Click("#open-source"))
	require.NoError(t, phone.Until(soon, `document.querySelector('.cams li')?.innerText.includes('Waiting for the camera: ')`))
	shoot(t, phone, "picker-phone-waiting")
	back := time.Now()
	camera.On()
	require.NoError(t, b.Until(later, `document.getElementById('chip-words').textContent !== 'waiting for the camera'`))
	t.Logf("pictures again %.1f s after it was switched on (ffmpeg's start included)", time.Since(back).Seconds())
	plays(t, b, later)
	before = counts(t, b, 0)
	counts(t, b, before)

	require.NoError(t, b.Click("#pick-yard"))
	noted(t, b, "It is being watched.")
	require.NoError(t, b.Until(soon, `document.querySelector('.what').textContent.includes('the generated yard')`))
	require.NoError(t, b.Do(soon, clickText(".cams button", "Remove")))
	noted(t, b, "has left the room.")
	require.NoError(t, b.Until(soon, `document.querySelector('.cams').hidden`))
	plays(t, b, later)

	// A program sends to the displayed address with the displayed key.
	key, err := browser.Eval[string](b, soon, "document.getElementById('whip-key').value")
	require.NoError(t, err)
	send(t, whipclient.Options{URL: whip, Token: key, Codec: media.VP8, Units: units, FPS: clipFPS})
	require.NoError(t, b.Until(later, `document.querySelector('.cams li')?.innerText.includes('VP8')`), "it says %q", text(t, b, ".cams"))
	require.NoError(t, b.Do(soon, clickText(".cams button", "Watch")))
	noted(t, b, "It is being watched.")
	require.NoError(t, b.Until(later, fmt.Sprintf("document.getElementById('picture').videoWidth === %d", clipWidth)))
	before = counts(t, b, 0)
	counts(t, b, before)
	said, err := browser.Eval[int](b, soon, "document.querySelectorAll('#list > li').length")
	require.NoError(t, err)
	require.NoError(t, b.Until(later, fmt.Sprintf("document.querySelectorAll('#list > li').length > %d", said)))
	shoot(t, b, "picker-sender")
	assert.Empty(t, problems(b), "errors on the console")
	assert.Empty(t, problems(phone), "errors on the console")

	// A forbidden address is refused with a message. The browser logs the response on its console.
	require.NoError(t, b.Type("#source-url", "rtsp://admin:hunter2@169.254.169.254/x\r"))
	noted(t, b, "169.254.169.254 is link-local")
	shoot(t, b, "picker-refused")
	p.interrupt(t)
	assert.Zero(t, p.exitCode())
}
