package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"touchline/agent/console"
	"touchline/agent/room/conn"
	"touchline/internal/e2e/browser"
	"touchline/internal/e2e/mediamtx"
	"touchline/internal/e2e/stage"
	"touchline/internal/e2e/whipclient"
	"touchline/internal/quantile"
	"touchline/media"
	"touchline/worlds"
)

// The replayed senders: 720p30 at 2 Mbit/s with a key frame each second.
const (
	cameraWidth, cameraHeight, cameraFPS = 1280, 720, 30
	cameraBitRate                        = 2_200_000 // requested; the encoder stays below
)

// manyCameras is the number of concurrent cameras.
const manyCameras = 8

// measureCameras sends 720p30 by WHIP and measures the delay to a viewer: one in Go, one in a browser, and eight
// cameras at once, here and through MediaMTX.
func measureCameras(ctx context.Context, roles roleRunner, length time.Duration) ([]row, error) {
	clip, err := stage.MakeClip(ctx, media.H264, cameraWidth, cameraHeight, cameraFPS, cameraBitRate, 4)
	if err != nil {
		return nil, err
	}
	units := clip.Units()
	size := len(slices.Concat(units...))
	rows := []row{note("each camera", fmt.Sprintf("%dx%d, %d pictures a second, H264, %.2f Mbit/s",
		cameraWidth, cameraHeight, cameraFPS, float64(size)*8/stage.ClipLength.Seconds()/1e6))}
	for _, measure := range []func(context.Context, roleRunner, [][]byte, time.Duration) ([]row, error){
		oneCamera, browserCamera, eightCameras,
	} {
		more, err := measure(ctx, roles, units, length)
		rows = append(rows, more...)
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// sending is a running sender with the send time of each access unit.
type sending struct {
	stop func()

	mu   sync.Mutex
	sent map[uint32]time.Time
}

func (s *sending) times() map[uint32]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.sent)
}

// startSending connects a sender and starts it.
func startSending(ctx context.Context, o whipclient.Options) (*sending, error) {
	s := &sending{sent: map[uint32]time.Time{}}
	o.OnSend = func(n uint32, at time.Time) {
		s.mu.Lock()
		s.sent[n] = at
		s.mu.Unlock()
	}
	x, err := whipclient.Dial(ctx, o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { _ = x.Run(ctx) }) // ends with ctx
	s.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		x.Vanish()
	})
	return s, nil
}

// camera sends into a room of the server, as a participant of its own.
func (l location) camera(ctx context.Context, roomName, identity string, units [][]byte) (*sending, error) {
	token, err := conn.CameraToken(l.keys(), conn.Person{Room: roomName, Identity: identity})
	if err != nil {
		return nil, err
	}
	return startSending(ctx, whipclient.Options{
		URL: l.WHIP + roomName, Token: token, Codec: media.H264, Units: units, FPS: cameraFPS, Number: true,
	})
}

// viewer watches a camera of the server.
func (l location) viewer(ctx context.Context, roomName, identity string) (*counted, func(), error) {
	token, err := conn.ViewerToken(l.keys(), conn.Person{Room: roomName, Identity: "viewer"})
	if err != nil {
		return nil, nil, err
	}
	return joinCounted(ctx, l.URL, token, identity)
}

// settleCameras is the warm-up before a measurement, at most as long as the measurement.
const settleCameras = 5 * time.Second

// oneCamera measures the delay from a sender's write to a viewer in Go.
func oneCamera(ctx context.Context, roles roleRunner, units [][]byte, length time.Duration) ([]row, error) {
	process, server, err := startRole(ctx, roles, roleWHIP, location{})
	if err != nil {
		return nil, err
	}
	defer process.stop()
	cam, err := server.camera(ctx, "one", "camera", units)
	if err != nil {
		return nil, err
	}
	defer cam.stop()
	v, leave, err := server.viewer(ctx, "one", "camera")
	if err != nil {
		return nil, err
	}
	defer leave()
	if _, err := stage.Until(ctx, 20*time.Second, "the viewer's picture", func() bool { return v.count() > 0 }); err != nil {
		return nil, err
	}
	if err := stage.Wait(ctx, min(settleCameras, length)); err != nil {
		return nil, err
	}
	from := time.Now()
	if err := stage.Wait(ctx, length); err != nil {
		return nil, err
	}
	delays, lost, sent := compare([]pair{{cam.times(), v.numbers()}}, from)
	return []row{
		note("sender to a Go viewer p50", fmt.Sprintf("%.1f ms", ms(quantile.Of(delays, 0.5)))),
		atMost("sender to a Go viewer p95", ms(quantile.Of(delays, 0.95)), 40, "ms"),
		atMost(fmt.Sprintf("access units lost of %d", sent), float64(lost), 0, ""),
	}, nil
}

// pair holds the send times of one camera and the arrival times at its viewer.
type pair struct{ sent, came map[uint32]time.Time }

