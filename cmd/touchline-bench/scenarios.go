package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/configs"
	"touchline/inference"
	"touchline/inference/minicpmo"
	"touchline/internal/e2e/stage"
	"touchline/internal/quantile"
	"touchline/media/sound"
	"touchline/models"
)

// unsettled is the number of first comments that do not count.
const unsettled = 5

// alignmentResult is the outcome of an alignment run.
type alignmentResult struct {
	Comments []comment // matched ones, after the first few
	Records  []agent.Record
	Gaps     []time.Duration // silence between comments, as heard
	// Words are the delays of caption words after their sound, Final those of the closing flag after the speech.
	Words, Final []time.Duration
	// Unmatched counts comments whose captions could not be compared, Unflagged captions closed without the flag.
	Unmatched, Unflagged int
	// Sound holds the bot's figures of the camera's sound; zero without sound.
	Sound sound.Stats
}

// measureAlignment runs a bot before a viewer until it has made a number of comments on a generated match, with model
// latencies between least and most. say returns the text of comment n; nil for sentences of about three seconds.
// crowd gives the camera sound.
func measureAlignment(
	ctx context.Context, comments int, least, most time.Duration, say func(n int) string, crowd bool, log zerolog.Logger,
) (alignmentResult, error) {
	engine := stage.NewEngine(7, least, most)
	engine.Text = say
	return alignmentOf(ctx, comments, 6*time.Second+most, engine.CounterOf, stage.Options{Model: engine, Seed: 3, Crowd: crowd, Log: log})
}

// measureOwnVoice is measureAlignment with the model of a bundle that speaks.
func measureOwnVoice(
	ctx context.Context, comments int, cfg configs.Config, crowd bool, log zerolog.Logger,
) (res alignmentResult, err error) {
	model, cfg, err := openOwnVoice(ctx, cfg, log)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, model.Close()) }()
	counted := stage.NewCounted(model)
	o := stage.Options{Model: counted, Config: &cfg, Seed: 3, Crowd: crowd, Log: log}
	return alignmentOf(ctx, comments, longestComment, counted.CounterOf, o)
}

// openOwnVoice opens the bundle of the settings, which speaks, and returns the settings of a bot that uses it.
func openOwnVoice(ctx context.Context, cfg configs.Config, log zerolog.Logger) (*minicpmo.Engine, configs.Config, error) {
	path := cfg.Inference.MiniCPM.Path
	bundle, err := models.OpenBundle(path)
	if err != nil {
		return nil, cfg, err
	}
	onGPU := func(g models.Graph) bool { return g.Device == models.DeviceCUDA }
	if !slices.ContainsFunc(bundle.Manifest.Graphs, onGPU) {
		cfg.Inference.MiniCPM.Device = "cpu"
	}
	cfg.Inference.Voice.Program = inference.VoiceModel
	cfg.Inference.Voice.MaxTokens = min(cfg.Inference.Voice.MaxTokens, ownVoiceTokens)
	settings := minicpmo.Settings{Config: cfg.Inference.Config, MiniCPM: cfg.Inference.MiniCPM}
	model, err := minicpmo.Open(ctx, bundle, minicpmo.Options{Config: settings, Logger: log})
	if err != nil {
		return nil, cfg, err
	}
	if !model.Capabilities().Speech {
		return nil, cfg, errors.Join(fmt.Errorf("the model of %s does not speak: %w", path, inference.ErrNoVoice), model.Close())
	}
	return model, cfg, nil
}

// ownVoiceTokens is the longest answer. A model of random weights speaks 20 s for each piece of that many tokens, and has no
// room for a third one.
const ownVoiceTokens = 10

// longestComment is the longest time of a comment of a model, whose voice has 40 s for it.
const longestComment = 45 * time.Second

