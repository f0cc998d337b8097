package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/configs"
	"touchline/inference"
	"touchline/inference/voice"
	"touchline/internal/e2e/browser"
	"touchline/internal/e2e/stage"
	"touchline/internal/quantile"
	"touchline/media"
)

// onsetModule is the AudioWorklet of probeScript: it detects onsets of speech as a stage.Viewer does, and tells the
// moment of each on the context's clock.
const onsetModule = `registerProcessor('onset', class extends AudioWorkletProcessor {
  #sum = 0; #n = 0; #start = 0; #loud = false; #last = -1;
  process([[pcm]]) {
    for (let i = 0; pcm && i < pcm.length; i++) {
      if (this.#n === 0) this.#start = currentFrame + i;
      this.#sum += pcm[i] ** 2;
      if (++this.#n < sampleRate / 100) continue;
      const at = this.#start / sampleRate, audible = Math.sqrt(this.#sum / this.#n) >= 0.01;
      this.#sum = this.#n = 0;
      if (this.#loud && at - this.#last > 0.3) this.#loud = false;
      if (!audible) continue;
      if (!this.#loud) this.port.postMessage({ at });
      this.#loud = true;
      this.#last = at + 0.01;
    }
    return true;
  }
});`

// counterScript reads the frame counter, the strip of squares in the lower right corner (see package worlds), in a
// video, an image or a canvas of a width and height: -1 without one.
const counterScript = `
const canvas = new OffscreenCanvas(1, 1);
const pen = canvas.getContext('2d', { willReadFrequently: true });
const crc = (n) => { let c = 0xff; for (const b of [n >> 16 & 255, n >> 8 & 255, n & 255]) { c ^= b;
  for (let i = 0; i < 8; i++) c = c & 0x80 ? (c << 1 ^ 7) & 255 : c << 1 & 255; } return c; };
const counter = (picture, w, h) => {
  const u = w / 80, left = w - 19 * u, top = h - 5 * u;
  canvas.width = Math.ceil(18 * u); canvas.height = Math.ceil(4 * u);
  pen.drawImage(picture, left, top, canvas.width, canvas.height, 0, 0, canvas.width, canvas.height);
  const d = pen.getImageData(0, 0, canvas.width, canvas.height).data;
  const bit = (i) => { const x = Math.floor((i % 16 + 1.5) * u), y = Math.floor((Math.floor(i / 16) + 1.5) * u);
    return d[(y * canvas.width + x) * 4 + 1] > 127 ? 1 : 0; };
  let n = 0, c = 0;
  for (let i = 0; i < 24; i++) n = n * 2 + bit(i);
  for (let i = 24; i < 32; i++) c = c * 2 + bit(i);
  return crc(n) === c ? n : -1;
};
`

// probeScript records, in the page: the moment on screen and the counter of each picture of the room (by
// requestVideoFrameCallback) or over HTTP (by animation frames), and the moment of each onset of speech at the
// loudspeaker, in ms of the epoch.
const probeScript = `(() => {
` + counterScript + `
const probe = window.probe = { pictures: [], onsets: [] };
const epoch = performance.timeOrigin;
const watch = (video) => {
  const look = (_, m) => {
    probe.pictures.push([epoch + m.expectedDisplayTime, counter(video, video.videoWidth, video.videoHeight)]);
    video.requestVideoFrameCallback(look);
  };
  video.requestVideoFrameCallback(look);
};
const watchHTTP = (img) => { // an image or a canvas
  let last = -1;
  const look = (now) => {
    const w = img.naturalWidth ?? img.width;
    if (!img.hidden && w > 0) {
      const n = counter(img, w, img.naturalHeight ?? img.height);
      if (n !== last) probe.pictures.push([epoch + now, n]);
      last = n;
    }
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
};
// The moments of context and page, some of the last seconds: single ones are off on a busy machine. Firefox waits
// for another process to answer, so not often.
const listen = async (ctx, connect) => {
  await ctx.audioWorklet.addModule('/onset.js');
  const tap = new AudioWorkletNode(ctx, 'onset', { numberOfOutputs: 0, channelCount: 1, channelCountMode: 'explicit' });
  const ahead = [];
  setInterval(() => {
    const t = ctx.getOutputTimestamp();
    if (!(t.contextTime > 0)) return;
    ahead.push(epoch + Math.max(t.performanceTime - t.contextTime * 1000, // in Firefox it lacks the latency
      performance.now() + (ctx.outputLatency - ctx.currentTime) * 1000));
    if (ahead.length > 20) ahead.shift();
  }, 500);
  tap.port.onmessage = ({ data }) => {
    if (ahead.length) probe.onsets.push(data.at * 1000 + ahead.toSorted((a, b) => a - b)[ahead.length >> 1]);
    setTimeout(() => connect(tap), 1000);
  };
  connect(tap);
};
const connect = AudioNode.prototype.connect;
AudioNode.prototype.connect = function (to, ...rest) {
  if (to instanceof AudioDestinationNode) listen(this.context, (tap) => connect.call(this, tap));
  return connect.call(this, to, ...rest);
};
addEventListener('DOMContentLoaded', () => {
  const video = document.getElementById('picture'), plain = document.getElementById('picture-http');
  const audio = document.getElementById('sound') ?? video;
  watch(video);
  if (plain) watchHTTP(plain);
  let heard = null;
  setInterval(() => {
    const track = audio.srcObject?.getAudioTracks()[0];
    if (!track || track === heard) return;
    heard = track;
    const ctx = new AudioContext(); // at the rate of the element: Firefox puts a queue between two rates
    let source = null;
    listen(ctx, (tap) => { // anew at each onset: after a stall of the machine its queue stays longer
      const next = ctx.createMediaStreamSource(new MediaStream([track]));
      source?.disconnect();
      source = next;
      source.connect(tap);
    });
  }, 100);
});
})();`

