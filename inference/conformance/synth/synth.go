// Package synth generates checkpoints of random weights, for tests and for
// measuring a model of the real shape without its weights.
//
// A Source stores no weights. It computes each from the seed, the tensor's name
// and the position, so any rows can be read in any order and on any core with the
// same result.
package synth

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"math"
	"path"
	"slices"
	"strings"

	"touchline/models"
	"touchline/models/checkpoint"
)

// Source is a checkpoint of random weights: bfloat16, and float32 for the flow and the vocoder, as
// published.
type Source struct {
	shape   Shape
	seed    uint64
	names   []string
	tensors map[string]*tensor
	files   map[string][]byte
}

var _ models.Source = (*Source)(nil)

// tensor holds the parameters of a computed tensor.
type tensor struct {
	spec

	info models.TensorInfo
	key  uint64
	// table holds the values at the middles of equally likely parts of the distribution; below has
	// the values for quiet rows.
	table, below *[tableSize]float32
}

const (
	tableBits = 12
	tableSize = 1 << tableBits
)

// New returns a checkpoint of a shape. The same seed yields the same weights.
func New(shape Shape, seed uint64) (*Source, error) {
	s := &Source{shape: shape, seed: seed, tensors: map[string]*tensor{}}
	type moments struct{ mean, std float64 }
	normal := quantiles()
	tables := map[moments]*[tableSize]float32{}
	table := func(mean, std float64) *[tableSize]float32 {
		m := moments{mean, std}
		if tables[m] == nil {
			t := new([tableSize]float32)
			for i, z := range normal {
				t[i] = models.BFloat16FromBits(models.BFloat16Bits(float32(mean + std*z)))
			}
			tables[m] = t
		}
		return tables[m]
	}
	for _, p := range shape.specs() {
		h := fnv.New64a()
		_, _ = h.Write([]byte(p.name))
		t := &tensor{
			spec: p, info: models.TensorInfo{Type: p.typ(), Shape: p.shape},
			key: mix(h.Sum64() ^ mix(seed)), table: table(p.mean, p.std),
		}
		t.below = table(p.mean*quietFactor, p.std*quietFactor)
		s.tensors[p.name] = t
	}
	s.names = slices.Sorted(maps.Keys(s.tensors))
	var err error
	if s.files, err = shape.files(); err == nil && shape.Speech != nil {
		err = s.addVoice()
	}
	return s, err
}

// quantiles returns the quantiles of the standard normal distribution at the middles of tableSize equal parts.
func quantiles() []float64 {
	q := make([]float64, tableSize)
	for i := range q {
		q[i] = math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/tableSize-1)
	}
	return q
}

// mix is the finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Names returns the names of all tensors, sorted.
func (s *Source) Names() []string { return slices.Clone(s.names) }

// Info returns a tensor's type and shape; false if there is none of the name.
func (s *Source) Info(name string) (models.TensorInfo, bool) {
	if t, ok := s.tensors[name]; ok {
		return t.info, true
	}
	return models.TensorInfo{}, false
}

// Rows computes rows of a tensor; see models.Source.
func (s *Source) Rows(dst []float32, name string, from, to int) error {
	t, ok := s.tensors[name]
	if !ok {
		return fmt.Errorf("no tensor %q", name)
	}
	cols := t.info.Cols()
	if from < 0 || to < from || to > t.info.Rows() || len(dst) != (to-from)*cols {
		return fmt.Errorf("tensor %q: rows must be within 0 to %d and fit the buffer, are %d to %d with a buffer of %d values",
			name, t.info.Rows(), from, to, len(dst))
	}
	loud := to
	if t.quiet > 0 {
		loud = min(max(t.quiet, from), to)
	}
	t.fill(dst[:(loud-from)*cols], t.table, from*cols)
	t.fill(dst[(loud-from)*cols:], t.below, loud*cols)
	return nil
}

// fill computes elements from first on. Four elements share a random number.
func (t *tensor) fill(dst []float32, table *[tableSize]float32, first int) {
	one := func(i int) float32 {
		return table[mix(t.key+uint64(i/4))>>(16*(i%4))&(tableSize-1)]
	}
	for ; first%4 != 0 && len(dst) > 0; first++ {
		dst[0] = one(first)
		dst = dst[1:]
	}
	counter := t.key + uint64(first/4)
	for len(dst) >= 4 {
		x := mix(counter)
		counter++
		d := dst[:4]
		d[0] = table[x&(tableSize-1)]
		d[1] = table[x>>16&(tableSize-1)]
		d[2] = table[x>>32&(tableSize-1)]
		d[3] = table[x>>48&(tableSize-1)]
		dst, first = dst[4:], first+4
	}
	for i := range dst {
		dst[i] = one(first + i)
	}
}

