package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"touchline/agent/command"
	"touchline/agent/mqtt"
	"touchline/inference"
	"touchline/inference/minicpmo"
	"touchline/inference/nano"
	"touchline/inference/probe"
	"touchline/inference/remote"
	"touchline/inference/sphinx"
	"touchline/inference/vad"
	"touchline/inference/voice"
	"touchline/internal/child"
	"touchline/internal/redact"
	"touchline/media/codec"
	"touchline/models"
	"touchline/models/sight"
)

type checkCmd struct{ modelFlags }

// Run prints the effective settings, their meaning, and the parts that are missing on this machine.
func (c checkCmd) Run(ctx context.Context, a *app) error {
	if err := c.apply(&a.cfg); err != nil {
		return err
	}
	fmt.Println("# effective settings")
	if err := a.cfg.Print(os.Stdout); err != nil {
		return fmt.Errorf("print the settings: %w", err)
	}
	fmt.Println("\n# what they mean")
	for _, line := range a.cfg.Explain() {
		fmt.Println(line)
	}
	fmt.Println("\n# this machine")
	var r findings
	checkCodecs(ctx, &r)
	checkEngine(ctx, a, &r)
	checkRecognizer(ctx, a, &r)
	checkTargets(ctx, a, &r)
	checkProgram(a, &r)
	confinement, _ := child.Available()
	r.add("confinement of programs", nil, confinement)
	if r.missing > 0 {
		return fmt.Errorf("%d checks failed; see the lines that begin with missing", r.missing)
	}
	return nil
}

// findings prints the results of checks and counts the missing parts.
type findings struct{ missing int }

func (f *findings) add(what string, err error, ok string) {
	if err != nil {
		f.missing++
		fmt.Printf("missing  %s: %v\n", what, err)
		return
	}
	fmt.Printf("ok       %s: %s\n", what, ok)
}

// parts adds several results.
func (f *findings) parts(list []part) {
	for _, p := range list {
		if p.without != "" {
			f.maybe(p.what, p.err, p.ok, p.without)
			continue
		}
		f.add(p.what, p.err, p.ok)
	}
}

// maybe adds a finding about an optional part; without describes the effect of its absence.
func (f *findings) maybe(what string, err error, ok, without string) {
	if err == nil {
		f.add(what, nil, ok)
		return
	}
	fmt.Printf("optional %s: %v; %s\n", what, err, without)
}

func checkCodecs(ctx context.Context, r *findings) {
	path, err := codec.Find("")
	r.add("codec program", err, path)
	if err == nil {
		list, err := codecs(ctx, path)
		r.add("codecs", err, list)
	}
}

func checkEngine(ctx context.Context, a *app, r *findings) {
	switch a.cfg.Inference.Engine {
	case "remote":
		found, err := askServer(ctx, a)
		r.add("remote engine", err, found)
	case "minicpmo":
		r.add("engine", nil, a.cfg.Inference.Engine)
		r.parts(modelParts(minicpmo.Options{
			Config: minicpmo.Settings{Config: a.cfg.Inference.Config, MiniCPM: a.cfg.Inference.MiniCPM}, Frames: a.cfg.Agent.Frames,
		}))
	case "nano":
		r.add("engine", nano.Check(ctx), a.cfg.Inference.Engine)
		r.parts(runtimeParts(a.cfg.Inference.MiniCPM.Runtime, string(models.DeviceCPU), 0))
	case "sight":
		bundle, err := sight.Locate(a.cfg.Inference.Sight.Bundle)
		r.add("engine", err, a.cfg.Inference.Engine)
		if err == nil {
			r.add("networks of sight", bundle.Verify(ctx), bundle.Dir)
		}
		r.parts(runtimeParts(a.cfg.Inference.MiniCPM.Runtime, string(models.DeviceCPU), 0))
	default:
		r.add("engine", nil, a.cfg.Inference.Engine)
	}
	if a.cfg.Inference.Engine == "auto" {
		_, err := probe.Devices(a.cfg.Inference.MiniCPM.Runtime)
		r.maybe("ONNX Runtime", err, "runs here, so the demo can use nano", "the demo uses the scene engine in place of nano")
		if err := nano.Check(ctx); err != nil {
			r.maybe("nano", err, "", "the demo uses the scene engine in place of nano")
		}
		err = nil
		if why := a.cfg.Inference.Auto.Why; why != "" {
			err = errors.New(why)
		}
		r.maybe("sight", err, "its networks are here, so it comments on cameras", "the scene engine comments on cameras")
	}
	if a.cfg.Inference.Engine != "minicpmo" {
		fmt.Println("optional built-in model: not chosen; `touchline check --model DIR` checks one and its requirements")
	}
	synth, err := voice.New(a.cfg.Inference.Voice, a.log)
	if err == nil {
		err = synth.Check(a.cfg.Inference.Voice.Language)
	}
	r.add("voice", err, "speaks "+a.cfg.Inference.Voice.Language)
	if v := a.cfg.Inference.Voice; v.Program == "remote" {
		found, err := answers(ctx, http.MethodGet, v.URL+"/models", v.APIKey)
		r.add("speech server", err, found)
	}
}

