package main

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"touchline/agent"
	"touchline/configs"
	"touchline/inference"
	"touchline/inference/voice"
	"touchline/internal/e2e/stage"
	"touchline/internal/quantile"
	"touchline/internal/resample"
	"touchline/media"
)

const (
	// speakers speak at once; everybody is in a room where more unmute than are heard.
	speakers, everybody = 12, 100
	// finalMost bounds the time from the end of speech to its text: the pause of 500 ms that ends an utterance, and 150 ms. firstMost
	// bounds that from the first word to the first text, made every 500 ms.
	finalMost, firstMost = 650, 900
	// unhurt bounds what hearing people costs the alignment, ms.
	unhurt = 5
	// hearingTime is how long the scripted recognizer takes for each text.
	hearingTime = 20 * time.Millisecond
	// settled is the time from the last join to the measurement.
	settled = 5 * time.Second
	// unmuteEvery spaces the moments when all unmute; comments have another period.
	unmuteEvery = 3500 * time.Millisecond
	// quietBelow is the amplitude below which nobody speaks.
	quietBelow = 300
)

// measureHearing measures the texts of people who speak at once, with a recognizer that takes a fixed time, and what they cost the
// commentary.
func measureHearing(ctx context.Context, roles roleRunner, length time.Duration, log zerolog.Logger) ([]row, error) {
	alone, quiet, err := hear(ctx, roles, crowd{Length: length}, log)
	if err != nil {
		return nil, err
	}
	some, heard, err := hear(ctx, roles, crowd{People: speakers, Length: length}, log)
	if err != nil {
		return nil, err
	}
	rows := []row{
		note(fmt.Sprintf("utterances of %d speakers, with a text", speakers), fmt.Sprintf("%d, %d", heard.spoken, len(heard.finals))),
		atMost("end of speech to its text, p95", ms(quantile.Of(heard.finals, 0.95)), finalMost, "ms"),
		note("the same, median", number(ms(quantile.Of(heard.finals, 0.5)), "ms")),
		atMost("first word to the first text, p95", ms(quantile.Of(heard.firsts, 0.95)), firstMost, "ms"),
		note("alignment p95 without speakers", number(alone, "ms")),
		atMost(fmt.Sprintf("alignment p95, more with %d speakers", speakers), some-alone, unhurt, "ms"),
	}
	flooded, heard, err := hear(ctx, roles, crowd{People: speakers, Flood: true, Length: length}, log)
	if err != nil {
		return rows, err
	}
	rows = append(rows,
		atMost(fmt.Sprintf("alignment p95, more with %d speakers and a microphone that floods", speakers), flooded-alone, unhurt, "ms"),
		note("packets of the flood that were dropped", strconv.FormatUint(heard.flood, 10)))
	all, heard, err := hear(ctx, roles, crowd{People: everybody, Length: length}, log)
	if err != nil {
		return rows, err
	}
	unmuted, busy, err := hear(ctx, roles, crowd{People: everybody, Unmute: true, Length: length}, log)
	if err != nil {
		return rows, err
	}
	return append(rows,
		atMost(fmt.Sprintf("alignment p95, more when %d begin to speak at once", everybody), all-alone, unhurt, "ms"),
		atMost(fmt.Sprintf("the same, who unmute at once every %v", unmuteEvery), unmuted-alone, unhurt, "ms"),
		note("the voice behind its sound at the end of a comment, at most: without them, with them",
			fmt.Sprintf("%.0f ms, %.0f ms", ms(quiet.behind), ms(busy.behind))),
		note(fmt.Sprintf("texts of %d who speak at once, of whom %d are heard", everybody, speakers), strconv.Itoa(len(heard.finals)))), nil
}

// hearings are the times of what was heard.
type hearings struct {
	spoken         int
	flood          uint64 // packets dropped
	finals, firsts []time.Duration
	// behind is how late a comment's voice ended by the length of its sound, at most. A busy machine delays it, and the next comment as much.
	behind time.Duration
}

// crowd is who speaks in a room, and for how long.
type crowd struct {
	People int           `json:"people"`
	Unmute bool          `json:"unmute"` // all at once, for each sentence; else they are unmuted
	Flood  bool          `json:"flood"`  // beside them a microphone floods
	Length time.Duration `json:"length"`
}

