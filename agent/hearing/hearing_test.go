package hearing_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pion/rtp"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	opus "gopkg.in/hraban/opus.v2"

	"touchline/agent"
	"touchline/agent/command"
	"touchline/agent/hearing"
	"touchline/agent/settings"
	"touchline/agent/speech"
	"touchline/inference"
	"touchline/inference/live/livetest"
	"touchline/inference/vad"
	"touchline/internal/rescue"
	"touchline/media/sound"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// commentator takes what is said to it.
type commentator struct {
	agent.Steerer

	mu         sync.Mutex
	cfg        settings.Hearing
	can        bool
	language   *string
	refuses    error
	delay      float64
	heard      []agent.Heard
	heardAt    []time.Time
	orders     []string
	said       []string
	saidIn     []string      // languages
	blocked    chan struct{} // Hear waits for its end; nil for none
	floor      []time.Time   // when it was taken, given back, and so on
	floors     []speech.Floor
	firstFloor time.Time
}

func (c *commentator) Hearing() settings.Hearing {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cfg
}

func (c *commentator) Hear(h agent.Heard) {
	c.mu.Lock()
	blocked := c.blocked
	c.mu.Unlock()
	if blocked != nil {
		<-blocked
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard, c.heardAt = append(c.heard, h), append(c.heardAt, time.Now())
}

func (c *commentator) Floor(f speech.Floor, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.floors) == 0 {
		c.firstFloor = now
	}
	c.floors = append(c.floors, f)
	if taken := len(c.floor)%2 == 1; taken != (f == speech.FloorTaken) {
		c.floor = append(c.floor, now)
	}
}

func (c *commentator) Snapshot() agent.Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return agent.Snapshot{
		Delay: c.delay, Capabilities: agent.Capabilities{Instructions: c.can}, Settings: settings.Settings{Language: c.language},
	}
}

func (c *commentator) Change(v command.Change, by string) (settings.Settings, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuses != nil {
		return settings.Settings{}, c.refuses
	}
	c.orders = append(c.orders, by+": "+*v.Instruction)
	return settings.Settings{}, nil
}

func (c *commentator) Command(v command.Command, by string) (command.Done, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.orders = append(c.orders, by+": "+string(v))
	return command.Done{Command: v, Effect: "Done."}, nil
}

func (c *commentator) Say(a speech.Notice, _ string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said, c.saidIn = append(c.said, a.Text), append(c.saidIn, a.Language)
	return nil
}

// finals returns the texts that are final, each with its speaker.
func (c *commentator) finals() (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.heard {
		if h.Final {
			out = append(out, h.Identity+": "+h.Text)
		}
	}
	return out
}

// texts returns what was shown, also of speech without its final text.
func (c *commentator) texts() (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.heard {
		if h.Text != "" {
			out = append(out, h.Text)
		}
	}
	return out
}

// script is a recognizer that hears the next of its texts in each utterance.
type script struct {
	inference.Recognizer

	mu    sync.Mutex
	texts []string
	asked []inference.Hearing
	only  bool
	held  int // under the lock of the Ears
	// finish ends the wait of texts; nil for none.
	finish chan struct{}
}

func (s *script) Hold() func() {
	s.held++
	return func() { s.held-- }
}

func (s *script) Recognizes() inference.Recognizes {
	return inference.Recognizes{Model: "script", Partials: true, OrdersOnly: s.only}
}

// CheckWakeWords knows one word without a sound.
func (*script) CheckWakeWords(list []string) error {
	if slices.Contains(list, "xyzzy") {
		return errors.New("xyzzy has no sound")
	}
	return nil
}

func (s *script) Transcribe(context.Context, []float32, inference.Hearing) iter.Seq2[inference.Transcript, error] {
	return func(yield func(inference.Transcript, error) bool) {
		yield(inference.Transcript{}, errors.ErrUnsupported)
	}
}

func (s *script) Listen(_ context.Context, h inference.Hearing) (inference.Utterance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, h)
	text := "and what else?"
	if len(s.texts) > 0 {
		text, s.texts = s.texts[0], s.texts[1:]
	}
	return &scripted{text: text, finish: s.finish}, nil
}

type scripted struct {
	text   string
	n      int
	finish chan struct{}
}

func (u *scripted) Hear(context.Context, []float32) (inference.Transcript, error) {
	u.n = min(u.n+4, len(u.text))
	return inference.Transcript{Text: u.text[:u.n]}, nil
}

func (u *scripted) Finish(context.Context, []float32) (inference.Transcript, error) {
	if u.finish != nil {
		<-u.finish
	}
	return inference.Transcript{Text: u.text, Final: true, Language: "en"}, nil
}
func (*scripted) Close() error { return nil }

// stage has Ears, a commentator and a recognizer.
type stage struct {
	t    *testing.T
	ears *hearing.Ears
	bot  *commentator
	asr  *script
	mics []agent.Microphone
	log  bytes.Buffer
	// detector opens speech detectors; nil opens ones that work.
	detector func() (vad.Detector, error)
	// end ends Run, and waits for it.
	end func()
}