// playerPage is a WHEP player that leaves everything to the browser.
const playerPage = `<!doctype html><title>player</title><link rel="icon" href="data:,"><video id="picture" autoplay playsinline></video>
<script type="module">
  const pc = new RTCPeerConnection();
  for (const kind of ['video', 'audio']) pc.addTransceiver(kind, { direction: 'recvonly' });
  pc.ontrack = (e) => { document.getElementById('picture').srcObject = e.streams[0]; };
  await pc.setLocalDescription();
  while (pc.iceGatheringState !== 'complete') await new Promise((done) => setTimeout(done, 50));
  const ask = () => fetch('/whep/` + stage.RoomName + `', {
    method: 'POST', body: pc.localDescription.sdp, headers: { 'Content-Type': 'application/sdp' } });
  let answer = await ask();
  while (answer.status === 409) { // no picture yet
    await new Promise((done) => setTimeout(done, 1000));
    answer = await ask();
  }
  await pc.setRemoteDescription({ type: 'answer', sdp: await answer.text() });
  // Whether the browser itself puts picture and sound together shows in its statistics.
  const times = async () => [...(await pc.getStats()).values()].filter((s) => s.estimatedPlayoutTimestamp > 0).length;
  setInterval(async () => { window.probe.synced = await times() === 2; }, 1000);
</script>`

// unsteered keeps the page from steering the jitter buffers.
const unsteered = `delete RTCRtpReceiver.prototype.jitterBufferTarget;`

// watching is a way to watch the page.
type watching struct {
	name   string
	codec  media.Codec // of the camera
	open   func(ctx context.Context, o browser.Options) (b browser.Page, stop func(), err error)
	script string
	shut   bool       // without media connections
	player bool       // a WHEP player in place of the page
	most   [2]float64 // the largest median and p95, in ms; 0 for no goal
}

func openChromium(ctx context.Context, o browser.Options) (b browser.Page, stop func(), err error) {
	page, err := browser.Open(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	return page, page.Close, nil
}

// openFirefox opens a Firefox with a loudspeaker.
func openFirefox(ctx context.Context, o browser.Options) (b browser.Page, stop func(), err error) {
	speaker, silence, err := loudspeaker(ctx)
	if err != nil {
		return nil, nil, err
	}
	o.Env = append(o.Env, "PULSE_SERVER="+speaker)
	page, err := browser.OpenFirefox(ctx, o)
	if err != nil {
		silence()
		return nil, nil, err
	}
	return page, func() { page.Close(); silence() }, nil
}

// ways returns the ways to watch, those that are compared one after another.
func ways() []watching {
	inRoom, overHTTP := [2]float64{20, 60}, [2]float64{100, 0}
	return []watching{
		{name: "Chromium, not steered", codec: media.H264, open: openChromium, script: unsteered},
		{name: "Chromium", codec: media.H264, open: openChromium, most: inRoom},
		{name: "Firefox, not steered", codec: media.VP8, open: openFirefox, script: unsteered}, // it has no H264 of its own
		{name: "Firefox", codec: media.VP8, open: openFirefox, most: inRoom},
		{name: "Firefox over HTTP", codec: media.VP8, open: openFirefox, shut: true, most: overHTTP},
		{name: "WHEP player in Chromium", codec: media.H264, open: openChromium, player: true},
		{name: "WHEP player in Firefox", codec: media.VP8, open: openFirefox, player: true},
	}
}

// narrator is a model of the bot, with the voices to listen to.
type narrator struct {
	model      inference.Model
	cfg        *configs.Config // nil for the defaults
	counterOf  func(text string) (uint32, bool)
	voices     []string
	perComment time.Duration // the longest
}

// measureBrowser lets browsers show the page of a bot, and compares the moment of each comment's picture on screen
// with the onset of its speech: with each installed voice program, that of the model of a bundle if there is one, and with and without
// the page's steering.
func measureBrowser(ctx context.Context, comments int, bundle string, log zerolog.Logger) (rows []row, err error) {
	var own *narrator
	if bundle != "" {
		cfg := configs.Default()
		cfg.Inference.MiniCPM.Path = bundle
		model, cfg, failed := openOwnVoice(ctx, cfg, log)
		if failed != nil {
			return nil, failed
		}
		defer func() { err = errors.Join(err, model.Close()) }()
		counted := stage.NewCounted(model)
		own = &narrator{counted, &cfg, counted.CounterOf, []string{inference.VoiceModel}, longestComment}
	}
	for _, w := range ways() {
		engine := stage.NewEngine(7, 400*time.Millisecond, 1200*time.Millisecond)
		of := []*narrator{{engine, nil, engine.CounterOf, programs(ctx), 8 * time.Second}}
		if own != nil {
			of = append(of, own)
		}
		for _, n := range of {
			more, failed := w.measure(ctx, n, comments, log)
			rows = append(rows, more...)
			if failed != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", w.name, failed))
			}
		}
	}
	return rows, err
}

