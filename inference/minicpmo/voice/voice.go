// Package voice is the own voice of the MiniCPM-o engine: it turns the tokens of an answer, with the decoder's states, into speech.
//
// A language model draws codes on the thread that owns the engine's device; flow and vocoder turn them into sound on a thread and a
// stream of their own. The package also makes, stores and loads reference voices.
package voice

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"touchline/inference"
	"touchline/inference/internal/ort"
	"touchline/inference/minicpmo/voice/tts"
	"touchline/inference/step"
	"touchline/models"
)

// noiseRows is the length of the vocoder's noise, which repeats.
const noiseRows = 8192

// Options of a voice.
type Options struct {
	Runtime *ort.Runtime
	Device  *ort.Device
	// Library is the folder of ONNX Runtime, with which a missing default voice is made.
	Library string
	Threads int
	// Seed is the seed of the noise that the flow and the vocoder start from.
	Seed uint64
	Now  func() time.Time
	// Owner of the device; the voice becomes its client.
	Owner *step.Owner
	// Wake is called when the talker has new work, from any goroutine.
	Wake func()
	Log  zerolog.Logger
	// References replace the voices of the bundle, if they are not nil.
	References map[string]Reference
}

// Speech is a loaded voice. Its language model works on the thread that opened it, its sound on a thread and a stream of its own.
type Speech struct {
	Talker *tts.Talker

	client  *step.Client
	lm      *LM
	sounder *tts.Sounder
	names   map[string]bool // of its references
	slots   int
	long    atomic.Uint64
	lost    atomic.Uint64

	options tts.TalkerOptions
	opened  chan error // the sound, once

	cancel context.CancelFunc
	ended  chan struct{} // the goroutine of the sound
}

// Open loads the language model of a voice and its references. It is called by the goroutine that owns the device. The goroutine of the
// sound, which ends with ctx or Close, loads the rest: see Wait.
func Open(ctx context.Context, s *Selection, o Options) (_ *Speech, err error) {
	if err := s.LoadReferences(ctx, o); err != nil {
		return nil, err
	}
	lm, err := s.OpenLM(o)
	if err != nil {
		return nil, err
	}
	if err := lm.Warm(ctx); err != nil {
		return nil, errors.Join(err, lm.Close())
	}
	v := &Speech{
		client: o.Owner.Join(step.Commentary), lm: lm, names: map[string]bool{}, slots: s.Layout.Slots,
		opened: make(chan error, 1), ended: make(chan struct{}),
	}
	for name := range s.references {
		v.names[name] = true
	}
	v.options = tts.TalkerOptions{
		LM: lm, Layout: s.Layout, Settings: tts.Official(), End: int32(s.dims.Speech.TTS.Codes - 1), //nolint:gosec // a size that was checked
		Silence: silenceCode, Client: v.client, Now: o.Now, Wake: o.Wake,
	}
	ctx, v.cancel = context.WithCancel(ctx)
	go v.sound(ctx, s, o) // ended by Close
	return v, nil
}

