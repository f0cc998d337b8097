package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"touchline/agent"
	"touchline/agent/settings"
	"touchline/cmd/internal/bench"
	"touchline/configs"
	"touchline/inference"
	"touchline/inference/voice"
	"touchline/internal/e2e/stage"
	"touchline/internal/quantile"
	"touchline/internal/resample"
	"touchline/internal/ticks"
)

const (
	// speakers speak at once; of allSpeakers more unmute than the bot recognizes.
	speakers, allSpeakers = 12, 100
	// finalMost bounds the time from the end of speech to its text: the pause of 500 ms that ends an utterance, and 150 ms. firstMost
	// bounds the time from the first word to the first text; interim texts come every 500 ms.
	finalMost, firstMost = 650, 900
	// unhurt bounds the alignment error that speech recognition adds, ms.
	unhurt = 5
	// hearingTime is how long the scripted recognizer takes for each text.
	hearingTime = 20 * time.Millisecond
	// settled is the time from the last join to the measurement.
	settled = 5 * time.Second
	// unmuteEvery spaces the moments when all unmute; comments have another period.
	unmuteEvery = 3500 * time.Millisecond
	// quietBelow is the largest amplitude of silence.
	quietBelow = 300
)

// hearing measures the texts of people who speak at once, with a recognizer that takes a fixed time, and what they cost the
// commentary.
func hearing(r *run) {
	length := r.flags.Cost
	quiet := hear(r, crowd{Length: length})
	some := hear(r, crowd{People: speakers, Length: length})
	r.Note(fmt.Sprintf("utterances of %d speakers, with a text", speakers), "%d, %d", some.spoken, len(some.finals))
	r.AtMost("end of speech to its text, p95", bench.MS(quantile.Of(some.finals, 0.95)), finalMost, "ms")
	r.Note("the same, median", "%s", bench.Number(bench.MS(quantile.Of(some.finals, 0.5)), "ms"))
	r.AtMost("first word to the first text, p95", bench.MS(quantile.Of(some.firsts, 0.95)), firstMost, "ms")
	r.Note("alignment p95 without speakers", "%s", bench.Number(quiet.alignment, "ms"))
	more := func(what string, h hearings) { r.AtMost(what, h.alignment-quiet.alignment, unhurt, "ms") }
	more(fmt.Sprintf("alignment p95, more with %d speakers", speakers), some)
	flooded := hear(r, crowd{People: speakers, Flood: true, Length: length})
	more(fmt.Sprintf("alignment p95, more with %d speakers and a microphone that floods", speakers), flooded)
	r.Note("packets of the flood that were dropped", "%d", flooded.flood)
	busy := hear(r, crowd{People: allSpeakers, Unmute: true, Length: length})
	more(fmt.Sprintf("alignment p95, more when %d unmute at once every %v", allSpeakers, unmuteEvery), busy)
	r.Note(fmt.Sprintf("texts of %d who speak at once, of whom %d are heard", allSpeakers, speakers), "%d", len(busy.finals))
}

// hearings are the results of one run.
type hearings struct {
	alignment      float64 // p95 of the comments, ms
	spoken         int
	flood          uint64 // packets dropped
	finals, firsts []time.Duration
}

// crowd describes the speakers of a room.
type crowd struct {
	People int           `json:"people"`
	Unmute bool          `json:"unmute"` // they unmute at once, for each sentence, instead of being unmuted
	Flood  bool          `json:"flood"`  // another microphone floods the room with packets
	Length time.Duration `json:"length"`
}

// hear returns the times of the texts in a room where people speak. The server and the people have processes of their own.
func hear(r *run, c crowd) (out hearings) {
	r.Part(func() {
		_, at := startRole(r, roleServer, location{Crowd: c})
		cfg := configs.Default()
		cfg.Agent.Hearing.Mode, cfg.Agent.Hearing.BargeIn = settings.HearingCaptions, settings.BargeInTalk
		texts := &transcripts{}
		s := r.stage(stage.Options{
			Config: &cfg, Model: stage.NewEngine(5, 400*time.Millisecond, time.Second), Recognizer: counter{}, Seed: 5,
			Texts: []agent.TextOutput{texts}, At: at.URL, Keys: at.keys(),
		})
		people, _ := startRole(r, rolePeople, at)
		r.Wait(settled)
		from := time.Now()
		var said map[string][]utterance
		if err := people.says.Decode(&said); err != nil {
			r.Check(fmt.Errorf("read the utterances: %w", err))
		}
		out.flood = s.Bot.Room.SoundLost()
		for name, list := range said {
			out.spoken += len(list)
			texts.match(name, list, &out)
		}
		var errs []time.Duration
		r.until(time.Minute, "a comment", func() bool {
			errs = nil
			for _, rec := range s.Reader.Records() {
				if rec.Aligned && rec.StartedAt.After(from) {
					errs = append(errs, seconds(rec.AlignmentError).Abs())
				}
			}
			return len(errs) > 0
		})
		out.alignment = bench.MS(quantile.Of(errs, 0.95))
	})
	return out
}

