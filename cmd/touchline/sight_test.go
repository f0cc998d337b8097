//go:build integration && !nodemo

package main

import (
	"encoding/json"
	"image/jpeg"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/agent/alert"
	"touchline/agent/look"
	"touchline/internal/e2e/browser"
	"touchline/internal/e2e/cutout"
)

// startSight runs the program with sight on a clip in which a photo of a person comes, stays and goes, again and again.
func startSight(t *testing.T, env ...string) (p *program, url string) {
	t.Helper()
	const networks = "bin/sight"
	if _, err := os.Stat(filepath.Join(networks, "sight.json")); err != nil {
		t.Skip("no networks of sight here: make sight fetches them")
	}
	clip := filepath.Join(t.TempDir(), "clip.mp4")
	walk := cutout.Walk{
		Photo: moduleRoot + "/inference/sight/testdata/astronaut.png", Enter: 6 * time.Second, Walk: 2500 * time.Millisecond, Stay: 4 * time.Second,
	}
	require.NoError(t, cutout.Write(t.Context(), clip, walk.End()+5*time.Second, walk))
	env = append(env, "TOUCHLINE_INFERENCE_ENGINE=auto", "TOUCHLINE_INFERENCE_SIGHT_BUNDLE="+networks)
	return start(t, env, "run", "--listen", "127.0.0.1:0", "--source", clip)
}

// TestSight: a photo of a person walks through a street, in a real room: sight tells it, with the facts and the time of the event.
func TestSight(t *testing.T) {
	store := t.TempDir()
	p, url := startSight(t, "TOUCHLINE_AGENT_HISTORY_STORE=file", "TOUCHLINE_AGENT_HISTORY_PATH="+store,
		"TOUCHLINE_AGENT_ALERT_RULES=a person enters from the left")
	var records []look.Record
	said := func(words ...string) bool {
		return slices.ContainsFunc(records, func(r look.Record) bool {
			text := strings.ToLower(r.Text)
			return r.Engine == "sight" && r.IsComment() && len(r.Facts) > 0 && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
		})
	}
	if !assert.Eventually(t, func() bool {
		records = recordsIn(t, store)
		return said("person", "from the left") && said("on the right")
	}, later, 500*time.Millisecond) {
		for _, r := range records {
			t.Log(r.AnchorPTS, r.Outcome, r.Text, r.Facts)
		}
	}
	requireAlertByFacts(t, url)
	p.interrupt(t)
	require.Zero(t, p.exitCode())
	for _, r := range records {
		if r.IsComment() {
			t.Logf("%.1f s, %+.2f s off: %s %v", r.AnchorPTS, r.AlignmentError, r.Text, r.Facts)
		}
	}
}

// requireAlertByFacts waits for an alert of a person who enters from the left. Its picture is the one in which the person came, with its box.
func requireAlertByFacts(t *testing.T, url string) {
	t.Helper()
	var a alert.Alert
	require.Eventually(t, func() bool {
		var all struct{ Alerts []alert.Alert }
		require.NoError(t, json.Unmarshal([]byte(request(t, "GET", url+"api/alerts", "")), &all))
		if len(all.Alerts) > 0 {
			a = all.Alerts[0]
		}
		return len(all.Alerts) > 0
	}, later, 500*time.Millisecond)
	t.Logf("%+v, box %+v", a, a.Box)
	require.Equal(t, 1, a.Looks)
	require.Contains(t, a.Reason, "from the left")
	require.NotNil(t, a.Box)
	require.Less(t, a.Box.X0, float32(0.1))
	require.Greater(t, a.Box.Y1, a.Box.Y0)
	require.Greater(t, a.LatencySec, 1.0, "an arrival is certain later than its picture")
	img, err := jpeg.Decode(strings.NewReader(request(t, "GET", url+"api/alerts/"+a.ID+"/frame", "")))
	require.NoError(t, err)
	require.Greater(t, img.Bounds().Dx(), img.Bounds().Dy())
}

// TestSightPage: the page draws the boxes over the picture on request, and shows a comment's facts.
func TestSightPage(t *testing.T) {
	_, url := startSight(t)
	b := open(t, url, browser.Options{})
	require.NoError(t, b.Until(later, "!document.getElementById('boxes').hidden"))
	_, err := browser.Eval[bool](b, soon, "document.getElementById('boxes').click(), true")
	require.NoError(t, err)
	require.NoError(t, b.Until(later, `(() => { const c = document.getElementById('sight');
		return c.width > 0 && c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((v) => v > 0) })()`), "no box was drawn")
	require.NoError(t, b.Until(later, "document.getElementById('sight-facts').textContent.includes('enter')"), "no fact is shown")
	shoot(t, b, "sight")
	require.NoError(t, b.Until(later, "document.querySelector('#list .facts')"), "no comment has facts")
}

