//go:build integration

package whep_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"
	"github.com/stretchr/testify/require"
	opus "gopkg.in/hraban/opus.v2"

	"touchline/media"
	"touchline/media/sound"
	"touchline/media/speech"
)

// tone returns the level of a frequency, in dB of full scale (Goertzel).
func tone(pcm []int16, hz float64) float64 {
	c := 2 * math.Cos(2*math.Pi*hz/sound.Rate)
	var s1, s2 float64
	for _, v := range pcm {
		s1, s2 = float64(v)/32768+c*s1-s2, s1
	}
	return 10 * math.Log10((s1*s1+s2*s2-c*s1*s2)*4/float64(len(pcm)*len(pcm))+1e-12)
}

// TestCameraSound has a humming camera and a speaking bot: the player receives both, the hum 12 dB lower during
// speech.
func TestCameraSound(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	const frame = sound.Rate / 50
	sine := func(from, n int64, hz float64) []int16 {
		pcm := make([]int16, n)
		for i := range pcm {
			pcm[i] = int16(8000 * math.Sin(2*math.Pi*hz*float64(from+int64(i))/sound.Rate))
		}
		return pcm
	}
	stop, done := make(chan struct{}), make(chan struct{})
	defer func() { close(stop); <-done }()
	go func() {
		defer close(done)
		began := time.Now()
		for n := int64(0); ; n++ {
			at := began.Add(time.Duration(n) * 20 * time.Millisecond)
			select {
			case <-stop:
				return
			case <-time.After(time.Until(at)):
			}
			s.line.Push(sound.Piece{Stream: 1, Media: n * frame, Arrival: at, PCM: sine(n*frame, frame, 440)})
			s.line.Picture(at, time.Time{}, at.Add(time.Second))
		}
	}()
	p := newPlayer(t, webrtc.MimeTypeH264)
	p.watch(t, s)
	u := s.voice.NewUtterance(speech.Events{})
	_, err := u.Write(media.PCM{Rate: sound.Rate, Samples: sine(0, 2*sound.Rate, 2000)})
	require.NoError(t, err)
	u.End()
	u.Start(time.Now().Add(2 * time.Second))
	require.Eventually(t, func() bool { _, _, sounds, _ := p.seen(); return sounds > 5*50 }, patience, 20*time.Millisecond)

	dec, err := opus.NewDecoder(sound.Rate, 1)
	require.NoError(t, err)
	var spoken, unspoken []float64 // levels of the hum
	p.mu.Lock()
	defer p.mu.Unlock()
	pcm := make([]int16, 5760)
	for _, packet := range p.sounds {
		n, err := dec.Decode(packet.Payload, pcm)
		require.NoError(t, err)
		switch voice, hum := tone(pcm[:n], 2000), tone(pcm[:n], 440); {
		case hum < -40: // before the first of it
		case voice > -16:
			spoken = append(spoken, hum)
		case voice < -40:
			unspoken = append(unspoken, hum)
		}
	}
	require.Greater(t, len(spoken), 60, "of 100 packets")
	require.Greater(t, len(unspoken), 40)
	median := func(list []float64) float64 { slices.Sort(list); return list[len(list)/2] }
	t.Logf("hum: %.1f dB alone, %.1f dB under the voice", median(unspoken), median(spoken))
	require.InDelta(t, -12.2, median(unspoken), 1.5, "8000 of 32768")
	require.InDelta(t, -12, median(spoken)-median(unspoken), 1.5)
}