// alignmentOf watches a bot until it has made a number of comments, each within perComment.
func alignmentOf(
	ctx context.Context, comments int, perComment time.Duration, counterOf func(text string) (uint32, bool), o stage.Options,
) (alignmentResult, error) {
	var res alignmentResult
	s, v, err := watchedStage(ctx, o)
	if err != nil {
		return res, err
	}
	defer s.Close()
	_, err = stage.Until(ctx, time.Duration(comments+unsettled)*perComment, "the comments", func() bool {
		return len(s.Reader.Records()) >= comments+unsettled
	})
	err = errors.Join(err, stage.Wait(ctx, 300*time.Millisecond), s.Errors())
	seen := v.Seen()
	res.Records = s.Reader.Records()
	res.Sound = s.Bot.Sound()
	if len(res.Records) > unsettled {
		res.Comments = matchComments(res.Records[unsettled:], seen, counterOf)
		res.Words, res.Final, res.Unmatched, res.Unflagged = captionErrors(res.Comments, seen, s.WordTimes)
	}
	for i := unsettled; i < len(seen.Talks); i++ {
		res.Gaps = append(res.Gaps, seen.Talks[i].From.Sub(seen.Talks[i-1].To))
	}
	return res, err
}

// watchedStage returns a stage with a viewer.
func watchedStage(ctx context.Context, o stage.Options) (*stage.Stage, *stage.Viewer, error) {
	s, err := stage.New(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	v, _, err := s.AddViewer(false)
	if err != nil {
		s.Close()
		return nil, nil, err
	}
	return s, v, nil
}

// fixedDelay returns the default settings with a delay D of 2 s.
func fixedDelay() configs.Config {
	cfg := configs.Default()
	cfg.Pacing.FixedDelay = 2 * time.Second
	return cfg
}

// Rows returns the table. pauseOff is the permitted difference between silence and configured pause.
func (r alignmentResult) Rows(pauseOff time.Duration) []row {
	var ready, errs, differ []time.Duration
	dropped, late := 0, 0
	for _, rec := range r.Records[min(unsettled, len(r.Records)):] {
		switch rec.Outcome {
		case agent.OutcomeDropped:
			dropped++
		case agent.OutcomeSpoken:
			ready = append(ready, seconds(rec.ReadySec))
		}
		if rec.Late {
			late++
		}
	}
	for _, c := range r.Comments {
		errs = append(errs, c.Error.Abs())
		differ = append(differ, (c.Error - seconds(c.AlignmentError)).Abs())
	}
	var settled time.Duration
	if n := len(r.Comments); n > 0 {
		settled = seconds(r.Comments[n-1].Delay)
	}
	pause := configs.Default().Pacing.PauseAfter
	rows := append([]row{
		note("comments measured", fmt.Sprintf("%d of %d", len(r.Comments), len(r.Records)-unsettled)),
		note("alignment error p50", fmt.Sprintf("%.1f ms", ms(quantile.Of(errs, 0.5)))),
		atMost("alignment error p95", ms(quantile.Of(errs, 0.95)), 100, "ms"),
		note("alignment error max", fmt.Sprintf("%.1f ms", ms(quantile.Of(errs, 1)))),
		atMost("bot's own figure differs by at most", ms(quantile.Of(differ, 1)), 40, "ms"),
		atMost("settled D", settled.Seconds(), quantile.Of(ready, 0.95).Seconds()+0.5, "s"),
		atMost("dropped", 100*float64(dropped)/float64(max(len(r.Records)-unsettled, 1)), 1, "%"),
		note("late (over 100 ms)", strconv.Itoa(late)),
		note("silence between comments p50", fmt.Sprintf("%.0f ms", ms(quantile.Of(r.Gaps, 0.5)))),
		between("silence between comments p05", ms(quantile.Of(r.Gaps, 0.05)), ms(pause-pauseOff), ms(pause+pauseOff), "ms"),
		between("silence between comments p95", ms(quantile.Of(r.Gaps, 0.95)), ms(pause-pauseOff), ms(pause+pauseOff), "ms"),
	}, r.captionRows()...)
	if r.Sound != (sound.Stats{}) {
		rows = append(rows, note("camera's sound later than its picture (the bot's figure)", fmt.Sprintf(
			"%.1f ms, followed D %d times in silence, %d by a jump", ms(r.Sound.Offset), r.Sound.Moves, r.Sound.Jumps)))
	}
	return rows
}

func seconds(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }

// measureDelay sets D from 2 to 5 s and back and watches the relayed pictures.
func measureDelay(ctx context.Context, hold time.Duration, log zerolog.Logger) ([]row, error) {
	cfg := fixedDelay()
	s, v, err := watchedStage(ctx, stage.Options{Model: stage.NewEngine(1, time.Second, time.Second), Config: &cfg, Seed: 5, Log: log})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := stage.Wait(ctx, 6*time.Second); err != nil {
		return nil, err
	}
	from := time.Now()
	for _, d := range []float64{5, 2} {
		if _, err := s.Bot.Change(agent.Change{Settings: agent.Settings{FixedDelay: &d}}, "measurement"); err != nil {
			return nil, err
		}
		if err := stage.Wait(ctx, 35*time.Second+hold); err != nil {
			return nil, err
		}
		if got := s.Bot.Snapshot().Delay; got < d-0.05 || got > d+0.05 {
			return nil, fmt.Errorf("delay D is %g s after its change to %g s", got, d)
		}
	}
	var gap time.Duration
	back, n := 0, 0
	var last *stage.Picture
	seen := v.Seen()
	lost, sent := s.Lost(seen)
	for i := range seen.Pictures {
		p := &seen.Pictures[i]
		if p.At.Before(from) {
			continue
		}
		n++
		if !p.Read {
			continue
		}
		if last != nil {
			gap = max(gap, p.At.Sub(last.At))
			if p.PTS <= last.PTS || p.Counter <= last.Counter {
				back++
			}
		}
		last = p
	}
	return []row{
		note("pictures seen", strconv.Itoa(n)),
		atMost("longest gap between pictures, D 2 -> 5 -> 2 s", ms(gap), 100, "ms"),
		atMost("timestamps going back", float64(back), 0, ""),
		atMost(fmt.Sprintf("frames lost of %d that the camera sent", sent), float64(lost), 0, ""),
	}, s.Errors()
}

// measureRelay watches the delayed copy for a while: jitter, lost frames, and the first picture of late viewers.
func measureRelay(ctx context.Context, length time.Duration, crowd bool, log zerolog.Logger) ([]row, error) {
	cfg := fixedDelay()
	s, err := stage.New(ctx, stage.Options{Model: stage.NewEngine(1, time.Second, time.Second), Config: &cfg, Seed: 6, Crowd: crowd, Log: log})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := stage.Wait(ctx, 8*time.Second); err != nil { // without viewers: key frames every 4 s
		return nil, err
	}
	v, _, err := s.AddViewer(false)
	if err != nil {
		return nil, err
	}
	if err := seesPicture(ctx, v); err != nil {
		return nil, err
	}
	seen := v.Seen()
	first := seen.Pictures[0].At.Sub(seen.Joined)

	late, err := lateViewers(ctx, s, length)
	if err != nil {
		return nil, err
	}
	seen = v.Seen()
	lost, sent := s.Lost(seen)
	offsets := relayJitter(seen)
	return []row{
		note("pictures seen", fmt.Sprintf("%d in %v", len(seen.Pictures), length)),
		note("jitter of the relay p50", fmt.Sprintf("%.2f ms", ms(quantile.Of(offsets, 0.5)))),
		atMost("jitter of the relay p99", ms(quantile.Of(offsets, 0.99)), 5, "ms"),
		atMost(fmt.Sprintf("frames lost of %d that the camera sent", sent), float64(lost), 0, ""),
		atMost("packets lost", float64(seen.Lost), 0, ""),
		atMost("first viewer after none sees a picture after", first.Seconds(), 2+1.5, "s"),
		atMost("late viewer sees a picture after, worst of "+strconv.Itoa(len(late)), slices.Max(late).Seconds(), 1.5, "s"),
	}, s.Errors()
}

// seesPicture waits for a viewer's first picture.
func seesPicture(ctx context.Context, v *stage.Viewer) error {
	_, err := stage.Until(ctx, 30*time.Second, "a viewer's picture", func() bool { return len(v.Seen().Pictures) > 0 })
	return err
}

// lateViewers lets five viewers join one after the other, and returns the times to their first pictures.
func lateViewers(ctx context.Context, s *stage.Stage, length time.Duration) ([]time.Duration, error) {
	var late []time.Duration
	end := time.Now().Add(length)
	for i := 0; i == 0 || time.Now().Before(end); i++ {
		if err := stage.Wait(ctx, min(length/6+time.Duration(i)*137*time.Millisecond, max(time.Until(end), time.Second))); err != nil {
			return nil, err
		}
		if len(late) == 5 {
			continue
		}
		lv, leave, err := s.AddViewer(true)
		if err != nil {
			return nil, err
		}
		if err := seesPicture(ctx, lv); err != nil {
			return nil, err
		}
		ls := lv.Seen()
		late = append(late, ls.Pictures[0].At.Sub(ls.Joined))
		leave()
	}
	return late, nil
}

// relayJitter returns how far the arrival of each picture is from its timestamp, around the median.
func relayJitter(seen stage.Seen) []time.Duration {
	offsets := make([]time.Duration, 0, len(seen.Pictures))
	for _, p := range seen.Pictures {
		offsets = append(offsets, p.At.Sub(seen.Pictures[0].At)-(p.PTS-seen.Pictures[0].PTS))
	}
	median := quantile.Of(offsets, 0.5)
	for i := range offsets {
		offsets[i] = (offsets[i] - median).Abs()
	}
	return offsets
}

// measureInstruction changes the instruction while the bot is idle, thinking, waiting for its frame and speaking, and
// measures the time to the next cycle and to silence.
func measureInstruction(ctx context.Context, log zerolog.Logger) ([]row, error) {
	var rows []row
	for _, state := range []string{"idle", "thinking", "waiting for its frame", "mid-speech"} {
		latency := 700 * time.Millisecond
		if state == "thinking" {
			latency = 2500 * time.Millisecond
		}
		more, err := instructionWhile(ctx, state, latency, log)
		rows = append(rows, more...)
		if err != nil {
			return rows, fmt.Errorf("while %s: %w", state, err)
		}
	}
	return rows, nil
}

// instructionWhile changes the instruction in one state of the bot.
func instructionWhile(ctx context.Context, state string, latency time.Duration, log zerolog.Logger) (rows []row, err error) {
	const frame = time.Second / 30
	engine := stage.NewEngine(1, latency, latency)
	cfg := configs.Default()
	cfg.Agent.AutoStart = state != "idle"
	cfg.Pacing.FixedDelay = 3500 * time.Millisecond
	s, v, err := watchedStage(ctx, stage.Options{Model: engine, Config: &cfg, Seed: 8, Log: log})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	ready := func() bool {
		st := s.Bot.Status()
		switch state {
		case "idle":
			return s.Bot.Snapshot().FramesBuffered > 3 // enough for a cycle
		case "thinking":
			return len(engine.Looks()) == 1 && st.State == agent.StateThinking
		case "waiting for its frame":
			return len(engine.Looks()) == 1 && time.Since(engine.Looks()[0].At) > latency+500*time.Millisecond
		}
		return st.State == agent.StateSpeaking
	}
	if _, err := stage.Until(ctx, 30*time.Second, state, ready); err != nil {
		return nil, err
	}
	if err := stage.Wait(ctx, 700*time.Millisecond); err != nil {
		return nil, err
	}
	before := len(engine.Looks())
	sent := time.Now()
	if _, err := s.Bot.Change(agent.Change{Instruction: new("only the goalkeeper")}, "measurement"); err != nil {
		return nil, err
	}
	if _, err := stage.Until(ctx, 5*time.Second, "the next cycle", func() bool { return len(engine.Looks()) > before }); err != nil {
		return nil, err
	}
	look := engine.Looks()[before]
	rows = append(rows, atMost("new instruction while "+state+": next cycle after",
		ms(look.At.Sub(sent)), ms(frame+50*time.Millisecond), "ms"))
	if state == "mid-speech" {
		if err := stage.Wait(ctx, 1500*time.Millisecond); err != nil {
			return nil, err
		}
		for _, talk := range v.Seen().Talks {
			if talk.From.Before(sent) {
				rows = append(rows, atMost("old speech silent after", max(ms(talk.To.Sub(sent)), 0), 100, "ms"))
			}
		}
	}
	return rows, s.Errors()
}
