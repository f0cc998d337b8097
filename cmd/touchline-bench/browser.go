package main

import (
	"context"
	_ "embed"
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
	"strings"
	"time"

	"touchline/agent/command"
	"touchline/agent/settings"
	"touchline/cmd/internal/bench"
	"touchline/configs"
	"touchline/inference"
	"touchline/inference/voice"
	"touchline/internal/e2e/browser"
	"touchline/internal/e2e/stage"
	"touchline/internal/quantile"
	"touchline/media"
)

var (
	//go:embed web/onset.js
	onsetModule []byte
	//go:embed web/probe.js
	probeScript string
	//go:embed web/player.html
	playerPage []byte // a WHEP player that leaves everything to the browser
)

// watching is a way to watch the page.
type watching struct {
	name    string
	firefox bool // which has no H264 of its own
	script  string
	shut    bool       // without media connections
	player  bool       // a WHEP player in place of the page
	most    [2]float64 // the largest median and p95, in ms; 0 for no goal
}

// ways are the ways to watch, compared one after another.
func ways() []watching {
	const unsteered = `delete RTCRtpReceiver.prototype.jitterBufferTarget;`
	inRoom, overHTTP := [2]float64{20, 60}, [2]float64{100, 0}
	return []watching{
		{name: "Chromium, not steered", script: unsteered},
		{name: "Chromium", most: inRoom},
		{name: "Firefox, not steered", firefox: true, script: unsteered},
		{name: "Firefox", firefox: true, most: inRoom},
		{name: "Firefox over HTTP", firefox: true, shut: true, most: overHTTP},
		{name: "WHEP player in Chromium", player: true},
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

// browsers lets browsers show the page of a bot, and compares the moment of each comment's picture on screen with the onset of its
// speech: with each installed voice program and the model's own voice, and with and without the page's steering.
func browsers(r *run) {
	model, cfg := r.ownVoice()
	own := narrator{model, cfg, model.CounterOf, []string{inference.VoiceModel}, longestComment}
	for _, w := range ways() {
		engine := stage.NewEngine(7, 400*time.Millisecond, 1200*time.Millisecond)
		for _, n := range []narrator{{engine, nil, engine.CounterOf, programs(r.Context()), 20 * time.Second}, own} {
			r.Check(r.Context().Err())
			figures, err := r.flags.measure(r.Context(), r.log, func(r *run) { w.measure(r, n) })
			r.Figures = append(r.Figures, figures...)
			if err != nil {
				r.Fail(fmt.Errorf("%s: %w", w.name, err))
			}
		}
	}
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
func (w watching) measure(r *run, n narrator) {
	camera := media.H264
	if w.firefox {
		camera = media.VP8
	}
	s := r.stage(stage.Options{Model: n.model, Config: n.cfg, Seed: 3, Codec: camera})
	home := servePage(r, s)
	b := w.open(r, browser.Options{ShutIn: w.shut, Script: probeScript + w.script, Width: 1280, Height: 800})
	if w.player {
		home += "/player"
	}
	r.Check(b.Navigate(home))
	if err := b.Until(60*time.Second, "probe.pictures.length > 10 && probe.onsets.length > 0"); err != nil {
		r.Check(errors.Join(err, fmt.Errorf("errors of the page: %q", b.Problems())))
	}
	for _, program := range n.voices {
		w.figures(r, program, w.listen(r, s, b, n, program))
	}
	if w.player {
		synced, err := browser.Eval[bool](b, time.Minute, "probe.synced")
		r.Check(err)
		r.Note(w.name+": the browser puts both together", "%s", map[bool]string{true: "yes", false: "no"}[synced])
	}
	r.Note(w.name+": load of the machine", "%s", loadAverage())
}

// open opens a browser; a Firefox has a loudspeaker.
func (w watching) open(r *run, o browser.Options) browser.Page {
	if !w.firefox {
		page, err := browser.Open(r.Context(), o)
		r.Check(err)
		r.Cleanup(page.Close)
		return page
	}
	o.Env = append(o.Env, "PULSE_SERVER="+loudspeaker(r))
	page, err := browser.OpenFirefox(r.Context(), o)
	r.Check(err)
	r.Cleanup(page.Close)
	return page
}

// loudspeaker runs a sound server without a device, which Firefox needs to play anything, and returns its address.
func loudspeaker(r *run) (address string) {
	dir := r.folder()
	socket := filepath.Join(dir, "native")
	cmd := exec.CommandContext(r.Context(), "pulseaudio", "-n", "--daemonize=no", "--use-pid-file=no", "--exit-idle-time=-1",
		"--realtime=no", "--high-priority=no", "--load=module-null-sink rate=48000",
		"--load=module-native-protocol-unix auth-anonymous=1 socket="+socket)
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_RUNTIME_DIR="+dir)
	if err := cmd.Start(); err != nil {
		r.Check(fmt.Errorf("start a sound server: apt-get install pulseaudio: %w", err))
	}
	r.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have exited
		_ = cmd.Wait()         // it was killed
	})
	r.until(20*time.Second, "the sound server", func() bool {
		_, err := os.Stat(socket)
		return err == nil
	})
	return "unix:" + socket
}

// servePage runs the bot's page, and before it a proxy that adds the probe's module, and returns the address.
func servePage(r *run, s *stage.Stage) string {
	cfg := configs.Default().Agent.Console.Config
	cfg.Listen = "127.0.0.1:0"
	listening := make(chan string, 1)
	page, err := s.Bot.Console(cfg, func(url string) { listening <- url })
	r.Check(err)
	s.Run(page.Run)
	var home string
	select {
	case home = <-listening:
	case <-r.Context().Done():
		r.Check(r.Context().Err())
	}
	to, err := url.Parse(home)
	r.Check(err)
	mux := http.NewServeMux()
	serve := func(path, kind string, content []byte) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = w.Write(content) // the browser may be gone
		})
	}
	serve("/onset.js", "text/javascript", onsetModule)
	serve("/player", "text/html", playerPage)
	mux.Handle("/", &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite:       func(p *httputil.ProxyRequest) { p.Out.URL.Scheme, p.Out.URL.Host = to.Scheme, to.Host },
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }, // at the end
	})
	front := httptest.NewServer(mux)
	r.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	return front.URL
}