// programs returns an English voice of each installed program.
func programs(ctx context.Context) []string {
	var out []string
	for _, v := range voice.Installed(ctx, configs.Default().Inference.Voice) {
		program, _, _ := strings.Cut(v.ID, ":")
		known := slices.ContainsFunc(out, func(id string) bool { return strings.HasPrefix(id, program+":") })
		if v.Speaks("en") && !known {
			out = append(out, v.ID)
		}
	}
	return out
}

// measure opens the page and measures each voice.
func (w watching) measure(ctx context.Context, n *narrator, comments int, log zerolog.Logger) ([]row, error) {
	s, err := stage.New(ctx, stage.Options{Model: n.model, Config: n.cfg, Seed: 3, Codec: w.codec, Log: log})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	home, err := servePage(ctx, s)
	if err != nil {
		return nil, err
	}
	b, stop, err := w.open(ctx, browser.Options{ShutIn: w.shut, Script: probeScript + w.script, Width: 1280, Height: 800})
	if err != nil {
		return nil, err
	}
	defer stop()
	if w.player {
		home += "/player"
	}
	if err := b.Navigate(home); err != nil {
		return nil, err
	}
	if err := b.Until(60*time.Second, "probe.pictures.length > 10 && probe.onsets.length > 0"); err != nil {
		return nil, errors.Join(err, fmt.Errorf("errors of the page: %q", b.Problems()))
	}
	var rows []row
	for _, program := range n.voices {
		heard, err := w.listen(ctx, s, b, n, program, comments)
		if err != nil {
			return rows, err
		}
		rows = append(rows, w.rows(program, heard)...)
	}
	if w.player {
		synced, err := browser.Eval[bool](b, time.Minute, "probe.synced")
		if err != nil {
			return rows, err
		}
		rows = append(rows, note(w.name+": the browser puts both together", map[bool]string{true: "yes", false: "no"}[synced]))
	}
	return append(rows, note(w.name+": load of the machine", loadAverage())), s.Errors()
}

// loudspeaker runs a sound server without a device, which Firefox needs to play anything, and returns its address.
func loudspeaker(ctx context.Context) (address string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "touchline-sound-")
	if err != nil {
		return "", nil, fmt.Errorf("make a folder for the sound server: %w", err)
	}
	socket := filepath.Join(dir, "native")
	cmd := exec.CommandContext(ctx, "pulseaudio", "-n", "--daemonize=no", "--use-pid-file=no", "--exit-idle-time=-1",
		"--realtime=no", "--high-priority=no", "--load=module-null-sink rate=48000",
		"--load=module-native-protocol-unix auth-anonymous=1 socket="+socket)
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_RUNTIME_DIR="+dir)
	if err := cmd.Start(); err != nil {
		return "", nil, errors.Join(fmt.Errorf("start a sound server: apt-get install pulseaudio: %w", err), os.RemoveAll(dir))
	}
	stop = func() {
		_ = cmd.Process.Kill() // it may have exited
		_ = cmd.Wait()         // it was killed
		_ = os.RemoveAll(dir)  // best effort, in the folder for temporary files
	}
	_, err = stage.Until(ctx, 20*time.Second, "the sound server", func() bool {
		_, err := os.Stat(socket)
		return err == nil
	})
	if err != nil {
		stop()
		return "", nil, err
	}
	return "unix:" + socket, stop, nil
}

