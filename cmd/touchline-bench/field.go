package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"touchline/agent/camera"
	"touchline/cmd/internal/bench"
	"touchline/inference"
	"touchline/inference/live"
	"touchline/inference/remote"
	"touchline/internal/e2e/fakes"
	"touchline/internal/e2e/stage"
	"touchline/internal/quantile"
	"touchline/media"
	"touchline/media/source"
	"touchline/media/source/catalog"
)

// field measures the times that foreign servers, files and cameras cost.
func field(r *run) {
	r.AtMost("first words of a model without marks, later than the server sends them, p95", bench.MS(quantile.Of(firstWords(r), .95)), 5, "ms")
	steps := interimSteps(r)
	r.Between("time between interim texts with a step of 100 ms, median", bench.MS(quantile.Of(steps, .5)), 80, 120, "ms")
	r.AtMost("first picture of a file with a key frame in 250 pictures", firstPicture(r).Seconds(), 2, "s")
	r.AtLeast("pictures of a film of 4K60, HEVC, HLG, rotated", picturesOfHLG(r), 10, "/s")
	r.AtMost("key frame of a camera that sends one at the start only, after a request", nextKeyFrame(r).Seconds(), 10, "s")
	r.AtMost("removal of a source that hangs", hangingSource(r).Seconds(), 1, "s")
}

// firstWords returns the times from a server's first words to the engine's, once the engine knows that the model has no marks.
func firstWords(r *run) (out []time.Duration) {
	server := httptest.NewServer(fakes.Model())
	r.Cleanup(server.Close)
	cfg := remote.DefaultConfig()
	cfg.URL = server.URL + "/clock/v1"
	m, err := remote.New(cfg, 64, r.log)
	r.Check(err)
	r.Cleanup(func() { r.Fail(m.Close()) })
	r.Check(m.Warm(r.Context(), nil))
	s, err := m.NewSession()
	r.Check(err)
	r.Cleanup(func() { r.Fail(s.Close()) })
	for n := range 20 {
		for c, err := range s.Generate(r.Context(), inference.Prompt{Text: "What is there?"}) {
			r.Check(err)
			if len(out) == n && c.Text != "" {
				sent, err := strconv.ParseInt(strings.TrimSpace(c.Text), 10, 64)
				r.Check(err)
				out = append(out, time.Since(time.Unix(0, sent)))
			}
		}
	}
	return out
}

// growing is a recognizer with another text for each piece of sound.
type growing struct{ counter }

// Listen implements inference.Recognizer.
func (growing) Listen(context.Context, inference.Hearing) (inference.Utterance, error) {
	return &pieces{}, nil
}

type pieces struct {
	word

	n int
}

// Hear implements inference.Utterance.
func (u *pieces) Hear(ctx context.Context, sound []float32) (inference.Transcript, error) {
	t, err := u.word.Hear(ctx, sound)
	u.n++
	t.Text = strconv.Itoa(u.n)
	return t, err
}

// interimSteps returns the times between the interim texts of speech that comes at its own pace.
func interimSteps(r *run) (out []time.Duration) {
	var last time.Time
	s := live.New(growing{}, live.Config{Every: 100 * time.Millisecond}, func(e live.Event) {
		now := time.Now()
		if e.Kind == live.Interim && !last.IsZero() {
			out = append(out, now.Sub(last))
		}
		last = now
	})
	ended := make(chan error, 1)
	go func() { ended <- s.Run(r.Context()) }()
	const pieceMS = 20
	from := time.Now()
	for n := range 5000 / pieceMS {
		r.Wait(time.Until(from.Add(time.Duration(n*pieceMS) * time.Millisecond)))
		r.Check(s.Write(r.Context(), make([]float32, pieceMS*inference.RecognizerRate/1000)))
	}
	r.Check(s.Close())
	r.Check(<-ended)
	return out
}

// firstPicture returns the time to the first picture of a file with rare key frames.
func firstPicture(r *run) time.Duration {
	path := makeFilm(r, "long-gop.mp4", "-f", "lavfi", "-i", "testsrc2=s=1280x720:r=25:d=20", "-c:v", "libx264",
		"-preset", "ultrafast", "-g", "250", "-sc_threshold", "0", "-pix_fmt", "yuv420p")
	began := time.Now()
	var first time.Duration
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	_ = open(r, path).Pull(ctx, source.Sink{Frame: func(media.EncodedFrame) { // until stop
		first = time.Since(began)
		stop()
	}})
	return first
}