// compare matches the access units sent after a moment, without those of the last second, which may be in flight.
func compare(pairs []pair, from time.Time) (delays []time.Duration, lost, sent int) {
	const underWay = time.Second
	for _, p := range pairs {
		var newest time.Time
		for _, at := range p.sent {
			if at.After(newest) {
				newest = at
			}
		}
		for n, at := range p.sent {
			if at.Before(from) || newest.Sub(at) < underWay {
				continue
			}
			sent++
			if came, ok := p.came[n]; ok {
				delays = append(delays, came.Sub(at))
			} else {
				lost++
			}
		}
	}
	return delays, lost, sent
}

// eightCameras sends eight cameras at once, each with a viewer, through this server and through MediaMTX.
func eightCameras(ctx context.Context, roles roleRunner, units [][]byte, length time.Duration) ([]row, error) {
	process, server, err := startRole(ctx, roles, roleWHIP, location{})
	if err != nil {
		return nil, err
	}
	ours, err := loadCameras(ctx, process.cmd.Process.Pid, length,
		func(name string) (*sending, error) { return server.camera(ctx, name, "camera", units) },
		func(name string) (*counted, func(), error) { return server.viewer(ctx, name, "camera") })
	process.stop()
	if err != nil {
		return nil, err
	}
	program, err := mediamtx.Find()
	if err != nil {
		return nil, err
	}
	ports, err := mediamtx.FreePorts()
	if err != nil {
		return nil, err
	}
	mtx, err := mediamtx.Start(ctx, program, ports)
	if err != nil {
		return nil, err
	}
	defer mtx.Close()
	base := fmt.Sprintf("http://127.0.0.1:%d/open-", mtx.WebRTC)
	theirs, err := loadCameras(ctx, mtx.PID(), length,
		func(name string) (*sending, error) {
			return startSending(ctx, whipclient.Options{
				URL: base + name + "/whip", Codec: media.H264, Units: units, FPS: cameraFPS, Number: true,
			})
		},
		func(name string) (*counted, func(), error) { return watchWHEP(ctx, base+name+"/whep") })
	if err != nil {
		return nil, err
	}
	return []row{
		atMost(fmt.Sprintf("%d cameras at once: access units lost of %d", manyCameras, ours.sent), float64(ours.lost), 0, ""),
		note("sender to viewer p50, p95", fmt.Sprintf("%.1f ms, %.1f ms", ms(quantile.Of(ours.delays, 0.5)), ms(quantile.Of(ours.delays, 0.95)))),
		note("CPU of the server for each camera and viewer", fmt.Sprintf("%.1f %% of a core", 100*ours.cpu/manyCameras)),
		note("memory of the server", fmt.Sprintf("%.0f MB", float64(ours.RSS)/1e6)),
		note("MediaMTX with the same: lost", fmt.Sprintf("%d of %d", theirs.lost, theirs.sent)),
		note("sender to viewer p50, p95",
			fmt.Sprintf("%.1f ms, %.1f ms", ms(quantile.Of(theirs.delays, 0.5)), ms(quantile.Of(theirs.delays, 0.95)))),
		note("CPU of MediaMTX for each camera and viewer", fmt.Sprintf("%.1f %% of a core", 100*theirs.cpu/manyCameras)),
		note("memory of MediaMTX", fmt.Sprintf("%.0f MB", float64(theirs.RSS)/1e6)),
	}, nil
}

// camerasResult is the outcome of loadCameras.
type camerasResult struct {
	costResult

	delays     []time.Duration
	lost, sent int
}

// loadCameras sends and watches cameras and reads the usage of the server's process meanwhile.
func loadCameras(ctx context.Context, pid int, length time.Duration, send func(name string) (*sending, error),
	watch func(name string) (*counted, func(), error),
) (res camerasResult, err error) {
	var cams []*sending
	var viewers []*counted
	for i := range manyCameras {
		name := "many-" + strconv.Itoa(i)
		cam, err := send(name)
		if err != nil {
			return res, err
		}
		defer cam.stop()
		if err := stage.Wait(ctx, 200*time.Millisecond); err != nil { // MediaMTX has nothing to watch before the first packets
			return res, err
		}
		v, leave, err := watch(name)
		if err != nil {
			return res, err
		}
		defer leave()
		cams, viewers = append(cams, cam), append(viewers, v)
	}
	for _, v := range viewers {
		if _, err := stage.Until(ctx, 30*time.Second, "a viewer's picture", func() bool { return v.count() > 0 }); err != nil {
			return res, err
		}
	}
	if err := stage.Wait(ctx, min(settleCameras, length)); err != nil {
		return res, err
	}
	from := time.Now()
	if res.cpu, res.usage, err = usageDuring(ctx, pid, length); err != nil {
		return res, err
	}
	pairs := make([]pair, len(cams))
	for i := range cams {
		pairs[i] = pair{cams[i].times(), viewers[i].numbers()}
	}
	res.delays, res.lost, res.sent = compare(pairs, from)
	return res, nil
}

