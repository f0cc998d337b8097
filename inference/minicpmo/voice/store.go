package voice

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"touchline/inference"
	"touchline/inference/internal/mel"
	"touchline/models"
	"touchline/models/safetensors"
)

// Numbers of codes of a Reference: 6 or 3 seconds of its sound.
const (
	Long  = mel.LongReference
	Short = mel.ShortReference
)

// ErrShort is returned for a voice with less sound than its number of codes needs.
var ErrShort = mel.ErrShort

// errNoVoice is returned for a bundle that cannot speak.
var errNoVoice = fmt.Errorf("%w: convert a checkpoint that has the tts tensors and the folder assets", inference.ErrNoVoice)

// Reference holds the data of a reference voice: its prompt's codes, at 25 a second, their
// spectrogram [2*codes,mel], and the embedding of the speaker.
//
// The caches that a turn of the voice begins with (0.2 to 0.4 GB) are not part of it. An
// engine computes them when it loads, in a fraction of a second, in the format of its device.
type Reference struct {
	Codes   []int32
	Mel     []float32
	Speaker []float32
}

// check returns an error unless the voice fits the networks.
func (v Reference) check(f models.Flow) error {
	finite := func(values []float32) bool {
		return !slices.ContainsFunc(values, func(x float32) bool { return math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) })
	}
	n := len(v.Codes)
	switch {
	case n != Long && n != Short:
		return fmt.Errorf("codes: must be %d or %d, got %d", Long, Short, n)
	case len(v.Mel) != 2*n*f.Mel:
		return fmt.Errorf("mel: must have %d numbers, got %d", 2*n*f.Mel, len(v.Mel))
	case len(v.Speaker) != f.Speaker:
		return fmt.Errorf("speaker: must have %d numbers, got %d", f.Speaker, len(v.Speaker))
	case !finite(v.Mel) || !finite(v.Speaker):
		return errors.New("some numbers are not finite")
	case !slices.ContainsFunc(v.Speaker, func(x float32) bool { return x != 0 }):
		return errors.New("speaker: all numbers are 0")
	}
	for i, c := range v.Codes {
		if c < 0 || int(c) >= f.Codes {
			return fmt.Errorf("codes: code %d must be below %d, is %d", i, f.Codes, c)
		}
	}
	return nil
}

// cut returns the voice with fewer codes: the last ones. Speech goes on right behind the prompt, so its end, which was put in a
// pause, must stay; and the newest sound counts most. The speaker is taken from the whole sound.
func (v Reference) cut(codes int) Reference {
	from := len(v.Codes) - codes
	width := len(v.Mel) / len(v.Codes)
	return Reference{Codes: v.Codes[from:], Mel: v.Mel[from*width:], Speaker: v.Speaker}
}

const (
	voicesFolder = "voices"
	voiceSuffix  = ".safetensors"
	// maxVoice is the largest file of a voice, in bytes.
	maxVoice = 1 << 20

	// The metadata of a voice's file. Other versions of the format are refused.
	voiceFormatKey, voiceFormat = "touchline_voice", "1"
	voiceModelKey               = "model" // the manifest's name
	voiceSourceKey              = "source"
)

// Stored is a voice in a bundle's folder.
type Stored struct {
	Reference

	Source string // the SHA-256 of the sound's file
}

// voiceName matches the names of voices, which are also names of files.
var voiceName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// CheckName returns an error for a name that a voice cannot have.
func CheckName(name string) error {
	if !voiceName.MatchString(name) {
		return fmt.Errorf("the name of a voice must be 1 to 64 letters, digits, - and _, is %q", name)
	}
	return nil
}

func voicePath(b *models.Bundle, name string) string {
	return filepath.Join(b.Path(voicesFolder), name+voiceSuffix)
}