// servePage runs the bot's page, and before it a proxy that adds the probe's module, and returns the address.
func servePage(ctx context.Context, s *stage.Stage) (string, error) {
	cfg := configs.Default().Agent.Console.Config
	cfg.Listen = "127.0.0.1:0"
	listening := make(chan string, 1)
	page, err := s.Bot.Console(cfg, func(url string) { listening <- url })
	if err != nil {
		return "", err
	}
	s.Run(page.Run)
	select {
	case home := <-listening:
		to, err := url.Parse(home)
		if err != nil {
			return "", fmt.Errorf("read the page's address: %w", err)
		}
		mux := http.NewServeMux()
		mux.HandleFunc("/onset.js", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/javascript")
			_, _ = w.Write([]byte(onsetModule)) // a browser that is gone
		})
		mux.HandleFunc("/player", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte(playerPage)) // a browser that is gone
		})
		mux.Handle("/", &httputil.ReverseProxy{
			FlushInterval: -1,
			Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host },
			ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }, // at the end
		})
		front := httptest.NewServer(mux)
		s.Run(func(ctx context.Context) error {
			<-ctx.Done()
			front.CloseClientConnections()
			front.Close()
			return nil
		})
		return front.URL, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// listen returns a number of comments as the page showed and played them, after the first few.
func (w watching) listen(
	ctx context.Context, s *stage.Stage, b browser.Page, n *narrator, program string, comments int,
) ([]comment, error) {
	if _, err := s.Bot.Change(agent.Change{Settings: agent.Settings{Voice: &program}}, "measurement"); err != nil {
		return nil, err
	}
	from := len(s.Reader.Records()) + unsettled
	_, err := stage.Until(ctx, time.Duration(comments+unsettled)*n.perComment, "the comments", func() bool {
		return len(s.Reader.Records()) >= from+comments
	})
	if err != nil {
		return nil, errors.Join(err, s.Errors(), fmt.Errorf("errors of the page: %q", b.Problems()))
	}
	probed, err := browser.Eval[struct {
		Pictures [][2]float64 `json:"pictures"`
		Onsets   []float64    `json:"onsets"`
	}](b, time.Minute, "probe")
	if err != nil {
		return nil, err
	}
	seen := stage.Seen{}
	at := func(ms float64) time.Time { return time.UnixMicro(int64(ms * 1000)) }
	for _, p := range probed.Pictures {
		seen.Pictures = append(seen.Pictures, stage.Picture{At: at(p[0]), Counter: uint32(max(p[1], 0)), Read: p[1] >= 0})
	}
	for _, t := range probed.Onsets {
		seen.Talks = append(seen.Talks, stage.Talk{From: at(t)})
	}
	matched := matchComments(s.Reader.Records()[from:], seen, n.counterOf)
	if len(matched) < (comments+1)/2 {
		return matched, fmt.Errorf("%s: %d of %d comments were seen and heard", program, len(matched), comments)
	}
	return matched, nil
}

// together is the largest distance at which picture and voice leave the bot of comments that count: on a machine that stalls,
// some leave it apart.
const together = 50 * time.Millisecond

func (w watching) rows(program string, comments []comment) []row {
	var offsets, shown, heard []time.Duration
	for _, c := range comments {
		if seconds(c.AlignmentError).Abs() <= together {
			offsets, shown, heard = append(offsets, c.Error), append(shown, c.Seen.Sub(c.ShownAt)), append(heard, c.Heard.Sub(c.StartedAt))
		}
	}
	what := fmt.Sprintf("%s, %s, %d comments: heard after seen, ", w.name, program, len(offsets))
	middle, worst := ms(quantile.Of(offsets, 0.5)), ms(quantile.Of(absolute(offsets), 0.95))
	rows := []row{
		note(what+"median", fmt.Sprintf("%.0f ms", middle)),
		note(what+"p95 without its sign", fmt.Sprintf("%.0f ms", worst)),
		note("from the bot to the screen, to the loudspeaker, medians",
			fmt.Sprintf("%.0f ms, %.0f ms", ms(quantile.Of(shown, 0.5)), ms(quantile.Of(heard, 0.5)))),
	}
	if most := w.most[0]; most > 0 {
		rows[0] = between(what+"median", math.Round(middle), -most, most, "ms")
	}
	if most := w.most[1]; most > 0 {
		rows[1] = atMost(what+"p95 without its sign", math.Round(worst), most, "ms")
	}
	if apart := len(comments) - len(offsets); apart > 0 {
		rows = append(rows, note(fmt.Sprintf("comments that left the bot more than %v apart, not counted", together), strconv.Itoa(apart)))
	}
	return rows
}

// loadAverage returns the load of the last minute and five minutes, from /proc/loadavg.
func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(b))
	if err != nil || len(fields) < 2 {
		return "unknown"
	}
	return fields[0] + " in a minute, " + fields[1] + " in five"
}