// newStage returns a stage whose Ears run until its end.
func newStage(t *testing.T, cfg settings.Hearing, r inference.Recognizer) *stage {
	t.Helper()
	s := &stage{t: t, bot: &commentator{cfg: cfg, can: true}}
	s.ears = hearing.New(hearing.Options{
		Recognizer: r, Detector: func() (vad.Detector, error) {
			if s.detector != nil {
				return s.detector()
			}
			return livetest.Detector{}, nil
		},
		Log: zerolog.New(zerolog.SyncWriter(&s.log)),
	})
	s.ears.Attach(s.bot)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.ears.Run(ctx) }()
	s.end = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return s
}

// play runs f in a bubble with a stage, and ends the Ears afterwards.
func play(t *testing.T, mode string, texts []string, f func(s *stage)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := settings.DefaultHearing()
		cfg.Mode = mode
		asr := &script{texts: texts}
		s := newStage(t, cfg, asr)
		s.asr = asr
		f(s)
		s.end()
		require.Zero(t, s.asr.held, "the recognizer is free again")
	})
}

// join opens the microphone of a person, who may instruct, if it is chosen.
func (s *stage) join(identity string, change func(*agent.Microphone)) *person {
	m := agent.Microphone{Identity: identity, Name: "Ms " + identity, Track: "TR_" + identity, Instructs: true}
	if change != nil {
		change(&m)
	}
	s.mics = append(s.mics, m)
	p := &person{stage: s, stream: 1, at: len(s.mics) - 1}
	if slices.Contains(s.choose(), m.Track) {
		var err error
		p.sink, err = s.ears.Open(m)
		require.NoError(s.t, err)
		s.choose()
	}
	return p
}

func (s *stage) choose() []string { return s.ears.Choose(s.mics, time.Now()) }

// person speaks into a microphone.
type person struct {
	*stage
	sink   *hearing.Sink // nil if the microphone was not chosen
	stream uint32
	media  int64
	at     int // of its microphone in the stage
}

// speak is loud for a time, quiet makes no packets, as a sender does that is silent.
func (p *person) speak(d time.Duration) {
	for range d / (20 * time.Millisecond) {
		pcm := slices.Repeat([]int16{1000}, 320)
		p.sink.Push(sound.Piece{Stream: p.stream, Media: p.media, Arrival: time.Now(), PCM: pcm})
		p.media += 960
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
	}
}

func (p *person) quiet(d time.Duration) {
	p.media += 48 * d.Milliseconds()
	time.Sleep(d)
	synctest.Wait()
}

func TestCaptionsOfSpeakers(t *testing.T) {
	play(t, settings.HearingCaptions, []string{"a fine day for it", "hey touchline, stop"}, func(s *stage) {
		anna := s.join("anna", nil)
		ben := s.join("ben", func(m *agent.Microphone) { m.Instructs = false })
		began := time.Now()
		anna.speak(2 * time.Second)
		anna.quiet(time.Second)
		ben.speak(time.Second)
		ben.quiet(time.Second)
		require.Equal(t, []string{"anna: a fine day for it", "ben: hey touchline, stop"}, s.bot.finals())
		require.Empty(t, s.bot.orders, "captions alone")
		var interims int
		for i, h := range s.bot.heard {
			require.True(t, h.Caption)
			require.Equal(t, "TR_"+h.Identity, h.Track)
			require.Equal(t, "Ms "+h.Identity, h.Name)
			if h.Final {
				require.Equal(t, "en", h.Language)
				continue
			}
			interims++
			require.Equal(t, s.bot.heard[i+1].Segment, h.Segment)
		}
		require.GreaterOrEqual(t, interims, 4)
		final := s.bot.heard[slices.IndexFunc(s.bot.heard, func(h agent.Heard) bool { return h.Final })]
		require.InDelta(t, 0, final.Began.Sub(began).Seconds(), 0.05)
		require.InDelta(t, 2, final.Ended.Sub(began).Seconds(), 0.05)
		stats := s.ears.Stats()
		require.Less(t, stats.Lag95, 600*time.Millisecond)
		stats.Lag95 = 0
		require.Equal(t, hearing.Stats{Microphones: 2, Speakers: 2, Utterances: 2}, stats)
	})
}

func TestWakeWords(t *testing.T) {
	play(t, settings.HearingOrders, []string{
		"hey touchline, only the cards", "hey touchline", "only the cards",
		"nice pass", "Hey Touchline, only tell me about the goals.", "Hey Touchline!", "count the shots", "count the cards", "hey touchline stop",
	}, func(s *stage) {
		anna, ben := s.join("anna", nil), s.join("ben", stranger)
		for range 3 {
			ben.speak(time.Second)
			ben.quiet(time.Second)
		}
		require.Equal(t, 3, s.ears.Remembered())
		require.Empty(t, s.bot.orders)
		require.Empty(t, s.bot.heard, "who may not instruct is heard for comparison only")
		for range 4 {
			anna.speak(time.Second)
			anna.quiet(time.Second)
		}
		anna.quiet(8 * time.Second)
		for range 2 {
			anna.speak(time.Second)
			anna.quiet(time.Second)
		}
		require.Equal(t, []string{
			"room: anna: only tell me about the goals", "room: anna: count the shots", "room: anna: stop",
		}, s.bot.orders)
		require.Equal(t, []string{"Okay: only tell me about the goals", "Okay: count the shots"}, s.bot.said)
		require.Equal(t, []string{
			"anna: Hey Touchline, only tell me about the goals.", "anna: count the shots", "anna: hey touchline stop",
		}, s.bot.finals(), "what is no order is nobody's business")
		require.Equal(t, command.Stop, s.bot.heard[2].Order.Command)
		var addressed []bool
		for i, h := range s.asr.asked {
			addressed = append(addressed, h.Addressed)
			require.Equal(t, i >= 3, h.First, "who may instruct goes first")
			require.Equal(t, []string{"hey touchline"}, h.WakeWords)
		}
		require.Equal(t, []bool{false, false, false, false, false, false, true, false, false}, addressed)
		anna.quiet(2 * time.Minute)
		s.choose()
		require.Zero(t, s.ears.Remembered())
	})
}