// Wait waits until the voice is loaded, and makes its Talker.
func (v *Speech) Wait(ctx context.Context) (err error) {
	select {
	case err = <-v.opened:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err == nil {
		v.Talker, err = tts.NewTalker(v.options, v.sounder)
	}
	return err
}

// Close ends the sound and frees everything.
func (v *Speech) Close() error {
	v.cancel()
	<-v.ended
	v.client.Leave()
	return v.lm.Close()
}

// sound is the goroutine of the voice's sound.
func (v *Speech) sound(ctx context.Context, s *Selection, o Options) {
	defer close(v.ended)
	runtime.LockOSThread() // Never unlocked: captured graphs belong to the thread, which ends with the goroutine.
	dev, err := o.Device.Beside()
	if err != nil {
		v.opened <- err
		return
	}
	defer func() { _ = dev.Close() }()
	loaded, err := o.Owner.Load(ctx, step.Commentary)
	if err != nil {
		v.opened <- err
		return
	}
	w, err := s.OpenWave(ctx, dev, o)
	if err != nil && ctx.Err() == nil && !errors.Is(err, ort.ErrDeviceLost) && !errors.Is(err, ort.ErrOutOfMemory) {
		o.Log.Warn().Err(err).Msg("the voice did not load; once more") // a run of commentary can end the capture of a graph
		w, err = s.OpenWave(ctx, dev, o)
	}
	loaded()
	if err != nil {
		v.opened <- err
		return
	}
	defer func() { _ = w.Close() }()
	v.sounder = tts.NewSounder(w, v.client, o.Now, o.Wake)
	v.opened <- nil
	if err := v.sounder.Run(ctx); err != nil {
		o.Log.Error().Err(err).Msg("the voice is lost")
	}
}

// Slots returns the number of answers that are spoken at once.
func (v *Speech) Slots() int { return v.slots }

// LongTurns returns the number of turns that were too long for a slot.
func (v *Speech) LongTurns() uint64 { return v.long.Load() }

// LostTurns returns the number of turns whose sound failed.
func (v *Speech) LostTurns() uint64 { return v.lost.Load() }

// Names returns the names of the references.
func (v *Speech) Names() map[string]bool { return v.names }

// reference returns the reference of a prompt's voice: "model:NAME", else the default one.
func (v *Speech) reference(voice string) string {
	if name, ok := strings.CutPrefix(voice, inference.VoiceModel+":"); ok && v.names[name] {
		return name
	}
	return inference.DefaultVoice
}

// maxReferences is the maximum number of reference voices of an engine; each takes 0.2 to 0.4 GB of the device's memory.
const maxReferences = 8

// LoadReferences reads the references of the bundle: with the planned number of codes, or with Short codes if the default voice has no
// more.
func (s *Selection) LoadReferences(ctx context.Context, o Options) (err error) {
	s.references = o.References
	if s.references == nil {
		if s.references, err = loadReferences(ctx, s.bundle, o, s.Prompt/2); err != nil {
			return err
		}
	}
	v, ok := s.references[inference.DefaultVoice]
	if !ok {
		return fmt.Errorf("%w: the bundle has no reference sound: add one with `touchline models voice add`", inference.ErrNoVoice)
	}
	s.Prompt = 2 * len(v.Codes)
	return nil
}

// OnlyDefault drops all references but the default voice.
func (s *Selection) OnlyDefault() {
	s.references = map[string]Reference{inference.DefaultVoice: s.references[inference.DefaultVoice]}
}

// loadReferences returns the references of a bundle, with the given number of codes if the default voice has as many, else with Short. It
// fails without the default voice; other unreadable voices are left out.
func loadReferences(ctx context.Context, b *models.Bundle, o Options, codes int) (map[string]Reference, error) {
	v, err := LoadDefault(ctx, o.Library, b, codes)
	if errors.Is(err, ErrShort) && codes > Short {
		codes = Short
		v, err = LoadDefault(ctx, o.Library, b, codes)
	}
	if err != nil {
		return nil, err
	}
	references := map[string]Reference{inference.DefaultVoice: v}
	names, err := Names(b)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if name == inference.DefaultVoice {
			continue
		}
		if len(references) == maxReferences {
			o.Log.Warn().Str("voice", name).Int("most", maxReferences).Msg("voice left out: there are too many")
			continue
		}
		v, err := Load(b, name, codes)
		if err != nil {
			o.Log.Warn().Err(err).Str("voice", name).Msg("voice left out")
			continue
		}
		references[name] = v
	}
	return references, nil
}

// OpenLM opens the language model of the codes.
func (s *Selection) OpenLM(o Options) (*LM, error) {
	return OpenLM(o.Runtime, o.Device, s.bundle, s.lm, s.Layout, o.Threads)
}

// OpenWave opens the networks of the sound on a device, with the references, and warms them up.
func (s *Selection) OpenWave(ctx context.Context, dev *ort.Device, o Options) (*Wave, error) {
	w, err := OpenWave(o.Runtime, dev, WaveOptions{
		Files: [5]string{
			s.files[models.KindFlowEncoder], s.files[models.KindFlowDiT], s.files[models.KindFlowDiTOnce], s.files[models.KindVocoder],
			s.files[models.KindVocoderTail],
		},
		Float: s.float, Dims: *s.dims.Speech, Slots: s.Layout.Slots, Prompt: s.Prompt, Threads: o.Threads,
		Noise: randomNoise(s.Prompt, s.dims.Speech.Flow.Mel, o.Seed),
	})
	if err != nil {
		return nil, err
	}
	for name, voice := range s.references {
		if err := w.AddVoice(name, voice); err != nil {
			return nil, errors.Join(err, w.Close())
		}
	}
	if err := w.warm(ctx); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// randomNoise returns normal noise.
func randomNoise(prompt, mel int, seed uint64) Noise {
	random := rand.New(rand.NewPCG(seed, 2))
	normal := func(n int) []float32 {
		out := make([]float32, n)
		for i := range out {
			out[i] = float32(random.NormFloat64())
		}
		return out
	}
	return Noise{
		Flow: normal((prompt + keptPrompt + 2*tts.WindowCodes) * mel), Vocoder: normal(noiseRows * models.NoiseColumns),
		Rows: func(_, n int) int { return random.IntN(noiseRows - n + 1) },
	}
}