// Names returns the names of the voices that are stored in a bundle's folder. LoadDefault can make one more.
func Names(b *models.Bundle) ([]string, error) {
	entries, err := os.ReadDir(b.Path(voicesFolder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list voices: %w", err)
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), voiceSuffix); ok && voiceName.MatchString(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// Save stores a voice in the bundle's folder, replacing one of the same name. The manifest is not changed.
func Save(b *models.Bundle, name string, v Stored) (err error) {
	if err := CheckName(name); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("store voice %q: %w", name, err)
		}
	}()
	if b.Manifest.Dims.Speech == nil {
		return errNoVoice
	}
	if err := v.check(b.Manifest.Dims.Speech.Flow); err != nil {
		return err
	}
	content, err := v.encode(b)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.Path(voicesFolder), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(b.Path(voicesFolder), "."+name+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), voicePath(b, name))
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// encode returns the content of the voice's file.
func (v Stored) encode(b *models.Bundle) ([]byte, error) {
	n, f := len(v.Codes), b.Manifest.Dims.Speech.Flow
	entry := func(name string, t models.Type, shape ...int) safetensors.Entry {
		return safetensors.Entry{Name: name, TensorInfo: models.TensorInfo{Type: t, Shape: shape}}
	}
	var out bytes.Buffer
	w, err := safetensors.NewWriter(&out, []safetensors.Entry{
		entry("codes", models.Int32, n), entry("mel", models.Float32, 2*n, f.Mel), entry("speaker", models.Float32, f.Speaker),
	}, map[string]string{voiceFormatKey: voiceFormat, voiceModelKey: b.Manifest.Name, voiceSourceKey: v.Source})
	if err != nil {
		return nil, err
	}
	for _, values := range []any{v.Codes, v.Mel, v.Speaker} {
		if err := binary.Write(w, binary.LittleEndian, values); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}

// Read reads a stored voice, as it was made. A file that is damaged, of another model or of another version is refused.
func Read(b *models.Bundle, name string) (Stored, error) {
	if err := CheckName(name); err != nil {
		return Stored{}, err
	}
	path := voicePath(b, name)
	var v Stored
	content, err := models.ReadFile(path, maxVoice)
	if errors.Is(err, fs.ErrNotExist) {
		return v, unknownVoice(b, name)
	}
	var failed *fs.PathError
	if errors.As(err, &failed) {
		return Stored{}, fmt.Errorf("voice %q: %w", name, err)
	}
	if err == nil {
		v, err = parseVoice(path, content, &b.Manifest)
	}
	if err != nil {
		return Stored{}, fmt.Errorf("voice %q: %w: remove it with `touchline models voice remove`, and add it again", name, err)
	}
	return v, nil
}

func unknownVoice(b *models.Bundle, name string) error {
	names, err := Names(b)
	if err != nil {
		return err
	}
	known := "it has none"
	if len(names) > 0 {
		known = "it has " + strings.Join(names, ", ")
	}
	return fmt.Errorf("the bundle has no voice %q, %s: add it with `touchline models voice add`", name, known)
}

// parseVoice reads the content of a voice's file.
func parseVoice(path string, content []byte, m *models.Manifest) (v Stored, err error) {
	if m.Dims.Speech == nil {
		return v, errNoVoice
	}
	f, err := safetensors.Parse(path, content)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	meta, flow := f.Metadata(), m.Dims.Speech.Flow
	if got := meta[voiceFormatKey]; got != voiceFormat {
		return v, fmt.Errorf("%s: expected a voice of format %s, got %q", path, voiceFormat, got)
	}
	if got := meta[voiceModelKey]; got != m.Name {
		return v, fmt.Errorf("%s: expected a voice of the model %q, got one of %q", path, m.Name, got)
	}
	codes, ok := f.Tensor("codes")
	if !ok || codes.Type != models.Int32 || len(codes.Shape) != 1 {
		return v, fmt.Errorf("%s: expected a vector of int32, codes", path)
	}
	ids, err := codes.Ints()
	if err != nil {
		return v, err
	}
	for _, c := range ids {
		v.Codes = append(v.Codes, int32(c)) //nolint:gosec // of the type Int32, checked above
	}
	floats := func(name string, shape ...int) []float32 {
		t, ok := f.Tensor(name)
		if !ok || t.Type != models.Float32 || !slices.Equal(t.Shape, shape) {
			err = errors.Join(err, fmt.Errorf("%s: expected float32 of shape %v, %s", path, shape, name))
			return nil
		}
		values, failed := t.Floats()
		err = errors.Join(err, failed)
		return values
	}
	v.Mel, v.Speaker = floats("mel", 2*len(ids), flow.Mel), floats("speaker", flow.Speaker)
	v.Source = meta[voiceSourceKey]
	if err != nil {
		return v, err
	}
	if err := v.check(flow); err != nil {
		return v, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

// Load reads a stored voice for an engine whose voices have a number of codes. Of a longer voice it takes the last
// codes; a shorter one is refused with ErrShort.
func Load(b *models.Bundle, name string, codes int) (Reference, error) {
	v, err := Read(b, name)
	if err != nil {
		return Reference{}, err
	}
	if codes < 1 || codes > len(v.Codes) {
		return Reference{}, fmt.Errorf("voice %q: %w: it has %d codes, the engine's voices have %d: add it again from at least %d s of speech",
			name, ErrShort, len(v.Codes), codes, codes/25)
	}
	return v.cut(codes), nil
}

// LoadDefault is Load for the voice "default". If it is not stored yet, or made of the bundle's own sound with fewer
// codes, it is made of that sound, and stored if the bundle's folder can be written.
func LoadDefault(ctx context.Context, library string, b *models.Bundle, codes int) (Reference, error) {
	m := &b.Manifest
	if m.Voice == nil {
		return Reference{}, errNoVoice
	}
	sum := ""
	for _, f := range m.Files {
		if f.Name == m.Voice.Sound {
			sum = f.SHA256
		}
	}
	if _, err := os.Stat(voicePath(b, inference.DefaultVoice)); !errors.Is(err, fs.ErrNotExist) {
		v, err := Load(b, inference.DefaultVoice, codes)
		if !errors.Is(err, ErrShort) {
			return v, err
		}
		if stored, readErr := Read(b, inference.DefaultVoice); readErr != nil || stored.Source != sum {
			return v, err
		}
	}
	if m.Voice.Sound == "" {
		return Reference{}, fmt.Errorf("%w: the bundle has no sound for %q: add that voice with `touchline models voice add`",
			inference.ErrNoVoice, inference.DefaultVoice)
	}
	v, err := MakeFrom(ctx, library, b, b.Path(m.Voice.Sound), codes)
	if err != nil {
		return Reference{}, err
	}
	_ = Save(b, inference.DefaultVoice, v) // a bundle may be read-only: then the voice is made at every start
	return v.Reference, nil
}

// Remove removes a stored voice, a damaged one too.
func Remove(b *models.Bundle, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	err := os.Remove(voicePath(b, name))
	if errors.Is(err, fs.ErrNotExist) {
		return unknownVoice(b, name)
	}
	return err
}
