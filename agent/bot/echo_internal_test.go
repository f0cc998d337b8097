package bot

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pion/rtp"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/hearing"
	"touchline/agent/settings"
	agentspeech "touchline/agent/speech"
	"touchline/inference"
	"touchline/inference/vad"
	"touchline/internal/rescue"
	"touchline/internal/ticks"
	"touchline/media"
	"touchline/media/speech"
)

// loudspeaker plays the voice beside a microphone: its packets come back after a while.
type loudspeaker struct {
	late time.Duration
	mic  *hearing.Sink
	n    uint16
}

func (l *loudspeaker) WriteOpus(payload []byte, timestamp uint32, _ bool) (time.Time, error) {
	l.n++
	p := &rtp.Packet{Header: rtp.Header{SSRC: 7, SequenceNumber: l.n, Timestamp: timestamp}, Payload: payload}
	time.AfterFunc(l.late, func() { l.mic.WriteRTP(p, time.Now()) })
	return time.Now(), nil
}

// listener counts how often the floor is taken or in doubt. In doubt the speech pauses.
type listener struct {
	agent.Steerer

	mu            sync.Mutex
	speech        *speech.Utterance
	taken, doubts int
}

func (*listener) Hearing() settings.Hearing {
	c := settings.DefaultHearing()
	c.Mode = settings.HearingOrders
	return c
}

func (*listener) Hear(agent.Heard) {}

func (l *listener) Floor(f agentspeech.Floor, _ time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch f {
	case agentspeech.FloorTaken:
		l.taken++
	case agentspeech.FloorDoubtful:
		l.doubts++
		l.speech.Pause()
	case agentspeech.FloorFree:
		l.speech.Resume()
	}
}

// say says something of a length.
func (l *listener) say(t *testing.T, voice *speech.Writer, length time.Duration) {
	t.Helper()
	ended := make(chan bool, 1)
	u := voice.NewUtterance(speech.Events{Ended: func(_ time.Time, cut bool) { ended <- cut }})
	l.mu.Lock()
	l.speech = u
	l.mu.Unlock()
	_, err := u.Write(babble(length))
	require.NoError(t, err)
	u.End()
	u.Start(time.Now().Add(time.Second))
	require.False(t, <-ended)
}

// noWords hears speech without words.
type noWords struct{ inference.Recognizer }

func (noWords) Recognizes() inference.Recognizes { return inference.Recognizes{Model: "none"} }

func (noWords) Listen(context.Context, inference.Hearing) (inference.Utterance, error) {
	return noWords{}, nil
}

func (noWords) Hear(context.Context, []float32) (inference.Transcript, error) {
	return inference.Transcript{}, nil
}

func (noWords) Finish(context.Context, []float32) (inference.Transcript, error) {
	return inference.Transcript{Final: true}, nil
}

func (noWords) Close() error { return nil }

// babble is sound at 24 kHz with the loudness of speech: syllables of 60 to 260 ms, some of them soft.
func babble(length time.Duration) media.PCM {
	const rate = 24000
	random := rand.New(rand.NewPCG(4, 2))
	pcm := make([]int16, ticks.Count(length, rate))
	left, level := 0, 0.0
	for i := range pcm {
		if left--; left < 0 {
			left = rate*6/100 + random.IntN(rate/5)
			level = math.Pow(10, -(10+30*random.Float64())/20)
		}
		pcm[i] = int16(32767 * level * math.Sin(2*math.Pi*220*float64(i)/rate))
	}
	return media.PCM{Rate: rate, Samples: pcm}
}

// TestEchoOfTheVoice: the packets of the voice come back through a microphone, 280 ms late. The floor is not taken, unless the ears
// are not told of the voice. The first echo leaves doubt, in which the voice pauses; no later one does.
func TestEchoOfTheVoice(t *testing.T) {
	for _, told := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			out := &loudspeaker{late: 280 * time.Millisecond}
			voice, err := speech.New(speech.Options{Out: out})
			require.NoError(t, err)
			who := &listener{}
			gate := vad.Loud()
			ears := hearing.New(hearing.Options{Recognizer: noWords{}, Detector: gate.Detector, Log: zerolog.Nop()})
			ears.Attach(who)
			out.mic, err = ears.Open(agent.Microphone{Identity: "anna", Track: "TR_a", Instructs: true})
			require.NoError(t, err)
			b := &Bot{Voice: voice, ears: ears}
			ctx, cancel := context.WithCancel(t.Context())
			g, ctx := rescue.WithContext(ctx)
			g.Go(func() error { return voice.Run(ctx) })
			g.Go(func() error { return ears.Run(ctx) })
			if told {
				g.Go(func() error { return b.hearVoice(ctx) })
			}
			began := time.Now()
			for range 3 {
				who.say(t, voice, 5*time.Second)
				time.Sleep(2 * time.Second)
			}
			took := time.Since(began)
			cancel()
			require.NoError(t, g.Wait())
			time.Sleep(time.Second) // the last packets
			if told {
				require.Zero(t, who.taken)
				require.Equal(t, 1, who.doubts)
				require.Greater(t, took, 24*time.Second+500*time.Millisecond)
				require.Less(t, took, 26*time.Second)
			} else {
				require.NotZero(t, who.taken)
			}
		})
	}
}