// checkRecognizer checks the speech recognizer, and the one of interim texts.
func checkRecognizer(ctx context.Context, a *app, r *findings) {
	c, runtime := a.cfg.Inference.Recognizer, a.cfg.Inference.MiniCPM.Runtime
	switch c.Program {
	case inference.RecognizerModel, inference.RecognizerRemote:
		checkTranscription(ctx, c, runtime, "", r)
		if interims, ok := c.Interims(); ok {
			checkTranscription(ctx, interims, runtime, "interim ", r)
		}
	case inference.RecognizerSphinx:
		s, err := sphinx.Open(sphinx.Options{Orders: command.SpokenOrders(), WakeWords: a.cfg.Agent.Hearing.WakeWords})
		if err == nil {
			err = s.Close()
		}
		r.add("pocketsphinx", err, "knows every order and wake word")
	default:
		fmt.Println("optional recognizer: off; inference.recognizer.program turns it on (docs/transcription.md)")
		return
	}
	detector := vad.Open(runtime)
	r.maybe("speech detector", detector.Err(), detector.String(), "the energy VAD is used")
	_ = detector.Close() // nothing was written
}

// checkTranscription checks a bundle or a transcription server; kind precedes their names.
func checkTranscription(ctx context.Context, c inference.RecognizerConfig, runtime, kind string, r *findings) {
	if c.Program == inference.RecognizerModel {
		r.parts(recognizerParts(c, kind))
		r.parts(runtimeParts(runtime, c.Device, c.GPU))
		return
	}
	address, _ := c.Address()
	found, err := answers(ctx, http.MethodGet, address+"/models", c.APIKey)
	r.add(kind+"transcription server", err, found)
}

// checkTargets checks that the broker and the recipients of webhooks can be reached. It sends them no message.
func checkTargets(ctx context.Context, a *app, r *findings) {
	if c := a.cfg.Agent.MQTT; c.URL != "" {
		ctx, cancel := context.WithTimeout(ctx, checkTime)
		r.add("MQTT broker", mqtt.Probe(ctx, c), c.URL+" accepts the connection")
		cancel()
	}
	urls := a.cfg.Agent.Webhook.URLs
	results := make([]part, len(urls))
	var g sync.WaitGroup
	for i, u := range urls {
		g.Go(func() {
			p := part{what: fmt.Sprintf("webhook %d", i+1)}
			p.ok, p.err = answers(ctx, http.MethodHead, u.URL, "")
			results[i] = p
		})
	}
	g.Wait()
	r.parts(results)
}

// answers sends a server one request and returns its host with the status of the response. Its address may include a password and is not
// printed. A refused key is an error; any other response shows that the server is reachable.
func answers(ctx context.Context, method, address string, key redact.Secret) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, address, http.NoBody)
	if err != nil {
		return "", errors.New("the address is not valid")
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+string(key))
	}
	client := &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the address
		}
		return "", fmt.Errorf("%s: %w", req.URL.Host, err)
	}
	_ = res.Body.Close()
	if method == http.MethodGet && (res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden) {
		return "", fmt.Errorf("%s refuses the key: %s", req.URL.Host, res.Status)
	}
	return fmt.Sprintf("%s answers (%s)", req.URL.Host, res.Status), nil
}

// checkProgram checks ffmpeg, the LiveKit server's settings and the page.
func checkProgram(a *app, r *findings) {
	path, err := exec.LookPath("ffmpeg")
	if err != nil {
		fmt.Println("optional ffmpeg: not found; video files, HLS and HTTP streams, and AAC sound of RTSP cameras need it: " +
			"apt-get install ffmpeg")
	} else {
		r.add("ffmpeg", nil, path)
	}
	lk := a.cfg.Agent.LiveKit
	r.add("LiveKit address", nil, lk.URL)
	switch {
	case lk.Token != "":
		r.add("LiveKit keys", nil, "a ready-made token is set")
	case lk.APIKey != "":
		r.add("LiveKit keys", nil, "set")
	default:
		fmt.Println("optional LiveKit keys: none; `touchline join` needs LIVEKIT_API_KEY and LIVEKIT_API_SECRET, or a token")
	}
	if pageBuiltIn() {
		r.add("page", nil, "built in")
	} else {
		fmt.Println("optional page: not built in; it is read from the source folder (make build builds it in)")
	}
}

// checkTime bounds the check of another program or server.
const checkTime = 3 * time.Second

// codecs returns the codecs of the codec program, which tests its confinement as well.
func codecs(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "-check").CombinedOutput()
	list := strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", "; ")
	if err != nil {
		return "", fmt.Errorf("run %s -check: %w: %s", path, err, list)
	}
	return list, nil
}

// askServer checks that the remote server answers and has the model. It sends no picture.
func askServer(ctx context.Context, a *app) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	m, err := remote.New(a.cfg.Inference.Remote, a.cfg.Inference.MaxTokens, a.log)
	if err != nil {
		return "", err
	}
	defer m.Close() // never fails
	model, err := m.Probe(ctx)
	return fmt.Sprintf("%s at %s", model, a.cfg.Inference.Remote.URL), err
}

// pageBuiltIn reports whether this program contains the page.
func pageBuiltIn() bool {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return false
	}
	for _, s := range info.Settings {
		if s.Key == "-tags" {
			return strings.Contains(s.Value, "builtinassets")
		}
	}
	return false
}
