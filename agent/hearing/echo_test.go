package hearing_test

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/hearing"
	"touchline/agent/settings"
	"touchline/agent/speech"
	"touchline/media/sound"
)

// voiceSays and personSays are levels of 20 ms in dB, of flite's voice rms ("The weather gets colder if it gets dark.") and awb
// ("Have a chocolate, said the linesman in front of the stand.").
func voiceSays() []float64 {
	return []float64{
		-60, -44, -29, -23, -22, -27, -30, -22, -16, -18, -18, -21, -22, -22, -21, -21, -19, -16, -16, -17, -17, -20, -24, -34, -32,
		-19, -16, -15, -16, -17, -21, -25, -27, -31, -36, -23, -16, -17, -20, -24, -41, -36, -36, -27, -22, -22, -25, -35, -52, -59,
		-44, -39, -43, -24, -21, -18, -18, -17, -18, -17, -16, -16, -19, -21, -24, -28, -36, -25, -18, -17, -19, -22, -25, -27, -20,
		-17, -17, -21, -35, -40, -37, -36, -37, -40, -26, -19, -18, -19, -29, -44, -42, -35, -38, -31, -36, -51, -41, -36, -26, -18,
		-19, -21, -26, -44, -39, -25, -22, -22, -34, -50, -41, -31, -18, -20, -20, -18, -18, -19, -20, -18, -19, -19, -20, -21, -24,
	}
}

func personSays() []float64 {
	return []float64{
		-28, -19, -17, -16, -21, -26, -33, -23, -19, -22, -29, -49, -46, -33, -28, -29, -32, -20, -15, -14, -16, -20, -28, -44, -56,
		-56, -44, -37, -33, -21, -21, -25, -26, -26, -25, -27, -30, -33, -47, -52, -55, -46, -36, -42, -46, -60, -59, -60, -59, -57,
		-59, -52, -43, -36, -36, -31, -35, -21, -14, -15, -16, -15, -23, -34, -39, -41, -40, -37, -23, -17, -18, -16, -18, -18, -20,
		-20, -18, -18, -17, -17, -18, -16, -17, -17, -18, -21, -27, -37, -37, -41, -25, -21, -18, -18, -19, -18, -20, -21, -18, -14,
	}
}

// at returns a sound's amplitude at a time after its begin.
func at(levels []float64, since time.Duration) float64 {
	if n := since / (20 * time.Millisecond); since >= 0 && int(n) < len(levels) {
		return math.Pow(10, levels[n]/20)
	}
	return 0
}

// TestEchoTakesNoFloor: the voice sounds from a loudspeaker beside an open microphone, 15 dB lower; people are told from it. The first
// echo leaves doubt, the second none.
func TestEchoTakesNoFloor(t *testing.T) {
	const never = time.Hour
	for _, c := range []struct {
		name    string
		late    time.Duration // the echo; never is none
		person  time.Duration // when a person begins to speak
		soonest time.Duration // the floor is taken in this time
		latest  time.Duration
	}{
		{"echo at once", 0, never, never, never},
		{"echo", 370 * time.Millisecond, never, never, never},
		{"late echo", 990 * time.Millisecond, never, never, never},
		{"person", never, 600 * time.Millisecond, 850 * time.Millisecond, 1100 * time.Millisecond},
		{"person at the same time as the voice", never, 0, 300 * time.Millisecond, 500 * time.Millisecond},
		{"person over an echo", 110 * time.Millisecond, 1200 * time.Millisecond, 1300 * time.Millisecond, 2100 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			play(t, settings.HearingOrders, nil, func(s *stage) {
				anna := s.join("anna", nil)
				if c.person == never {
					s.asr.texts = []string{"", "", "", ""}
				}
				anna.quiet(2 * time.Second)
				began := time.Now()
				step := func(n int) {
					now := time.Duration(n) * 20 * time.Millisecond
					out := int16(32767 * at(voiceSays(), now))
					s.ears.Voice(slices.Repeat([]int16{out, -out}, 480), began.Add(now))
					v := at(personSays(), now-c.person) / 2
					v += at(voiceSays(), now-c.late) * math.Pow(10, -15.0/20)
					pcm := int16(32767 * v)
					anna.sink.Push(sound.Piece{
						Stream: 1, Media: anna.media, Arrival: time.Now(), PCM: slices.Repeat([]int16{pcm, -pcm}, 160),
					})
					anna.media += 960
					time.Sleep(20 * time.Millisecond)
					synctest.Wait()
				}
				for n := range 200 {
					step(n)
				}
				anna.quiet(time.Second)
				if c.latest == never {
					require.Empty(t, s.bot.floor)
					require.Empty(t, s.asr.asked, "the recognizer hears nothing of it")
					require.NotZero(t, s.ears.Stats().Echoes)
					require.Equal(t, []speech.Floor{speech.FloorDoubtful, speech.FloorFree}, s.bot.floors)
					began = time.Now()
					for n := range 200 {
						step(n)
					}
					anna.quiet(time.Second)
					require.Len(t, s.bot.floors, 2)
					return
				}
				require.Len(t, s.asr.asked, 1)
				require.Len(t, s.bot.floor, 2)
				took := s.bot.floor[0].Sub(began)
				require.GreaterOrEqual(t, took, c.soonest)
				require.LessOrEqual(t, took, c.latest)
			})
		})
	}
}

// BenchmarkEcho compares a second and a half of a microphone with the voice, which is done at most 50 times a second while
// somebody speaks.
func BenchmarkEcho(b *testing.B) {
	compare := hearing.Comparison(voiceSays(), personSays())
	for b.Loop() {
		compare()
	}
}

// TestSilenceForAPerson: while the voice says a sentence somebody says something for 300 ms, at any moment of it. The floor leaves the
// voice no more than 450 ms from the first sound, so that with its own 40 ms it is silent within 200 ms of the last; in doubt the text
// takes it for good.
func TestSilenceForAPerson(t *testing.T) {
	said := slices.Concat(voiceSays(), voiceSays())
	for from := time.Duration(0); from < 2400*time.Millisecond; from += 60 * time.Millisecond {
		t.Run(from.String(), func(t *testing.T) {
			play(t, settings.HearingOrders, []string{"wait a moment"}, func(s *stage) {
				anna := s.join("anna", nil)
				anna.quiet(2 * time.Second)
				began := time.Now()
				for n := range 250 {
					now := time.Duration(n) * 20 * time.Millisecond
					out := int16(32767 * at(said, now))
					s.ears.Voice(slices.Repeat([]int16{out, -out}, 480), began.Add(now))
					pcm := int16(0)
					if now >= from && now < from+300*time.Millisecond {
						pcm = 3000
					}
					anna.sink.Push(sound.Piece{
						Stream: 1, Media: anna.media, Arrival: time.Now(), PCM: slices.Repeat([]int16{pcm, -pcm}, 160),
					})
					anna.media += 960
					time.Sleep(20 * time.Millisecond)
					synctest.Wait()
				}
				anna.quiet(time.Second)
				require.NotEmpty(t, s.bot.floors)
				require.Less(t, s.bot.firstFloor.Sub(began)-from, 450*time.Millisecond)
				require.Contains(t, s.bot.floors, speech.FloorTaken)
				require.Equal(t, speech.FloorFree, s.bot.floors[len(s.bot.floors)-1])
			})
		})
	}
}