// listen returns the comments as the page showed and played them, after the first few.
func (w watching) listen(r *run, s *stage.Stage, b browser.Page, n narrator, program string) []comment {
	comments := r.flags.Browser
	r.changeSettings(s, command.Change{Settings: settings.Settings{Voice: &program}})
	from := len(s.Reader.Records()) + unsettled
	_, err := stage.Until(r.Context(), time.Duration(comments+unsettled)*n.perComment, "the comments", func() bool {
		return len(s.Reader.Records()) >= from+comments
	})
	if err != nil {
		r.Check(errors.Join(err, fmt.Errorf("errors of the page: %q", b.Problems())))
	}
	probed, err := browser.Eval[struct {
		Pictures [][2]float64 `json:"pictures"`
		Onsets   []float64    `json:"onsets"`
	}](b, time.Minute, "probe")
	r.Check(err)
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
		r.Check(fmt.Errorf("%s: %d of %d comments were seen and heard", program, len(matched), comments))
	}
	return matched
}

// together is the largest distance at which picture and voice leave the bot of comments that count: on a machine that stalls,
// some leave it apart.
const together = 50 * time.Millisecond

func (w watching) figures(r *run, program string, comments []comment) {
	var offsets, shown, heard []time.Duration
	for _, c := range comments {
		if seconds(c.AlignmentError).Abs() <= together {
			offsets, shown, heard = append(offsets, c.Error), append(shown, c.Seen.Sub(c.ShownAt)), append(heard, c.Heard.Sub(c.StartedAt))
		}
	}
	what := fmt.Sprintf("%s, %s, %d comments: heard after seen, ", w.name, program, len(offsets))
	middle, worst := math.Round(bench.MS(quantile.Of(offsets, 0.5))), math.Round(bench.MS(quantile.Of(absolute(offsets), 0.95)))
	if most := w.most[0]; most > 0 {
		r.Between(what+"median", middle, -most, most, "ms")
	} else {
		r.Note(what+"median", "%.0f ms", middle)
	}
	if most := w.most[1]; most > 0 {
		r.AtMost(what+"p95 without its sign", worst, most, "ms")
	} else {
		r.Note(what+"p95 without its sign", "%.0f ms", worst)
	}
	r.Note("from the bot to the screen, to the loudspeaker, medians", "%.0f ms, %.0f ms",
		bench.MS(quantile.Of(shown, 0.5)), bench.MS(quantile.Of(heard, 0.5)))
	if apart := len(comments) - len(offsets); apart > 0 {
		r.Note(fmt.Sprintf("comments that left the bot more than %v apart, not counted", together), "%d", apart)
	}
}
