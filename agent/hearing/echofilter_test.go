//go:build integration

package hearing_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/hearing"
	"touchline/agent/settings"
	"touchline/inference"
	"touchline/inference/vad"
	"touchline/internal/e2e/sounds"
	"touchline/internal/quantile"
	"touchline/media/sound"
)

// parrot is a recognizer that hears what is being said, and counts the sound that it gets.
type parrot struct {
	inference.Recognizer

	begun time.Time

	mu      sync.Mutex
	saying  string
	samples int
	first   []time.Duration // of each utterance: when it came
}

func (p *parrot) say(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.saying = text
}

// heard is the length of all sound.
func (p *parrot) heard() time.Duration {
	return time.Duration(p.samples) * time.Second / inference.RecognizerRate
}

func (*parrot) Recognizes() inference.Recognizes {
	return inference.Recognizes{Model: "parrot", Partials: true}
}

func (p *parrot) Listen(context.Context, inference.Hearing) (inference.Utterance, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.first = append(p.first, time.Since(p.begun))
	return &repeats{p: p, text: p.saying}, nil
}

type repeats struct {
	p    *parrot
	text string
}

func (r *repeats) Hear(_ context.Context, pcm []float32) (inference.Transcript, error) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.p.samples += len(pcm)
	return inference.Transcript{Text: r.text}, nil
}

func (r *repeats) Finish(ctx context.Context, pcm []float32) (inference.Transcript, error) {
	t, err := r.Hear(ctx, pcm)
	t.Final = true
	return t, err
}
func (*repeats) Close() error { return nil }

// comments are what the voice says.
func comments() []string {
	return []string{
		"A goal for the reds! One nil, in the last minute.", "The keeper pushes it away.", "What a match!", "Number nine runs down the left.",
		"And now the blues have the ball again, in their own half, and they take their time.", "Corner for white.",
		"He looks up, he sees nobody, and he passes it back to the keeper.", "The referee looks at his watch.",
	}
}

// room is what the voice says and what a microphone hears.
type room struct {
	voice, mic []float32
	texts      []string // that the voice says, by second
	spoken     time.Duration
	people     []time.Duration // when people begin to speak
}

// TestOwnVoiceInARoom: for ten minutes the voice and the match's sound come back through an open microphone, 12 dB lower and 30 to
// 600 ms late. Silero's network finds speech in it. The recognizer hears hardly anything of it, and nothing is published.
// People who speak meanwhile are heard.
func TestOwnVoiceInARoom(t *testing.T) {
	gate := vad.Open("../../bin/runtime")
	t.Cleanup(func() { require.NoError(t, gate.Close()) })
	if gate.Err() != nil {
		t.Skipf("needs Silero's network: %v", gate.Err())
	}
	const length = 10 * time.Minute
	quiet := newRoom(t, length, false, usualEcho)
	p, published, stats := quiet.hear(t, gate, true)
	t.Logf("%.0f s of the own voice in %v: the recognizer heard %.1f s in %d utterances, %d echoes were dropped, %d texts were published",
		quiet.spoken.Seconds(), length, p.heard().Seconds(), len(p.first), stats.Echoes, published)
	require.Greater(t, stats.Echoes, uint64(50))
	require.Less(t, p.heard(), quiet.spoken/20)
	require.Zero(t, published)
	p, published, _ = quiet.hear(t, gate, false)
	t.Logf("without the texts of the voice: %.1f s in %d utterances, %d texts", p.heard().Seconds(), len(p.first), published)
	require.Less(t, p.heard(), quiet.spoken/20)

	for echo, what := range map[float32]string{usualEcho: "loudspeaker", 0: "headset"} {
		loud := newRoom(t, 3*time.Minute, true, echo)
		p, _, stats = loud.hear(t, gate, false)
		var took []time.Duration
		for _, began := range loud.people {
			i := slices.IndexFunc(p.first, func(at time.Duration) bool { return at >= began && at < began+5*time.Second })
			if i >= 0 {
				took = append(took, p.first[i]-began)
			}
		}
		t.Logf("%s, %d people over the voice: %d heard; from the begin of their speech to the first sound at the recognizer p50 %v, p90 %v; %d echoes",
			what, len(loud.people), len(took), quantile.Of(took, .5), quantile.Of(took, .9), stats.Echoes)
		require.GreaterOrEqual(t, len(took)*20, len(loud.people)*19)
		if echo == 0 {
			require.Less(t, quantile.Of(took, .9), 600*time.Millisecond)
		}
	}
}