// hear returns the p95 of the alignment in ms, and the times of the texts, in a room where people speak. The server and the people
// have processes of their own.
func hear(ctx context.Context, roles roleRunner, c crowd, log zerolog.Logger) (float64, hearings, error) {
	var out hearings
	server, at, err := startRole(ctx, roles, roleServer, location{Crowd: c})
	if err != nil {
		return 0, out, err
	}
	defer server.stop()
	cfg := configs.Default()
	cfg.Agent.Hearing.Mode, cfg.Agent.Hearing.Manners = agent.HearingCaptions, agent.MannersTalk
	texts := &heardTexts{}
	s, err := stage.New(ctx, stage.Options{
		Config: &cfg, Model: stage.NewEngine(5, 400*time.Millisecond, time.Second), Recognizer: counter{}, Seed: 5,
		Texts: []agent.TextOutput{texts}, At: at.URL, Keys: at.keys(), Log: log,
	})
	if err != nil {
		return 0, out, err
	}
	defer s.Close()
	people, _, err := startRole(ctx, roles, rolePeople, at)
	if err != nil {
		return 0, out, err
	}
	defer people.stop()
	if err := stage.Wait(ctx, settled); err != nil {
		return 0, out, err
	}
	from := time.Now()
	var said map[string][]spoke
	if err := people.says.Decode(&said); err != nil {
		return 0, out, fmt.Errorf("read what was said: %w", err)
	}
	out.flood = s.Bot.Room.SoundLost()
	for name, list := range said {
		out.spoken += len(list)
		texts.match(name, list, &out)
	}
	var errors []time.Duration
	for _, r := range s.Reader.Records() {
		if r.Aligned && r.StartedAt.After(from) {
			errors = append(errors, time.Duration(r.AlignmentError*float64(time.Second)).Abs())
			out.behind = max(out.behind, r.EndedAt.Sub(r.StartedAt)-time.Duration(r.AudioSec*float64(time.Second)))
		}
	}
	if len(errors) == 0 {
		return 0, out, fmt.Errorf("expected comments, got %d", len(errors))
	}
	return ms(quantile.Of(errors, 0.95)), out, s.Errors()
}

// playCrowd joins a crowd to the room of the stage, lets it speak, and writes the location when all are there, and then what was said.
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
		stop, err := flood(ctx, s)
		if err != nil {
			return err
		}
		defer stop()
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
		return fmt.Errorf("write what was said: %w", err)
	}
	<-ctx.Done()
	return nil
}

// flood adds a microphone that floods until stop is called.
func flood(ctx context.Context, s *stage.Stage) (stop func(), err error) {
	p, leave, err := s.AddSpeaker(ctx, "flood", nil)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = p.Flood(ctx, make([]byte, 60)) // until it is stopped
	}()
	return func() { cancel(); <-ended; leave() }, nil
}

// talk lets everybody speak, with pauses.
func talk(ctx context.Context, voices []*stage.Speaker, pcm []int16, c crowd) (map[string][]spoke, error) {
	var mu sync.Mutex
	said := map[string][]spoke{}
	packets, err := stage.Opus(pcm)
	if err != nil {
		return nil, err
	}
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
				said[p.Identity] = append(said[p.Identity], spoke{From: begin.Add(firstLoud(pcm)), To: begin.Add(lastLoud(pcm))})
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

// spoke is when somebody spoke.
type spoke struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// heardTexts keeps what was heard, and when.
type heardTexts struct {
	mu    sync.Mutex
	heard []agent.Heard
	at    []time.Time
}

func (*heardTexts) Caption(agent.Caption) {}
func (*heardTexts) Record(agent.Record)   {}
func (*heardTexts) State(agent.Status)    {}

// Heard implements agent.HeardOutput.
func (t *heardTexts) Heard(h agent.Heard) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heard, t.at = append(t.heard, h), append(t.at, time.Now())
}

// match adds the times of the texts of a speaker: the last final, and the first interim, of each time it spoke.
func (t *heardTexts) match(name string, said []spoke, out *hearings) {
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

// speechOf returns a spoken sentence at 48 kHz.
func speechOf(ctx context.Context, text string, log zerolog.Logger) ([]int16, error) {
	synth, err := voice.New(inference.VoiceConfig{Program: "flite", Language: "en"}, log)
	if err != nil {
		return nil, err
	}
	var pcm []int16
	rate := 0
	for c, err := range synth.Speak(ctx, text, "flite:slt", "en") {
		if err != nil {
			return nil, err
		}
		if len(c.Audio) > 0 {
			rate = c.AudioRate
			pcm = append(pcm, c.Audio...)
		}
	}
	return resample.All(pcm, rate, 48000)
}

// firstLoud and lastLoud are the times of the first and the last sample of speech.
func firstLoud(pcm []int16) time.Duration {
	for i, v := range pcm {
		if v > quietBelow || v < -quietBelow {
			return media.TicksToDuration(int64(i), 48000)
		}
	}
	return 0
}

func lastLoud(pcm []int16) time.Duration {
	for i := len(pcm) - 1; i >= 0; i-- {
		if pcm[i] > quietBelow || pcm[i] < -quietBelow {
			return media.TicksToDuration(int64(i), 48000)
		}
	}
	return 0
}

// counter is a recognizer that hears a word in each third of a second.
type counter struct{}

func (counter) Recognizes() inference.Recognizes {
	return inference.Recognizes{Model: "counter", Partials: true}
}
func (counter) Status() inference.Status { return inference.Status{Phase: inference.PhaseReady} }
func (counter) Close() error             { return nil }

func (counter) Transcribe(context.Context, []float32, inference.Hearing) iter.Seq2[inference.Transcript, error] {
	return func(func(inference.Transcript, error) bool) {}
}

func (counter) Align(context.Context, []float32, string, string) ([]inference.Word, error) {
	return nil, inference.ErrNoWordTimes
}

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