// makeFilm makes a file by ffmpeg.
func makeFilm(r *run, name string, args ...string) string {
	path := filepath.Join(r.folder(), name)
	cmd := exec.CommandContext(r.Context(), "ffmpeg", slices.Concat([]string{"-v", "error"}, args, []string{path})...)
	if b, err := cmd.CombinedOutput(); err != nil {
		r.Check(fmt.Errorf("make a file: %w: %s", err, b))
	}
	return path
}

// picturesOfHLG returns the pictures a second of a film as phones make it: 4K60, HEVC of 10 bits, HLG, rotated.
func picturesOfHLG(r *run) float64 {
	flat := makeFilm(r, "flat.mp4", "-f", "lavfi", "-i", "testsrc2=s=3840x2160:r=60:d=4", "-pix_fmt", "yuv420p10le", "-c:v", "libx265",
		"-preset", "ultrafast", "-x265-params", "log-level=none:keyint=60:colorprim=bt2020:transfer=arib-std-b67:colormatrix=bt2020nc",
		"-tag:v", "hvc1")
	path := makeFilm(r, "phone.mp4", "-i", flat, "-c", "copy", "-metadata:s:v", "rotate=90")
	const length = 20 * time.Second
	var pictures atomic.Int64
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	puller, first, ended := open(r, path), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- puller.Pull(ctx, source.Sink{Frame: func(media.EncodedFrame) {
			if pictures.Add(1) == 1 {
				close(first)
			}
		}})
	}()
	select {
	case <-first:
	case err := <-ended:
		r.Check(fmt.Errorf("play a film: no picture: %w", err))
	}
	before := pictures.Load()
	r.Wait(length)
	n := pictures.Load() - before
	stop()
	r.log.Debug().Err(<-ended).Msg("the film has stopped")
	return float64(n) / length.Seconds()
}

// open opens an address.
func open(r *run, address string) source.Puller {
	a, err := source.ParseAddress(address)
	r.Check(err)
	p, err := catalog.Open(catalog.Options{Access: source.Access{Address: a, Allow: source.AllowEverything(), Now: time.Now, Log: r.log}})
	r.Check(err)
	return p
}

// nextKeyFrame returns the time from a request to the key frame of a camera that sends one at the start of a session only.
func nextKeyFrame(r *run) time.Duration {
	fake, err := fakes.ListenRTSP(r.Context())
	r.Check(err)
	r.Cleanup(fake.Close)
	var keys, pictures atomic.Int64
	sup, err := source.NewSupervisor(source.Options{
		Puller: open(r, fake.URL("gop-long", "")), Now: time.Now, Random: func() float64 { return 0 }, Log: r.log,
		Sink: source.Sink{Frame: func(f media.EncodedFrame) {
			pictures.Add(1)
			if f.KeyFrame {
				keys.Add(1)
			}
		}},
	})
	r.Check(err)
	ctx, stop := context.WithCancel(r.Context())
	ended := make(chan error, 1)
	go func() { ended <- sup.Run(ctx) }()
	r.Cleanup(func() { stop(); r.Fail(<-ended) })
	r.until(time.Minute, "pictures", func() bool { return pictures.Load() > 10 })
	sup.RequestKeyFrame()
	began := time.Now()
	r.until(time.Minute, "a second key frame", func() bool { return keys.Load() > 1 })
	return time.Since(began)
}

// hang is a source that does not end with its context. It sends once when it begins, and takes what ends it.
type hang chan struct{}

// Pull implements source.Puller.
func (h hang) Pull(context.Context, source.Sink) error {
	h <- struct{}{}
	<-h
	return nil
}

// hangingSource returns the time that the removal of a source takes that hangs.
func hangingSource(r *run) time.Duration {
	s := r.stage(stage.Options{NoCamera: true, NoBot: true})
	m, err := camera.NewManager(camera.ManagerOptions{
		Allow: source.AllowEverything(), Log: r.log, Feed: camera.Options{URL: s.URL(), Keys: s.Keys, Room: stage.RoomName},
	})
	r.Check(err)
	ctx, stop := context.WithCancel(r.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	h := make(hang)
	r.Cleanup(func() { close(h); stop(); r.Fail(<-ended) })
	info, err := m.Open(h, source.Address{}, "hangs", "hangs")
	r.Check(err)
	<-h
	began := time.Now()
	r.Check(m.Remove(r.Context(), info.ID, "bench"))
	return time.Since(began)
}
