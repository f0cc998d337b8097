package voice

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	networks "touchline/inference/internal/device"
	"touchline/inference/internal/mel"
	"touchline/inference/internal/ort"
	"touchline/internal/resample"
	"touchline/internal/wav"
	"touchline/models"
)

const (
	// maxSound is the longest sound that a voice is made of, in seconds: it bounds time and memory.
	maxSound = 600
	// maxWAV is the largest file that is read, in bytes.
	maxWAV = 100 << 20
)

// Make makes a voice of mono speech at any usual rate: it selects the part with the most speech that begins and ends in
// pauses, Long or Short codes long, and runs the bundle's models on the CPU. Speech that is too short, too soft or
// clipped is refused. library is ONNX Runtime, as in Config.
func Make(ctx context.Context, library string, b *models.Bundle, samples []float32, rate, codes int) (Reference, error) {
	graphs := b.Manifest.VoiceGraphs()
	if len(graphs) != 2 {
		return Reference{}, errNoVoice
	}
	if err := checkCodes(b, codes); err != nil {
		return Reference{}, err
	}
	sound, err := reference(samples, rate, codes)
	if err != nil {
		return Reference{}, err
	}
	var v Reference
	if v.Mel, err = mel.Prompt(sound, codes); err != nil {
		return Reference{}, err
	}
	bank, err := mel.Speaker(sound)
	if err != nil {
		return Reference{}, err
	}
	speech, err := mel.Speech(sound)
	if err != nil {
		return Reference{}, err
	}
	m, err := openVoiceMachine(library)
	if err != nil {
		return Reference{}, err
	}
	defer m.close()
	flow := b.Manifest.Dims.Speech.Flow
	v.Speaker, v.Codes = make([]float32, flow.Speaker), make([]int32, codes)
	frames := int64(len(speech) / mel.SpeechBins)
	runs := [][]port{
		{
			{"input", models.Float32, ort.Bytes(bank), []int64{1, int64(len(bank) / mel.SpeakerBins), mel.SpeakerBins}},
			{"output", models.Float32, ort.Bytes(v.Speaker), []int64{1, int64(flow.Speaker)}},
		},
		{
			{"feats", models.Float32, ort.Bytes(speech), []int64{1, mel.SpeechBins, frames}},
			{"feats_length", models.Int32, ort.Bytes([]int32{int32(frames)}), []int64{1}}, //nolint:gosec // at most maxSound seconds
			{"indices", models.Int32, ort.Bytes(v.Codes), []int64{1, int64(codes)}},
		},
	}
	for i, g := range graphs {
		if err := m.run(ctx, b.Path(g.File), runs[i]); err != nil {
			return Reference{}, fmt.Errorf("make a voice: %s: %w", g.File, err)
		}
	}
	if err := v.check(flow); err != nil {
		return Reference{}, fmt.Errorf("make a voice: %w: check the bundle with `touchline models verify`", err)
	}
	return v, nil
}

// checkCodes checks the number of codes of a new voice.
func checkCodes(b *models.Bundle, codes int) error {
	if codes != Long && codes != Short {
		return fmt.Errorf("make a voice: codes must be %d or %d, is %d", Long, Short, codes)
	}
	if most := b.Manifest.Dims.Speech.Flow.MaxPrompt; codes > most {
		return fmt.Errorf("make a voice: codes must be at most %d with this bundle, is %d", most, codes)
	}
	return nil
}

// reference returns the part of a sound that a voice is made of, at 16 kHz.
func reference(samples []float32, rate, codes int) ([]float32, error) {
	if rate > 0 && len(samples) > maxSound*rate {
		return nil, fmt.Errorf("reference voice: the sound is longer than %d s: use a part of it", maxSound)
	}
	if err := mel.CheckReference(samples, rate); err != nil {
		return nil, err
	}
	sound, err := resample.All(samples, rate, mel.Rate)
	if err != nil {
		return nil, fmt.Errorf("reference voice: %w", err)
	}
	part := mel.CutReference(sound, codes)
	if len(part) != codes*mel.Rate/25 {
		return nil, fmt.Errorf("reference voice: %w: %.1f s, pauses included; %d codes need about %d s of speech: use a longer recording, "+
			"or `--codes %d`", ErrShort, float64(len(samples))/float64(rate), codes, codes/25, Short)
	}
	return part, nil
}

// voiceMachine runs the models that make voices. They are loaded for one run each: they are as large as the voice itself.
type voiceMachine struct {
	runtime *ort.Runtime
	device  *ort.Device
}

func openVoiceMachine(library string) (*voiceMachine, error) {
	rt, err := ort.Open(library)
	if err != nil {
		return nil, err
	}
	dev, err := rt.NewDevice(ort.CPU, 0)
	if err != nil {
		return nil, errors.Join(err, rt.Close())
	}
	return &voiceMachine{rt, dev}, nil
}

func (m *voiceMachine) close() {
	_, _ = m.device.Close(), m.runtime.Close() // these only count the uses
}

// port is an input, or the last one, an output, of a model.
type port struct {
	name  string
	typ   models.Type
	bytes []byte
	shape []int64
}

// run runs a model once and writes its output.
func (m *voiceMachine) run(ctx context.Context, path string, ports []port) (err error) {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	s, err := m.runtime.NewSession(path, m.device, ort.SessionOptions{NoMemoryPattern: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	a := networks.NewArena(m.runtime, m.device)
	defer func() { err = errors.Join(err, a.Close()) }()
	run, err := a.NewRun(s, ort.NoGraph)
	if err != nil {
		return err
	}
	output := len(ports) - 1
	var result *ort.Memory
	for i, p := range ports {
		memory, tensor, err := a.Tensor(p.name, p.typ, p.shape...)
		if err != nil {
			return err
		}
		if i == output {
			result = memory
			err = run.BindOutput(p.name, tensor)
		} else if err = m.device.CopyIn(memory.At(0), p.bytes); err == nil {
			err = run.BindInput(p.name, tensor)
		}
		if err != nil {
			return err
		}
	}
	if err := run.Do(); err != nil {
		return err
	}
	return errors.Join(m.device.CopyOut(ports[output].bytes, result.At(0)), m.device.Synchronize())
}

// MakeFrom is Make for a WAV file.
func MakeFrom(ctx context.Context, library string, b *models.Bundle, path string, codes int) (Stored, error) {
	content, err := models.ReadFile(path, maxWAV)
	if err != nil {
		return Stored{}, fmt.Errorf("reference voice: %w", err)
	}
	samples, rate, err := wav.Parse(content)
	if err != nil {
		return Stored{}, fmt.Errorf("reference voice: %s: %w: convert it to WAV first", path, err)
	}
	v, err := Make(ctx, library, b, samples, rate, codes)
	if err != nil {
		return Stored{}, fmt.Errorf("%s: %w", path, err)
	}
	sum := sha256.Sum256(content)
	return Stored{Reference: v, Source: hex.EncodeToString(sum[:])}, nil
}