// TestPushToTalk: one order, whatever pauses it has, and at once when the button is released.
func TestPushToTalk(t *testing.T) {
	play(t, settings.HearingOrders, []string{"tell me about the keeper", "and then"}, func(s *stage) {
		anna := s.join("anna", nil)
		require.NoError(t, s.ears.Talk("anna", true))
		anna.speak(time.Second)
		anna.quiet(900 * time.Millisecond)
		anna.speak(time.Second)
		require.Empty(t, s.bot.orders)
		require.NoError(t, s.ears.Talk("anna", false))
		anna.quiet(300 * time.Millisecond)
		require.Equal(t, []string{"room: anna: tell me about the keeper"}, s.bot.orders)
		require.True(t, s.asr.asked[0].Addressed)
		anna.speak(time.Second)
		anna.quiet(time.Second)
		require.Len(t, s.bot.orders, 1)
		require.Error(t, s.ears.Talk("anna", false))
		s.bot.mu.Lock()
		s.bot.cfg.Mode = settings.HearingCaptions
		s.bot.mu.Unlock()
		require.ErrorContains(t, s.ears.Talk("anna", true), "set hearing to orders or all")
	})
}

// TestSpeaksAlready: the button was pressed after the first word.
func TestSpeaksAlready(t *testing.T) {
	play(t, settings.HearingOrders, []string{"tell me about the keeper"}, func(s *stage) {
		anna := s.join("anna", nil)
		anna.speak(300 * time.Millisecond)
		require.NoError(t, s.ears.Talk("anna", true))
		anna.speak(time.Second)
		anna.quiet(time.Second)
		require.Equal(t, []string{"room: anna: tell me about the keeper"}, s.bot.orders)
		time.Sleep(2 * time.Minute) // nobody released it
		s.choose()
		require.Error(t, s.ears.Talk("anna", false))
	})
}

// TestTalkWhileEventsWait: the button was pressed after the first word, and the commentator was not told of that word yet. The order
// is one utterance.
func TestTalkWhileEventsWait(t *testing.T) {
	play(t, settings.HearingAll, []string{"a fine day for it", "tell me about the keeper"}, func(s *stage) {
		anna := s.join("anna", nil)
		anna.speak(time.Second)
		s.bot.mu.Lock()
		s.bot.blocked = make(chan struct{})
		s.bot.mu.Unlock()
		anna.quiet(time.Second)
		anna.speak(time.Second)
		require.NoError(t, s.ears.Talk("anna", true))
		anna.speak(time.Second)
		require.NoError(t, s.ears.Talk("anna", false))
		anna.quiet(400 * time.Millisecond)
		close(s.bot.blocked)
		synctest.Wait()
		require.Equal(t, []string{"anna: a fine day for it", "anna: tell me about the keeper"}, s.bot.finals())
		require.Equal(t, []string{"room: anna: tell me about the keeper"}, s.bot.orders)
	})
}

// TestLateText: the next utterance begins before the text of the last one comes, with the button pressed. The text keeps its own time and
// segment, and is no order.
func TestLateText(t *testing.T) {
	play(t, settings.HearingAll, []string{"a fine day for it", "tell me about the keeper"}, func(s *stage) {
		s.asr.finish = make(chan struct{})
		anna := s.join("anna", nil)
		began := time.Now()
		anna.speak(time.Second)
		anna.quiet(time.Second)
		require.NoError(t, s.ears.Talk("anna", true))
		anna.speak(time.Second)
		close(s.asr.finish)
		anna.speak(time.Second)
		require.NoError(t, s.ears.Talk("anna", false))
		anna.quiet(400 * time.Millisecond)
		require.Equal(t, []string{"anna: a fine day for it", "anna: tell me about the keeper"}, s.bot.finals())
		require.Equal(t, []string{"room: anna: tell me about the keeper"}, s.bot.orders)
		last := s.bot.heard[0]
		for _, h := range s.bot.heard {
			if h.Final && h.Order == nil {
				require.InDelta(t, 0, h.Began.Sub(began).Seconds(), 0.05)
				require.Equal(t, last.Segment, h.Segment)
			}
		}
	})
}