// playCrowd joins the speakers to the room of the stage, writes the location, lets them speak, and writes their utterances.
func playCrowd(ctx context.Context, s *stage.Stage, at location, write func(any) error) error {
	c := at.Crowd
	pcm, err := speechOf(ctx, "They look for the number nine on the far side.", s.Log)
	if err != nil {
		return err
	}
	var voices []*stage.Speaker
	for i := range c.People {
		p, leave, err := s.AddSpeaker(ctx, fmt.Sprintf("speaker-%d", i), nil)
		if err != nil {
			return err
		}
		defer leave()
		if c.Unmute {
			p.Mute(true)
		}
		voices = append(voices, p)
	}
	if c.Flood {
		p, leave, err := s.AddSpeaker(ctx, "flood", nil)
		if err != nil {
			return err
		}
		defer leave()
		s.Run(func(ctx context.Context) error {
			_ = p.Flood(ctx, make([]byte, 60)) // until the stage is closed
			return nil
		})
	}
	if err := write(at); err != nil {
		return fmt.Errorf("write the location: %w", err)
	}
	// Joining costs more than speaking.
	if err := stage.Wait(ctx, settled); err != nil {
		return err
	}
	said, err := talk(ctx, voices, pcm, c)
	if err != nil {
		return err
	}
	if err := write(said); err != nil {
		return fmt.Errorf("write the utterances: %w", err)
	}
	<-ctx.Done()
	return nil
}

// talk lets all speakers speak, with pauses, and returns their utterances by identity.
func talk(ctx context.Context, voices []*stage.Speaker, pcm []int16, c crowd) (map[string][]utterance, error) {
	var mu sync.Mutex
	said := map[string][]utterance{}
	packets, err := stage.Opus(pcm)
	if err != nil {
		return nil, err
	}
	first, last := audible(pcm)
	from := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return stage.Wait(ctx, c.Length) })
	for i, p := range voices {
		g.Go(func() error {
			for n := 1; time.Since(from) < c.Length; n++ {
				if c.Unmute {
					p.Mute(false)
				}
				begin := time.Now()
				if err := p.Say(ctx, packets); err != nil {
					return err
				}
				mu.Lock()
				said[p.Identity] = append(said[p.Identity], utterance{From: begin.Add(first), To: begin.Add(last)})
				mu.Unlock()
				pause := 1200*time.Millisecond + time.Duration((i+n)%7)*170*time.Millisecond
				if c.Unmute {
					p.Mute(true)
					pause = time.Until(from.Add(time.Duration(n) * unmuteEvery))
				}
				if err := stage.Wait(ctx, pause); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return said, g.Wait()
}

// utterance is the time of one utterance of a speaker.
type utterance struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// transcripts keeps the texts of people's speech with their times.
type transcripts struct {
	stage.Reader

	mu    sync.Mutex
	heard []agent.Heard
	at    []time.Time
}

// Heard implements agent.HeardOutput.
func (t *transcripts) Heard(h agent.Heard) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heard, t.at = append(t.heard, h), append(t.at, time.Now())
}

// match adds the delays of a speaker's texts: the first interim and the last final text of each utterance.
func (t *transcripts) match(name string, said []utterance, out *hearings) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, u := range said {
		next := time.Now()
		if i+1 < len(said) {
			next = said[i+1].From
		}
		var first, final time.Time
		for j, h := range t.heard {
			if at := t.at[j]; h.Identity == name && at.After(u.From) && at.Before(next) {
				if !h.Final && first.IsZero() {
					first = at
				}
				if h.Final {
					final = at
				}
			}
		}
		if !first.IsZero() {
			out.firsts = append(out.firsts, first.Sub(u.From))
		}
		if !final.IsZero() {
			out.finals = append(out.finals, final.Sub(u.To))
		}
	}
}

// speechOf returns a spoken sentence at 48 kHz, with silence around it.
func speechOf(ctx context.Context, text string, log zerolog.Logger) ([]int16, error) {
	synth, err := voice.New(inference.VoiceConfig{Program: "flite", Name: "slt", Language: "en"}, log)
	if err != nil {
		return nil, err
	}
	speech, err := synth.Say(ctx, text, "en")
	if err != nil {
		return nil, err
	}
	return resample.All(speech.Audio, speech.Rate, 48000)
}

// audible returns the times of the first and the last sample of speech.
func audible(pcm []int16) (from, to time.Duration) {
	loud := func(v int16) bool { return v > quietBelow || v < -quietBelow }
	last := len(pcm) - 1
	for last > 0 && !loud(pcm[last]) {
		last--
	}
	return ticks.Duration(int64(max(slices.IndexFunc(pcm, loud), 0)), 48000), ticks.Duration(int64(last), 48000)
}

// counter is a recognizer that hears a word in each third of a second. It recognizes live speech only.
type counter struct{ inference.Recognizer }

func (counter) Recognizes() inference.Recognizes {
	return inference.Recognizes{Model: "counter", Partials: true}
}
func (counter) Status() inference.Status { return inference.Status{Phase: inference.PhaseReady} }
func (counter) Close() error             { return nil }

func (counter) Listen(context.Context, inference.Hearing) (inference.Utterance, error) {
	return &word{}, nil
}

type word struct{ samples int }

func (u *word) Hear(ctx context.Context, sound []float32) (inference.Transcript, error) {
	u.samples += len(sound)
	words := strings.TrimSpace(strings.Repeat("word ", max(1, 3*u.samples/inference.RecognizerRate)))
	return inference.Transcript{Text: words, Language: "en"}, stage.Wait(ctx, hearingTime)
}

func (u *word) Finish(ctx context.Context, sound []float32) (inference.Transcript, error) {
	t, err := u.Hear(ctx, sound)
	t.Final = true
	return t, err
}
func (*word) Close() error { return nil }