// Packed returns the int4 form of a matrix of an AWQ shape.
func (s *Source) Packed(name string) (models.PackedLinear, bool) {
	t, ok := s.tensors[name]
	ok = ok && s.shape.AWQ && strings.HasPrefix(name, "llm.model.layers.") && len(t.shape) == 2
	return packed{s, t}, ok
}

// awqBlock is the number of inputs of a scale.
const awqBlock = 128

// packed is a matrix whose values are rounded to int4. Its zero points are 7 and 8 in turn.
type packed struct {
	s *Source
	t *tensor
}

func (p packed) Dims() (n, k, block int) { return p.t.info.Rows(), p.t.info.Cols(), awqBlock }

func (p packed) Rows(quants []byte, scales []uint16, zeros []byte, from, to int) error {
	k := p.t.info.Cols()
	row := make([]float32, (to-from)*k)
	if err := p.s.Rows(row, p.t.name, from, to); err != nil {
		return err
	}
	const widest = 3 // deviations
	scale := models.Float16Bits(float32(p.t.std * widest / 8))
	for i := range scales {
		scales[i] = scale
	}
	for i := range zeros {
		zeros[i] = 0x87
	}
	clear(quants)
	for i, v := range row {
		q := math.Round(float64(v/models.Float16FromBits(scale))) + float64(7+i%k/awqBlock%2)
		quants[i/2] |= byte(min(max(q, 0), 15)) << (4 * (i & 1))
	}
	return nil
}

// File returns one of the checkpoint's small files, or fs.ErrNotExist.
func (s *Source) File(name string) ([]byte, error) {
	content, ok := s.files[name]
	if !ok && name == models.TokenizerName {
		return checkpoint.JoinTokenizer(s.File)
	}
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return slices.Clone(content), nil
}

// Origin names the shape and the seed.
func (s *Source) Origin() models.Origin {
	return models.Origin{Path: fmt.Sprintf("synth:%s?seed=%d", s.shape.Name, s.seed)}
}

// Close does nothing.
func (s *Source) Close() error { return nil }

// Describe returns the manifest without graphs and files, as for a published
// checkpoint.
func (s *Source) Describe() (models.Manifest, error) {
	if s.shape.Hearing != nil {
		return s.describeHearing()
	}
	tokens := s.shape.specialTokens()
	m := models.Manifest{
		Format: s.shape.Format(), Name: s.shape.Name, Source: s.Origin(), Dims: s.shape.Dims,
		Tokens: tokens,
		Stop:   []string{"<|im_end|>", "<|endoftext|>"}, StopSpeech: []string{"<|tts_eos|>", "<|im_end|>", "<unk>"},
		Forbidden: s.shape.forbidden(),
		Template: models.Template{
			System: "<|im_start|>system\n", User: "<|im_start|>user\n", Assistant: "<|im_start|>assistant\n",
			End: "<|im_end|>\n", NoThink: "<think>\n\n</think>\n\n", Speech: "<|tts_bos|>",
		},
	}
	if v := s.shape.Vision; v != nil {
		copied := *v
		m.Dims.Vision = &copied
		m.Image = models.Image{
			MaxSlices: s.shape.MaxSlices, ScaleResolution: s.shape.ScaleResolution, Patch: v.Patch, Features: v.Queries,
			UseImageID: true, Mean: [3]float64{.5, .5, .5}, Std: [3]float64{.5, .5, .5},
		}
	} else {
		m.Missing = append(m.Missing, "vision")
	}
	if speech := s.shape.Speech; speech != nil {
		copied := *speech
		m.Dims.Speech = &copied
		m.Voice = &models.Voice{Speaker: path.Base(speakerName), Codes: path.Base(codesName), Sound: path.Base(soundName)}
	} else {
		m.Missing = append(m.Missing, "speech")
	}
	if s.shape.firstToken() < len(alphabet()) {
		return m, errors.New("vocab: too small for 256 bytes and the special tokens")
	}
	return m, nil
}