// TestDeletedTexts: a deleted text of another microphone is no longer there to be compared with an order. What is being said at the
// deletion gets none.
func TestDeletedTexts(t *testing.T) {
	play(t, settings.HearingAll, slices.Repeat([]string{"hey touchline stop"}, 8), func(s *stage) {
		anna := s.join("anna", nil)
		ben := s.join("ben", stranger)
		acted := 0
		for _, tt := range []struct {
			deletes string
			early   bool // before the end of his words
			acts    int
		}{{"anna", false, 0}, {"ben", false, 1}, {"anna", true, 0}, {"ben", true, 1}} {
			ben.speak(time.Second)
			if tt.early {
				s.ears.ForgetHeard(tt.deletes)
			}
			ben.quiet(time.Second)
			if !tt.early {
				s.ears.ForgetHeard(tt.deletes)
			}
			anna.speak(time.Second)
			anna.quiet(time.Second)
			acted += tt.acts
			require.Len(t, s.bot.orders, acted, tt)
			anna.quiet(time.Minute)
		}
	})
}

// TestSpeechFromBeforeAStandstill neither acts nor shows, whether it was being recognized, waited for its picture, or waited in the system.
func TestSpeechFromBeforeAStandstill(t *testing.T) {
	order := "hey touchline, only the goals"
	play(t, settings.HearingAll, []string{order, "a fine goal", order, "hey touchline, only the cards"}, func(s *stage) {
		s.bot.cfg.Camera, s.bot.delay = true, 20
		s.asr.finish = make(chan struct{})
		anna := s.join("anna", nil)
		camera := s.join("cam", func(m *agent.Microphone) { m.Instructs, m.Watched = false, true })
		anna.speak(time.Second)
		anna.quiet(2 * time.Second)
		camera.speak(time.Second)
		camera.quiet(2 * time.Second)
		shown := s.bot.texts()
		s.ears.StandStill(time.Minute)
		close(s.asr.finish)
		enc, err := opus.NewEncoder(48000, 1, opus.AppVoIP)
		require.NoError(t, err)
		for i := range 50 { // at once, as the system has them
			loud, packet := slices.Repeat([]int16{9000, -9000, 9000, 9000, -9000, -9000}, 160), make([]byte, 1275)
			n, err := enc.Encode(loud, packet)
			require.NoError(t, err)
			anna.sink.WriteRTP(&rtp.Packet{
				Header: rtp.Header{Version: 2, SequenceNumber: uint16(i), Timestamp: uint32(i) * 960}, Payload: packet[:n],
			}, time.Now())
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		require.Empty(t, s.bot.orders)
		require.Equal(t, shown, s.bot.texts())
		require.EqualValues(t, 50, s.ears.Stats().Dropped)
		s.asr.texts = s.asr.texts[len(s.asr.texts)-1:]
		anna.speak(time.Second)
		anna.quiet(2 * time.Second)
		require.Equal(t, []string{"room: anna: only the cards"}, s.bot.orders)
	})
}

// TestDetectorsOpenWithoutALock: the opening of a speech detector, which may take long, holds nobody else up.
func TestDetectorsOpenWithoutALock(t *testing.T) {
	t.Parallel()
	cfg := settings.DefaultHearing()
	cfg.Mode = settings.HearingAll
	var ears *hearing.Ears
	free := make(chan bool, 8)
	ears = hearing.New(hearing.Options{Recognizer: &script{}, Log: zerolog.Nop(), Detector: func() (vad.Detector, error) {
		others := make(chan struct{})
		go func() { defer close(others); ears.Stats() }()
		select {
		case <-others:
			free <- true
		case <-time.After(5 * time.Second):
			free <- false
		}
		return livetest.Detector{}, nil
	}})
	ears.Attach(&commentator{cfg: cfg})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- ears.Run(ctx) }()
	sink, err := ears.Open(agent.Microphone{Identity: "anna", Track: "TR"})
	require.NoError(t, err)
	require.True(t, <-free, "of a new microphone")
	require.NoError(t, ears.Talk("anna", true))
	require.True(t, <-free, "of push-to-talk")
	sink.Close()
	cancel()
	require.NoError(t, <-done)
}

// TestConfirm: confirmations and refusals can be turned off while people are heard.
func TestConfirm(t *testing.T) {
	play(t, settings.HearingOrders, []string{"hey touchline, only the goals", "hey touchline, only the cards", "hey touchline, red"}, func(s *stage) {
		anna := s.join("anna", nil)
		set := func(confirm, can bool) {
			s.bot.mu.Lock()
			defer s.bot.mu.Unlock()
			s.bot.cfg.Confirm, s.bot.can = confirm, can
		}
		for _, confirm := range []bool{true, false} {
			set(confirm, true)
			anna.speak(time.Second)
			anna.quiet(time.Second)
		}
		require.Len(t, s.bot.orders, 2)
		require.Equal(t, []string{"Okay: only the goals"}, s.bot.said)
		set(false, false)
		anna.speak(time.Second)
		anna.quiet(time.Second)
		require.Len(t, s.bot.said, 1)
	})
}

// TestEnd: what was said before the end gets its text.
func TestEnd(t *testing.T) {
	play(t, settings.HearingCaptions, []string{"a fine day for it"}, func(s *stage) {
		anna := s.join("anna", nil)
		anna.speak(time.Second)
		s.end()
		require.Equal(t, []string{"anna: a fine day for it"}, s.bot.finals())
		require.Zero(t, s.ears.Stats().Failed)
	})
}

