package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"time"

	"touchline/inference/remote"
	"touchline/inference/voice"
	"touchline/media/codec"
)

type checkCmd struct{ modelFlags }

// Run prints the effective settings, their meaning, and what is missing on this machine.
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
	checkProgram(a, &r)
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
		found, err := probe(ctx, a)
		r.add("remote engine", err, found)
	case "minicpmo":
		r.add("engine", nil, a.cfg.Inference.Engine)
		for _, f := range modelParts(a.cfg.Inference.MiniCPM) {
			r.add(f.what, f.err, f.ok)
		}
	default:
		r.add("engine", nil, a.cfg.Inference.Engine)
	}
	if a.cfg.Inference.Engine != "minicpmo" {
		fmt.Println("optional built-in model: not chosen; `touchline check --model DIR` checks one and its requirements")
	}
	synth, err := voice.New(a.cfg.Inference.Voice, a.log)
	if err == nil {
		err = synth.Check(a.cfg.Inference.Voice.Language)
	}
	r.add("voice", err, "speaks "+a.cfg.Inference.Voice.Language)
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

// probe checks that the remote server answers and has the model. It sends no picture.
func probe(ctx context.Context, a *app) (string, error) {
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