// usualEcho is how much of the voice comes back.
const usualEcho = 0.25

// newRoom makes a room in which the voice says comments, of which some comes back, and people speak beside each of them if they shall.
func newRoom(t *testing.T, length time.Duration, people bool, echo float32) *room {
	t.Helper()
	const second = inference.RecognizerRate
	r := rand.New(rand.NewPCG(1, 2))
	n := int(length.Seconds())
	room := &room{voice: make([]float32, n*second), mic: make([]float32, n*second), texts: make([]string, n+10)}
	late := 0
	for at := second; ; {
		if now := at / second / 60; late == 0 || now > (at-4*second)/second/60 {
			late = (30 + r.IntN(570)) * second / 1000 // another one each minute
		}
		text, name := comments()[r.IntN(len(comments()))], []string{"slt", "rms", "awb", "kal16", "kal"}[r.IntN(5)]
		pcm := sounds.Say(t, text, "flite", "-voice", name)
		if at+len(pcm)+late+6*second > len(room.voice) {
			break
		}
		copy(room.voice[at:], pcm)
		room.spoken += time.Duration(len(pcm)) * time.Second / second
		for i, v := range pcm {
			room.mic[at+late+i] += echo * v
		}
		for s := at / second; s <= (at+len(pcm)+late)/second+1; s++ {
			room.texts[s] = text
		}
		end := at + len(pcm)
		if people {
			begin := at + r.IntN(len(pcm))
			room.people = append(room.people, time.Duration(begin)*time.Second/second)
			other := sounds.Say(t, "Please tell us who has the ball now.", "flite", "-voice", "awb")
			for i, v := range other {
				room.mic[begin+i] += 0.6 * v
			}
			end = max(end, begin+len(other)) + second
		}
		at = end + (700+r.IntN(2300))*second/1000
	}
	noise := sounds.Crowd(t, length)
	ducked := 0.25 * float32(math.Pow(10, -12.0/20)) // as the match's sound is under the voice
	for i := range room.mic {
		room.mic[i] += ducked * noise[i]
	}
	return room
}

// hear lets Ears hear the room. With tell they know what the voice says.
func (o *room) hear(t *testing.T, gate *vad.Model, tell bool) (p *parrot, published int, stats hearing.Stats) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p = &parrot{begun: time.Now()}
		bot := &commentator{cfg: settings.DefaultHearing()}
		bot.cfg.Mode = settings.HearingAll
		ears := hearing.New(hearing.Options{Recognizer: p, Detector: gate.Detector, Log: zerolog.Nop()})
		ears.Attach(bot)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- ears.Run(ctx) }()
		anna := agent.Microphone{Identity: "anna", Track: "TR_a", Instructs: true}
		sink, err := ears.Open(anna)
		require.NoError(t, err)
		ears.Choose([]agent.Microphone{anna}, time.Now())
		const piece = inference.RecognizerRate / 50
		said, mic := make([]int16, piece), make([]int16, piece)
		for i := 0; i < len(o.voice); i += piece {
			for k := range piece {
				said[k], mic[k] = int16(32767*o.voice[i+k]), int16(32767*o.mic[i+k])
			}
			ears.Voice(said, time.Now())
			text := o.texts[i/inference.RecognizerRate]
			p.say(text)
			if tell && i%inference.RecognizerRate == 0 && text != "" {
				ears.Caption(agent.Caption{Segment: text, Text: text, Spoken: true})
			}
			sink.Push(sound.Piece{Stream: 1, Media: int64(3 * i), Arrival: time.Now(), PCM: mic})
			time.Sleep(20 * time.Millisecond)
			synctest.Wait()
		}
		stats = ears.Stats()
		sink.Close()
		cancel()
		require.NoError(t, <-done)
		for _, h := range bot.heard {
			if strings.TrimSpace(h.Text) != "" {
				published++
			}
		}
	})
	return p, published, stats
}