// TestOpenAfterTheEnd: no microphone opens once Run ends, which would have nobody to wait for its goroutine.
func TestOpenAfterTheEnd(t *testing.T) {
	play(t, settings.HearingCaptions, nil, func(s *stage) {
		s.end()
		_, err := s.ears.Open(agent.Microphone{Identity: "ben", Track: "TR_ben"})
		require.ErrorIs(t, err, hearing.ErrEnded)
		require.Zero(t, s.ears.Stats().Microphones)
	})
}

// crashing is a commentator whose code panics over a text.
type crashing struct{ *commentator }

func (crashing) Hear(agent.Heard) { panic("no such page") }

// TestCrash: a panic over a text ends Run with it, instead of leaving a microphone that is not heard.
func TestCrash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := settings.DefaultHearing()
		cfg.Mode = settings.HearingCaptions
		s := &stage{t: t, bot: &commentator{cfg: cfg}}
		s.ears = hearing.New(hearing.Options{
			Recognizer: &script{}, Detector: func() (vad.Detector, error) { return livetest.Detector{}, nil }, Log: zerolog.Nop(),
		})
		s.ears.Attach(crashing{s.bot})
		done := make(chan error, 1)
		go func() { done <- s.ears.Run(t.Context()) }()
		anna := s.join("anna", nil)
		anna.speak(2 * time.Second)
		_, crash := rescue.Of(<-done)
		require.True(t, crash)
	})
}

// TestEndIsBounded: a recognizer that hangs does not hold up the end.
func TestEndIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := &livetest.Recognizer{Before: func(ctx context.Context, _ livetest.Call) error { <-ctx.Done(); return ctx.Err() }}
		cfg := settings.DefaultHearing()
		cfg.Mode = settings.HearingCaptions
		ears := hearing.New(hearing.Options{
			Recognizer: hangs, Detector: func() (vad.Detector, error) { return livetest.Detector{}, nil }, Log: zerolog.Nop(),
		})
		ears.Attach(&commentator{cfg: cfg})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- ears.Run(ctx) }()
		sink, err := ears.Open(agent.Microphone{Identity: "anna", Track: "TR"})
		require.NoError(t, err)
		anna := &person{sink: sink, stream: 1}
		anna.speak(2 * time.Second)
		cancel()
		began := time.Now()
		require.NoError(t, <-done)
		require.LessOrEqual(t, time.Since(began), time.Second)
	})
}

// brittle is a detector that fails from the moment that broken is set.
type brittle struct {
	livetest.Detector

	broken *bool
}

// Detect implements vad.Detector.
func (d brittle) Detect(frame []float32) (float64, error) {
	if *d.broken {
		return 0, errors.New("the device was lost")
	}
	return d.Detector.Detect(frame)
}

// TestDetectorFails: a microphone whose speech detector fails gets a text for what was heard, and is heard again.
func TestDetectorFails(t *testing.T) {
	play(t, settings.HearingCaptions, []string{"one", "two", "three"}, func(s *stage) {
		broken, fails := false, 0
		s.detector = func() (vad.Detector, error) {
			if fails--; fails >= 0 {
				return nil, errors.New("out of memory")
			}
			broken = false
			return brittle{broken: &broken}, nil
		}
		anna := s.join("anna", nil)
		for i, text := range []string{"anna: one", "anna: two"} {
			anna.speak(time.Second)
			broken, fails = true, 2
			anna.speak(40 * time.Millisecond) // loses a detector
			synctest.Wait()
			require.Len(t, s.bot.finals(), i+1, "the text comes at once")
			require.Equal(t, text, s.bot.finals()[i])
			anna.quiet(15 * time.Second)
		}
		began := time.Now()
		broken, fails = true, 2
		anna.speak(500 * time.Millisecond) // waits for a detector, and is not lost
		anna.quiet(4 * time.Second)
		require.Equal(t, []string{"anna: one", "anna: two", "anna: three"}, s.bot.finals())
		require.InDelta(t, 0, s.bot.heard[len(s.bot.heard)-1].Began.Sub(began).Seconds(), 0.1)
		require.Equal(t, 1, s.ears.Stats().Microphones)
		require.Equal(t, 9, strings.Count(s.log.String(), `"level":"warn"`), s.log.String())
		require.Equal(t, 9, strings.Count(s.log.String(), "speech detector failed"))
	})
}

// TestDetectorIsMissing: a microphone whose speech detector never opens tries again, ever more seldom, and ends when it is closed.
func TestDetectorIsMissing(t *testing.T) {
	play(t, settings.HearingCaptions, nil, func(s *stage) {
		var opens []time.Time
		s.detector = func() (vad.Detector, error) {
			opens = append(opens, time.Now())
			return nil, errors.New("no such device")
		}
		anna := s.join("anna", nil)
		anna.speak(3 * time.Second)
		anna.quiet(5 * time.Minute)
		require.Greater(t, len(opens), 30)
		require.Less(t, len(opens), 80)
		require.NotZero(t, s.ears.Stats().Dropped, "the sound that waits is bounded")
		anna.sink.Close()
		synctest.Wait()
		require.Zero(t, s.ears.Stats().Microphones)
	})
}