// marked is a script that defines marked(), which reports whether the magenta sign is in a picture: a video, or the JPEG of an address. Of a
// stream it takes the first picture.
const marked = `window.marked = async (from) => {
	let picture = from;
	if (typeof from === 'string') {
		const stop = new AbortController(), answer = await fetch(from, { signal: stop.signal });
		if (!answer.ok) throw new Error(from + ': ' + answer.status);
		let bytes = [];
		for (const r = answer.body.getReader(); ;) {
			const { value, done } = await r.read();
			if (done) break;
			bytes.push(...value);
			const end = bytes.findIndex((v, i) => v === 0xff && bytes[i + 1] === 0xd9);
			if (end > 0) { bytes = bytes.slice(0, end + 2); break; }
		}
		stop.abort();
		const start = bytes.findIndex((v, i) => v === 0xff && bytes[i + 1] === 0xd8);
		picture = await createImageBitmap(new Blob([new Uint8Array(bytes.slice(start))], { type: 'image/jpeg' }));
	}
	const canvas = Object.assign(document.createElement('canvas'), { width: 320, height: 180 }), c = canvas.getContext('2d');
	c.drawImage(picture, 0, 0, 320, 180);
	const { data } = c.getImageData(0, 0, 320, 180);
	let n = 0;
	for (let i = 0; i < data.length; i += 4) n += data[i] > 150 && data[i + 1] < 90 && data[i + 2] > 150;
	return n > 8;
}, true`

// TestSightRegions: a mask and a zone are drawn on the page while a photo of a person comes and goes. The person enters the zone, which raises
// an alert with a box, and what the mask covers is in no picture from then on.
func TestSightRegions(t *testing.T) {
	_, url := startSight(t, "TOUCHLINE_MEDIA_MASK_DELAYED=true")
	b := open(t, url, browser.Options{})
	plays(t, b, later)
	_, err := browser.Eval[bool](b, soon, marked)
	require.NoError(t, err)
	for _, from := range []string{"'/api/frame'", "'/api/mjpeg'", "document.getElementById('picture')"} {
		require.NoError(t, b.Until(later, "marked("+from+")"), "no sign in %s", from)
	}
	require.NoError(t, b.Click("#open-regions"))
	require.NoError(t, b.Until(soon, `!document.getElementById('regions').hidden`))
	x0, y0, x1, y1 := cutout.Plate()
	const edge = 0.03
	drawRegion(t, b, "mask", "sign", [][2]float64{{x0 - edge, y0 - edge}, {x1 + edge, y0 - edge}, {x1 + edge, y1 + edge}, {x0, y1}}, [2]float64{x0 - edge, y1 + edge})
	drawRegion(t, b, "zone", "yard", [][2]float64{{0.33, 0.7}, {0.67, 0.7}, {0.67, 0.995}, {0.4, 0.9}}, [2]float64{0.33, 0.995})
	masked := func(from string) {
		t.Helper()
		require.NoError(t, b.Until(later, "marked("+from+").then((m) => !m)"), "the sign is in %s", from)
	}
	masked("'/api/frame'")
	masked("document.getElementById('picture')")
	since, err := browser.Eval[int64](b, soon, "Date.now()")
	require.NoError(t, err)
	shoot(t, b, "zones")

	require.NoError(t, b.Click("#open-alerts"))
	require.NoError(t, b.Type("#rule-when", `a person enters the zone "yard"`+"\r"))
	require.NoError(t, b.Until(soon, `document.getElementById('rule-r1') !== null`), "it says %q", text(t, b, "#panel form small[role]"))
	require.NoError(t, b.Until(3*later, `!document.getElementById('alarm').hidden && document.getElementById('alarm-frame').naturalWidth > 0`),
		"the rule: %q", text(t, b, ".cams"))
	require.Contains(t, text(t, b, "#alarm-words"), `"yard"`)
	shoot(t, b, "sight-alert")
	t.Log(text(t, b, "#alarm-words"))
	require.NoError(t, b.Until(soon, `fetch('/api/alerts').then((r) => r.json()).then(async ({ alerts: [a] }) =>
		a.box.x0 < 0.5 && a.box.x1 > 0.33 && a.box.x1 - a.box.x0 < 0.6 && a.box.y1 > 0.7 && !(await marked('/api/alerts/' + a.id + '/frame')))`))

	masked("'/api/mjpeg'")
	require.NoError(t, b.Until(3*later, `fetch('/api/history').then((r) => r.json()).then(async (list) => {
		const ids = list.filter((r) => Date.parse(r.oldest_frame_at) > `+strconv.FormatInt(since, 10)+` && /person/i.test(r.text)).flatMap((r) => r.frame_ids);
		for (const id of ids) if (await marked('/api/frames/' + id)) throw new Error('the sign is in the frame ' + id);
		return ids.length > 0;
	})`), "no comment on the person with pictures")
	require.Empty(t, b.Problems())
}
