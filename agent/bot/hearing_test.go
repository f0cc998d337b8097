//go:build integration

package bot_test

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/bot"
	"touchline/agent/look"
	livesettings "touchline/agent/settings"
	"touchline/configs"
	"touchline/inference"
	"touchline/inference/voice"
	"touchline/internal/e2e/stage"
	"touchline/internal/resample"
	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/convert"
)

// witness is a recognizer that keeps what it hears to the end.
type witness struct {
	*bot.Recognizer

	mu     sync.Mutex
	sounds [][]float32
	texts  []string
}

// Close leaves the recognizer to its owner.
func (*witness) Close() error { return nil }

func (w *witness) Listen(ctx context.Context, h inference.Hearing) (inference.Utterance, error) {
	u, err := w.Recognizer.Listen(ctx, h)
	return &witnessed{Utterance: u, w: w}, err
}

type witnessed struct {
	inference.Utterance

	w     *witness
	sound []float32
}

func (u *witnessed) Hear(ctx context.Context, sound []float32) (inference.Transcript, error) {
	u.sound = append(u.sound, sound...)
	return u.Utterance.Hear(ctx, sound)
}

func (u *witnessed) Finish(ctx context.Context, sound []float32) (inference.Transcript, error) {
	t, err := u.Utterance.Finish(ctx, sound)
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	u.w.sounds, u.w.texts = append(u.w.sounds, append(u.sound, sound...)), append(u.w.texts, t.Text)
	return t, err
}

// notes keeps what the outputs get.
type notes struct {
	mu    sync.Mutex
	heard []agent.Heard
}

func (*notes) Caption(agent.Caption) {}
func (*notes) Record(look.Record)    {}
func (*notes) State(agent.Status)    {}

func (n *notes) Heard(h agent.Heard) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heard = append(n.heard, h)
}

func (n *notes) all() []agent.Heard {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.heard)
}

// TestModelHearsTheRoom: speech in a microphone of a real room is what the model hears, sample for sample but for the codec, and
// what the model says of it is what the room gets.
func TestModelHearsTheRoom(t *testing.T) {
	t.Parallel()
	cfg := configs.Default()
	asr := cfg.Inference.Recognizer
	src, err := checkpoint.Open(moduleRoot + "models/testdata/qwen3-asr/checkpoint")
	require.NoError(t, err)
	defer src.Close()
	asr.Program, asr.Device, asr.Bundle, asr.Slots = inference.RecognizerModel, "cpu", filepath.Join(t.TempDir(), "b"), 2
	require.NoError(t, convert.Convert(t.Context(), src, asr.Bundle, convert.Options{
		Weights: []models.Weights{models.WeightsFloat32}, Devices: []models.Device{models.DeviceCPU},
	}))
	r, err := bot.NewRecognizer(asr, moduleRoot+"bin/runtime", zerolog.Nop())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	defer func() { cancel(); require.NoError(t, <-ended) }()

	ears, out := &witness{Recognizer: r}, &notes{}
	cfg.Agent.Hearing.Mode, cfg.Inference.MiniCPM.Runtime = livesettings.HearingCaptions, moduleRoot+"bin/runtime"
	s, err := stage.New(ctx, stage.Options{
		Config: &cfg, Model: stage.NewEngine(3, 300*time.Millisecond, time.Second), Recognizer: ears, NoCamera: true,
		Texts: []agent.TextOutput{out}, Log: zerolog.Nop(),
	})
	require.NoError(t, err)
	defer s.Close()
	anna, leave, err := s.AddSpeaker(ctx, "anna", nil)
	require.NoError(t, err)
	defer leave()

	clip := sentence(t, "The keeper pushes it away. Number nine runs down the left, and nobody follows.")
	pcm := make([]int16, 2*48000, 9*48000) // the room subscribes meanwhile
	loud, err := resample.All(clip, 16000, 48000)
	require.NoError(t, err)
	for _, v := range loud {
		pcm = append(pcm, int16(32767*min(max(v, -1), 1)))
	}
	packets, err := stage.Opus(append(pcm, make([]int16, 2*48000)...))
	require.NoError(t, err)
	require.NoError(t, anna.Say(ctx, packets))
	finals := func() (list []agent.Heard) {
		for _, h := range out.all() {
			if h.Final {
				list = append(list, h)
			}
		}
		return list
	}
	_, err = stage.Until(ctx, time.Minute, "final texts", func() bool {
		last := finals()
		return len(last) > 0 && time.Since(last[len(last)-1].Ended) > 2*time.Second
	})
	require.NoError(t, err)

	ears.mu.Lock()
	defer ears.mu.Unlock()
	longest := 0
	for i, h := range finals() {
		require.Equal(t, "anna", h.Identity)
		require.True(t, h.Caption)
		require.Equal(t, strings.TrimSpace(ears.texts[i]), strings.TrimSpace(h.Text))
		if len(ears.sounds[i]) > len(ears.sounds[longest]) {
			longest = i
		}
	}
	var offline []string
	for part, err := range r.Transcribe(ctx, ears.sounds[longest], inference.Hearing{Context: "hey touchline"}) {
		require.NoError(t, err)
		offline = append(offline, part.Text)
	}
	require.Equal(t, inference.JoinTranscripts(offline...), ears.texts[longest], "what the model says of this sound")
	likeness, at := correlate(ears.sounds[longest], clip)
	t.Logf("heard %d samples, likeness %.3f from sample %d of the clip", len(ears.sounds[longest]), likeness, at)
	require.Greater(t, likeness, 0.9)
}

// sentence returns speech of 16 kHz by flite: the sounds of the model's fixtures are no speech to the detector.
func sentence(t *testing.T, text string) []float32 {
	t.Helper()
	synth, err := voice.New(inference.VoiceConfig{Program: "flite", Language: "en"}, zerolog.Nop())
	require.NoError(t, err)
	var pcm []int16
	rate := 0
	for c, err := range synth.Speak(t.Context(), text, "flite:slt", "en") {
		require.NoError(t, err)
		if len(c.Audio) > 0 {
			rate, pcm = c.AudioRate, append(pcm, c.Audio...)
		}
	}
	sound := make([]float32, len(pcm))
	for i, v := range pcm {
		sound[i] = float32(v) / (1 << 15)
	}
	sound, err = resample.All(sound, rate, 16000)
	require.NoError(t, err)
	return sound
}

// correlate returns the greatest correlation of heard with a stretch of said, and where that begins.
func correlate(heard, said []float32) (best float64, at int) {
	const part = 8000 // half a second: on a busy machine a packet comes late, and silence takes its place
	for start := 0; start+part <= len(heard); start += part {
		for from := 0; from+part <= len(said); from++ {
			var ab, aa, bb float64
			for i := 0; i < part; i += 4 {
				a, b := float64(heard[start+i]), float64(said[from+i])
				ab, aa, bb = ab+a*b, aa+a*a, bb+b*b
			}
			if c := ab / math.Sqrt(aa*bb+1e-12); c > best {
				best, at = c, from
			}
		}
	}
	return best, at
}