// TestDetectorFailsAfterPushToTalk: the end of push-to-talk opens another detector, and its failure does not end the microphone.
func TestDetectorFailsAfterPushToTalk(t *testing.T) {
	play(t, settings.HearingAll, []string{"tell me about the keeper", "a fine day for it"}, func(s *stage) {
		anna := s.join("anna", nil)
		require.NoError(t, s.ears.Talk("anna", true))
		anna.speak(time.Second)
		fails := 2
		s.detector = func() (vad.Detector, error) {
			if fails--; fails >= 0 {
				return nil, errors.New("out of memory")
			}
			return livetest.Detector{}, nil
		}
		require.NoError(t, s.ears.Talk("anna", false))
		anna.quiet(5 * time.Second)
		require.Equal(t, []string{"room: anna: tell me about the keeper"}, s.bot.orders)
		anna.speak(time.Second)
		anna.quiet(time.Second)
		require.Equal(t, []string{"anna: tell me about the keeper", "anna: a fine day for it"}, s.bot.finals())
	})
}

func TestEngineWithoutInstructions(t *testing.T) {
	play(t, settings.HearingAll, []string{"hey touchline, only the goals", "hey touchline, louder"}, func(s *stage) {
		s.bot.can = false
		anna := s.join("anna", nil)
		for range 2 {
			anna.speak(time.Second)
			anna.quiet(time.Second)
		}
		require.Equal(t, []string{"room: anna: louder"}, s.bot.orders)
		require.Equal(t, []string{"This engine cannot follow instructions."}, s.bot.said)
		refused := s.bot.heard[slices.IndexFunc(s.bot.heard, func(h agent.Heard) bool { return h.Final })].Order
		require.Equal(t, "this engine cannot follow instructions", refused.Refused)
	})
}

// TestWhoMayNotInstruct: its words are shown, and its order is not followed.
func TestWhoMayNotInstruct(t *testing.T) {
	play(t, settings.HearingAll, []string{"hey touchline, only the goals", "hey touchline", "stop"}, func(s *stage) {
		ben := s.join("ben", func(m *agent.Microphone) { m.Instructs = false })
		for range 3 {
			ben.speak(time.Second)
			ben.quiet(time.Second)
		}
		require.Empty(t, s.bot.orders)
		require.Empty(t, s.bot.said)
		require.Len(t, s.bot.finals(), 3)
		refused := s.bot.heard[slices.IndexFunc(s.bot.heard, func(h agent.Heard) bool { return h.Final })].Order
		require.Equal(t, "speaker is not allowed to give instructions", refused.Refused)
	})
}

// TestEcho: what the voice says comes back through an open microphone.
func TestEcho(t *testing.T) {
	play(t, settings.HearingCaptions, []string{"oh what a say by the keeper", "a great save that was"}, func(s *stage) {
		anna := s.join("anna", nil)
		s.ears.Caption(agent.Caption{Segment: "1", Text: "Oh, what a save by the keeper!", Spoken: true})
		anna.speak(2 * time.Second)
		anna.quiet(time.Second)
		anna.speak(2 * time.Second)
		anna.quiet(time.Second)
		require.Equal(t, []string{"anna: ", "anna: a great save that was"}, s.bot.finals(), "what was shown is taken back")
		require.EqualValues(t, 1, s.ears.Stats().Echoes)
	})
}

// TestMute: an utterance ends with its sound, and the text comes though nothing more is sent.
func TestMute(t *testing.T) {
	play(t, settings.HearingCaptions, []string{"one", "two", "three"}, func(s *stage) {
		anna := s.join("anna", nil)
		anna.speak(time.Second)
		s.mics[anna.at].Muted = true
		s.choose()
		anna.quiet(60 * time.Millisecond)
		require.Equal(t, []string{"anna: one"}, s.bot.finals())
		s.mics[anna.at].Muted = false
		s.choose()
		anna.quiet(time.Hour)
		anna.speak(time.Second)
		anna.quiet(time.Second)
		anna.stream, anna.media = 2, -7 // the sender begins anew
		anna.speak(time.Second)
		anna.sink.Close()
		anna.sink.Close()
		synctest.Wait()
		require.Equal(t, []string{"anna: one", "anna: two", "anna: three"}, s.bot.finals())
		require.Zero(t, s.ears.Stats().Microphones)
	})
}

// TestLateSound: packets that come late and at once are heard, after the silence in their place.
func TestLateSound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asr := &livetest.Recognizer{NoPartials: true}
		cfg := settings.DefaultHearing()
		cfg.Mode = settings.HearingCaptions
		bot := &commentator{cfg: cfg}
		ears := hearing.New(hearing.Options{
			Recognizer: asr, Detector: func() (vad.Detector, error) { return livetest.Detector{}, nil }, Log: zerolog.Nop(),
		})
		ears.Attach(bot)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- ears.Run(ctx) }()
		sink, err := ears.Open(agent.Microphone{Track: "TR"})
		require.NoError(t, err)
		for n := range 100 {
			if n < 50 || n >= 70 { // the network holds 20 packets back
				time.Sleep(20 * time.Millisecond)
			} else if n == 50 {
				time.Sleep(400 * time.Millisecond)
			}
			pcm := slices.Repeat([]int16{int16(32 * (n + 1))}, 320) // heard as one word
			sink.Push(sound.Piece{Stream: 1, Media: int64(n) * 960, Arrival: time.Now(), PCM: pcm})
			synctest.Wait()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, bot.finals(), 1)
		require.Len(t, strings.Fields(bot.heard[0].Text), 100)
		cancel()
		require.NoError(t, <-done)
	})
}