// browserPage plays a participant's video and records the frame counter of each presented picture.
const browserPage = `<!doctype html><title>viewer</title><link rel="icon" href="data:,"><video id="v" autoplay muted playsinline></video>
<script type="module">
  import { Room, RoomEvent, setLogLevel } from '/livekit-client.js';
  const q = new URLSearchParams(location.search);
  setLogLevel('error');
  const video = document.getElementById('v');
` + counterScript + `
  window.seen = [];
  const look = () => {
    const at = performance.timeOrigin + performance.now(); // now: the picture is up for presentation
    window.seen.push([at, counter(video, video.videoWidth, video.videoHeight)]);
    video.requestVideoFrameCallback(look);
  };
  video.requestVideoFrameCallback(look);
  const room = new Room();
  room.on(RoomEvent.TrackSubscribed, (t) => { if (t.kind === 'video') t.attach(video); });
  room.connect(q.get('url'), q.get('token')).catch((err) => { window.failed = String(err); });
</script>`

// browserCamera measures the delay from a sender's write to the picture in a browser; both use the clock of this machine.
func browserCamera(ctx context.Context, roles roleRunner, units [][]byte, length time.Duration) ([]row, error) {
	client, err := console.LiveKitClient()
	if err != nil {
		return nil, err
	}
	process, server, err := startRole(ctx, roles, roleWHIP, location{})
	if err != nil {
		return nil, err
	}
	defer process.stop()
	cam, err := server.camera(ctx, "page", "camera", units)
	if err != nil {
		return nil, err
	}
	defer cam.stop()
	seen, err := watchInBrowser(ctx, server, client, length)
	if err != nil {
		return nil, err
	}
	delays, read := pageDelays(cam.times(), seen, len(units))
	rows := []row{
		note("pictures presented by a browser, counters read", fmt.Sprintf("%d, %d", len(seen), read)),
		note("frame counter to the browser p50", fmt.Sprintf("%.0f ms", ms(quantile.Of(delays, 0.5)))),
		atMost("frame counter to the browser p95", ms(quantile.Of(delays, 0.95)), 150, "ms"),
	}
	if read < len(seen)/2 || read == 0 {
		return rows, fmt.Errorf("frame counter read in %d of %d pictures only", read, len(seen))
	}
	return rows, nil
}

// watchInBrowser watches the camera of room "page" in a browser, and returns time and frame counter of each picture
// after the warm-up.
func watchInBrowser(ctx context.Context, server location, client []byte, length time.Duration) ([][2]float64, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("/livekit-client.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript")
		_, _ = w.Write(client) // a browser that is gone
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(browserPage)) }) // a browser that is gone
	pages := httptest.NewServer(mux)
	defer pages.Close()
	token, err := conn.ViewerToken(server.keys(), conn.Person{Room: "page", Identity: "viewer"})
	if err != nil {
		return nil, err
	}
	b, err := browser.Open(ctx, browser.Options{})
	if err != nil {
		return nil, err
	}
	defer b.Close()
	if err := b.Navigate(pages.URL + "/?" + url.Values{"url": {server.URL}, "token": {token}}.Encode()); err != nil {
		return nil, err
	}
	if err := b.Until(30*time.Second, "window.failed || window.seen?.length > 10"); err != nil {
		return nil, err
	}
	if failed, err := browser.Eval[string](b, 5*time.Second, "window.failed ?? ''"); err != nil || failed != "" {
		return nil, errors.Join(err, fmt.Errorf("viewer page: %s", failed))
	}
	if err := stage.Wait(ctx, min(settleCameras, length)); err != nil {
		return nil, err
	}
	if _, err := browser.Eval[int](b, 5*time.Second, "(window.seen = []).length"); err != nil {
		return nil, err
	}
	if err := stage.Wait(ctx, length); err != nil {
		return nil, err
	}
	return browser.Eval[[][2]float64](b, 20*time.Second, "window.seen")
}

// pageDelays matches each counter with the newest access unit sent before that shows it: the clip repeats.
func pageDelays(sent map[uint32]time.Time, seen [][2]float64, clip int) (delays []time.Duration, read int) {
	byCounter := map[uint32][]time.Time{}
	for n, at := range sent {
		c := n % uint32(clip) //nolint:gosec // some hundreds
		byCounter[c] = append(byCounter[c], at)
	}
	for _, s := range seen {
		if s[1] < 0 || s[1] > worlds.CounterMax {
			continue
		}
		at := time.UnixMicro(int64(s[0] * 1000))
		times := slices.SortedFunc(slices.Values(byCounter[uint32(s[1])]), time.Time.Compare)
		for _, t := range slices.Backward(times) {
			if t.Before(at) {
				delays = append(delays, at.Sub(t))
				read++
				break
			}
		}
	}
	return delays, read
}
