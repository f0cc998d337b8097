package hearing_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/pion/rtp"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	opus "gopkg.in/hraban/opus.v2"

	"touchline/agent"
	"touchline/agent/hearing"
	"touchline/agent/settings"
	"touchline/inference/vad"
)

// voice returns a second of Opus packets, 20 ms each: a buzz with the melody and the pauses of speech.
func voice(tb testing.TB) (packets [][]byte) {
	tb.Helper()
	enc, err := opus.NewEncoder(48000, 1, opus.AppVoIP)
	require.NoError(tb, err)
	random := rand.New(rand.NewPCG(1, 2))
	phase := 0.0
	for n := range 50 {
		pcm := make([]int16, 960)
		loud := math.Max(0, math.Sin(float64(n)/4))
		for i := range pcm {
			phase += (120 + 30*math.Sin(float64(n)/9)) / 48000
			_, saw := math.Modf(phase)
			pcm[i] = int16(9000 * loud * (saw - 0.5 + 0.1*random.Float64()))
		}
		b := make([]byte, 1000)
		size, err := enc.Encode(pcm, b)
		require.NoError(tb, err)
		packets = append(packets, b[:size])
	}
	return packets
}

// BenchmarkMicrophones hears a second of each of 12 microphones per op: Opus, the detector of speech (that of the Silero network if
// it is beside ONNX Runtime) and the session, without the model. core% is the share of one core that a microphone takes.
func BenchmarkMicrophones(b *testing.B) {
	gate := vad.Open(filepath.Join("..", "..", "bin", "runtime"))
	defer func() { require.NoError(b, gate.Close()) }()
	for _, people := range []int{1, 12} {
		b.Run(fmt.Sprintf("%s-%d", gate, people), func(b *testing.B) {
			cfg := settings.DefaultHearing()
			cfg.Mode = settings.HearingAll
			ears := hearing.New(hearing.Options{Recognizer: &script{}, Detector: gate.Detector, Log: zerolog.Nop()})
			ears.Attach(&commentator{cfg: cfg})
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- ears.Run(ctx) }()
			var sinks []*hearing.Sink
			for i := range people {
				s, err := ears.Open(agent.Microphone{Track: strconv.Itoa(i), Instructs: true})
				require.NoError(b, err)
				sinks = append(sinks, s)
			}
			second := voice(b)
			n := 0
			for b.Loop() {
				for i, payload := range second {
					for _, s := range sinks {
						s.WriteRTP(&rtp.Packet{
							Header:  rtp.Header{SSRC: 1, SequenceNumber: uint16(n*50 + i), Timestamp: uint32(n*50+i) * 960},
							Payload: payload,
						}, time.Now())
					}
				}
				n++
				for _, s := range sinks {
					s.Wait()
				}
			}
			perSecond := b.Elapsed().Seconds() / float64(b.N) / float64(people)
			b.ReportMetric(100*perSecond, "core%/microphone")
			cancel()
			require.NoError(b, <-done)
		})
	}
}