// TestLoudestFirst: more people than are heard; whoever is speaking is not cut off.
func TestLoudestFirst(t *testing.T) {
	play(t, settings.HearingCaptions, nil, func(s *stage) {
		s.bot.cfg.MaxSpeakers = 2
		var people []*person
		for _, name := range []string{"anna", "ben", "cora", "dan"} {
			people = append(people, s.join(name, nil))
		}
		heard := func() (out []bool) {
			s.choose()
			for _, p := range people {
				out = append(out, p.sink.Heard())
			}
			return out
		}
		require.Equal(t, []bool{true, true, false, false}, heard())
		s.mics[3].Level = 0.5
		require.Equal(t, []bool{true, false, false, true}, heard())
		people[0].speak(500 * time.Millisecond)
		s.mics[2].Level = 0.9
		require.Equal(t, []bool{true, false, true, false}, heard(), "anna is speaking")
		people[0].quiet(time.Second)
		s.mics[1].Level = 0.9
		require.Equal(t, []bool{false, true, true, false}, heard())
		s.mics[1].Level = 0
		require.Equal(t, []bool{false, true, true, false}, heard(), "a breath")
	})
}

// TestSilentModerators: moderators that are silent leave half of the places to others, and are recognized when they speak.
func TestSilentModerators(t *testing.T) {
	play(t, settings.HearingAll, nil, func(s *stage) {
		s.bot.cfg.MaxSpeakers = 4
		var moderators, others []*person
		for i := range 5 {
			moderators = append(moderators, s.join(fmt.Sprintf("moderator-%d", i), nil))
		}
		for i := range 3 {
			others = append(others, s.join(fmt.Sprintf("other-%d", i), func(m *agent.Microphone) { m.Instructs, m.Level = false, 0.5 }))
		}
		heard := func(people []*person) (n int) {
			s.choose()
			for _, p := range people {
				if p.sink.Heard() {
					n++
				}
			}
			return n
		}
		require.Equal(t, []int{2, 2}, []int{heard(moderators), heard(others)})
		for _, p := range others {
			p.speak(500 * time.Millisecond)
		}
		for _, p := range moderators {
			s.mics[p.at].Level = 0.3 // it begins to speak
			s.choose()
			require.True(t, p.sink.Heard())
			p.speak(500 * time.Millisecond)
			s.mics[p.at].Level = 0
			s.choose()
			require.True(t, p.sink.Heard())
			p.quiet(3 * time.Second)
		}
		require.NoError(t, s.ears.Talk("moderator-0", true))
		require.Equal(t, 3, heard(moderators), "one by push-to-talk, and two that are silent")
	})
}

// TestMicrophonesOfOneParticipant: a participant has at most two microphones, however many it publishes. The others are counted.
func TestMicrophonesOfOneParticipant(t *testing.T) {
	play(t, settings.HearingCaptions, nil, func(s *stage) {
		s.bot.cfg.Camera = true
		for i := range 20 {
			track := fmt.Sprintf("%02d", i)
			s.mics = append(s.mics,
				agent.Microphone{Identity: "many", Track: "many " + track, Muted: i < 5},
				agent.Microphone{Identity: "camera", Track: "camera " + track, Watched: i == 19, Muted: i == 19})
		}
		s.mics = append(s.mics, agent.Microphone{Identity: "one", Track: "one"}, agent.Microphone{Identity: "two", Track: "two 1"},
			agent.Microphone{Identity: "two", Track: "two 2", Muted: true})
		require.Equal(t, []string{"camera 19", "camera 00", "many 05", "many 06", "one", "two 1", "two 2"}, s.choose())
		require.Equal(t, 36, s.ears.Stats().Left)
	})
}

// TestMicrophonesOfOneLink: of ten times as many microphones as people by one link may have, half of the room's places are received; those
// of another link and of the operator are received. 20 viewers by one link meet no limit.
func TestMicrophonesOfOneLink(t *testing.T) {
	play(t, settings.HearingCaptions, nil, func(s *stage) {
		join := func(n int, link string) {
			for i := range n {
				id := fmt.Sprintf("%s %03d", link, i)
				s.mics = append(s.mics, agent.Microphone{Identity: id, Track: id, Link: link, Muted: i >= 5})
			}
		}
		join(20, "viewers")
		require.Len(t, s.choose(), 20)
		require.Zero(t, s.ears.Stats().Left)
		s.mics = nil
		join(500, "a crowd")
		require.Len(t, s.choose(), 50)
		require.Equal(t, 450, s.ears.Stats().Left)
		join(20, "viewers")
		s.mics = append(s.mics, agent.Microphone{Identity: "operator", Track: "operator", Instructs: true})
		chosen := s.choose()
		require.Len(t, chosen, 71)
		require.Equal(t, "operator", chosen[0])
		require.Equal(t, 450, s.ears.Stats().Left)
	})
}

// TestStrangersAndTheOperator: however many microphones strangers have, and however loud they are, the operator is received and heard.
func TestStrangersAndTheOperator(t *testing.T) {
	play(t, settings.HearingAll, nil, func(s *stage) {
		stranger := func(m *agent.Microphone) { m.Instructs, m.Level = false, 1 }
		var loud []*person
		for i := range 120 { // ten times as many as are heard
			loud = append(loud, s.join(fmt.Sprintf("aaa-%03d", i), stranger))
		}
		for range 5 {
			for _, p := range loud[:12] {
				p.speak(100 * time.Millisecond)
			}
			s.choose()
		}
		require.Positive(t, s.ears.Stats().Left)
		s.mics = append(s.mics, agent.Microphone{Identity: "operator", Track: "TR_operator", Instructs: true})
		require.Contains(t, s.choose(), "TR_operator", "it is received")
		s.mics = s.mics[:len(s.mics)-1]
		operator := s.join("operator", nil)
		require.True(t, operator.sink.Heard())
		for i := range s.mics {
			s.mics[i].Level = 1
		}
		s.mics[operator.at].Level = 0
		for range 50 {
			for _, p := range loud[:12] {
				p.speak(20 * time.Millisecond)
			}
			s.choose()
			require.True(t, operator.sink.Heard())
		}
		require.Equal(t, s.bot.cfg.MaxSpeakers, s.ears.Stats().Speakers, "others are heard beside it")
		s.mics[operator.at].Muted = true
		s.choose()
		require.False(t, operator.sink.Heard(), "a muted one takes no place")
	})
}

// TestFloor: the commentator hears soon that somebody speaks who may instruct it, and that nobody does.
func TestFloor(t *testing.T) {
	play(t, settings.HearingAll, nil, func(s *stage) {
		anna := s.join("anna", nil)
		ben := s.join("ben", func(m *agent.Microphone) { m.Instructs = false })
		ben.speak(time.Second)
		ben.quiet(time.Second)
		anna.speak(200 * time.Millisecond) // a cough
		anna.quiet(time.Second)
		require.Empty(t, s.bot.floor)
		began := time.Now()
		anna.speak(2 * time.Second)
		anna.quiet(time.Second)
		require.Len(t, s.bot.floor, 2)
		require.InDelta(t, 0.33, s.bot.floor[0].Sub(began).Seconds(), 0.05)
		require.InDelta(t, 2.65, s.bot.floor[1].Sub(began).Seconds(), 0.15)
	})
}

// TestCameraSpeaks: what is said beside the camera comes with its picture.
func TestCameraSpeaks(t *testing.T) {
	play(t, settings.HearingCaptions, []string{"welcome to the ground"}, func(s *stage) {
		s.bot.delay = 3
		s.mics = []agent.Microphone{{Identity: "camera", Track: "TR_camera", Watched: true}}
		require.Empty(t, s.choose())
		s.mics = nil
		s.bot.cfg.Camera = true
		camera := s.join("camera", func(m *agent.Microphone) { m.Watched, m.Instructs = true, false })
		began := time.Now()
		camera.speak(time.Second)
		camera.quiet(4 * time.Second)
		require.Equal(t, []string{"camera: welcome to the ground"}, s.bot.finals())
		for _, at := range s.bot.heardAt {
			require.InDelta(t, 3, at.Sub(began).Seconds(), 0.1)
		}
	})
}

func TestOrdersOnly(t *testing.T) {
	play(t, settings.HearingOrders, nil, func(s *stage) {
		s.asr.only = true
		c := settings.DefaultHearing()
		c.Mode = settings.HearingOrders
		require.NoError(t, s.ears.CheckHearing(c))
		for _, mode := range []string{settings.HearingCaptions, settings.HearingAll} {
			c.Mode = mode
			require.ErrorContains(t, s.ears.CheckHearing(c), "knows orders alone")
		}
		c.Mode, c.WakeWords = settings.HearingOrders, []string{"xyzzy"}
		require.ErrorContains(t, s.ears.CheckHearing(c), "has no sound")
	})
}

// TestEverybodyUnmutes: ten times as many people at once as a room receives.
func TestEverybodyUnmutes(t *testing.T) {
	play(t, settings.HearingAll, nil, func(s *stage) {
		for range 1000 {
			track := "TR_" + time.Duration(len(s.mics)).String()
			s.mics = append(s.mics, agent.Microphone{Identity: track, Track: track})
		}
		s.mics[999].Instructs = true
		tracks := s.choose()
		require.Len(t, tracks, 100)
		require.Contains(t, tracks, s.mics[999].Track)
		for _, track := range tracks {
			_, err := s.ears.Open(agent.Microphone{Identity: track, Track: track})
			require.NoError(t, err)
		}
		require.Equal(t, tracks, s.choose())
		require.Equal(t, hearing.Stats{Microphones: 100, Speakers: 12, Left: 900}, s.ears.Stats())
	})
}
