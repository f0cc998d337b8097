// Package checkpoint reads a model's folder as published on the Hugging Face
// hub: config.json, safetensors in one file or in shards, the tokenizer's files,
// and the voice's in the folder assets. It supports MiniCPM-o 4.5, its AWQ variant, plain Qwen3, Qwen3-ASR and
// Qwen3-ForcedAligner.
//
// A Checkpoint is a models.Source of named tensors. The int4 layers of AWQ
// appear as plain weights. Describe returns the manifest that the engine needs.
// Weights stay in the mapped files and are converted on reading.
package checkpoint

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"touchline/models"
	"touchline/models/safetensors"
)

const (
	indexName  = "model.safetensors.index.json"
	singleName = "model.safetensors"

	// maxFile is the maximum size for File. The real tokenizer.json has 11 MB.
	maxFile = 128 << 20
)

// Checkpoint is an open folder. It is safe for concurrent use until Close.
type Checkpoint struct {
	dir    string
	config config
	files  []*safetensors.File
	shards []string // file names, ".gz" included
	temp   string   // folder of the unpacked shards, or empty
	plain  map[string]safetensors.Tensor
	packed map[string]*awqLinear // by the name of the plain weight
	int8   map[string]int8Rows
	names  []string

	mu     sync.Mutex
	hashes map[string]string // by file, after Hash
}

var _ models.Source = (*Checkpoint)(nil)

// Open reads the folder's config.json and the position, type and shape of every
// tensor. Gzipped shards (name.safetensors.gz instead of name.safetensors) are
// unpacked to a temporary folder until Close. Errors name the file and the field
// or tensor.
func Open(dir string) (*Checkpoint, error) {
	c := &Checkpoint{dir: dir, plain: map[string]safetensors.Tensor{}, packed: map[string]*awqLinear{}, int8: map[string]int8Rows{}}
	if err := c.open(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Checkpoint) open() error {
	content, err := c.File("config.json")
	if err != nil {
		return fmt.Errorf("open checkpoint: %w", err)
	}
	if c.config, err = parseConfig(content); err != nil {
		return fmt.Errorf("%s: %w", c.path("config.json"), err)
	}
	index, err := c.readIndex()
	if err != nil {
		return err
	}
	shards := []string{singleName}
	if index != nil {
		shards = index.shards()
	}
	owner := map[string]int{} // the shard of a tensor
	for i, name := range shards {
		f, err := c.openShard(name)
		if err != nil {
			return err
		}
		c.files = append(c.files, f)
		for _, tensor := range f.Names() {
			if index != nil && index.WeightMap[tensor] != "" && index.WeightMap[tensor] != name {
				continue // the index points to another shard
			}
			if j, ok := owner[tensor]; ok {
				return fmt.Errorf("%s: tensor %q is also in %s", c.path(name), tensor, shards[j])
			}
			owner[tensor] = i
		}
	}
	if index != nil {
		for tensor, shard := range index.WeightMap {
			if _, ok := owner[tensor]; !ok {
				return fmt.Errorf("%s: weight_map: %q is not in %s", c.path(indexName), tensor, shard)
			}
		}
	}
	if err := c.openVoice(); err != nil {
		return err
	}
	return c.arrange(owner)
}

// arrange renames the tensors as in MiniCPM-o and joins the parts of AWQ layers.
func (c *Checkpoint) arrange(owner map[string]int) error {
	plainQwen := true
	for name := range owner {
		plainQwen = plainQwen && !strings.HasPrefix(name, "llm.")
	}
	parts := map[string]safetensors.Tensor{} // of AWQ
	for name, i := range owner {
		t, _ := c.files[i].Tensor(name)
		switch {
		case c.config.hearing != nil:
			name = hearingName(name)
		case plainQwen && (strings.HasPrefix(name, "model.") || strings.HasPrefix(name, "lm_head.")):
			name = "llm." + name
		}
		if _, ok := c.plain[name]; ok {
			return fmt.Errorf("%s: tensor %q is also in %s or %s", c.dir, name, flowName, vocoderName)
		}
		if isPacked(name) {
			parts[name] = t
		} else {
			c.plain[name] = t
		}
	}
	if err := errors.Join(c.joinPacked(parts), c.joinInt8()); err != nil {
		return err
	}
	if c.config.hearing != nil {
		c.dropCopy()
	}
	c.names = slices.Concat(slices.Collect(maps.Keys(c.plain)), slices.Collect(maps.Keys(c.packed)), slices.Collect(maps.Keys(c.int8)))
	slices.Sort(c.names)
	if len(c.names) == 0 {
		return fmt.Errorf("%s: no tensors", c.dir)
	}
	return nil
}

// Close unmaps the weights and removes the unpacked shards.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, f := range c.files {
		errs = append(errs, f.Close())
	}
	c.files = nil
	if c.temp != "" {
		errs = append(errs, os.RemoveAll(c.temp))
		c.temp = ""
	}
	return errors.Join(errs...)
}

// Names returns the names of all tensors, sorted; see models.Source.
func (c *Checkpoint) Names() []string { return slices.Clone(c.names) }

// Info returns a tensor's type and shape; false if there is none of the name. A layer in int4 or int8 appears as a float16 matrix.
func (c *Checkpoint) Info(name string) (models.TensorInfo, bool) {
	if l, ok := c.packed[name]; ok {
		return models.TensorInfo{Type: models.Float16, Shape: []int{l.n, l.k}}, true
	}
	if m, ok := c.int8[name]; ok {
		return models.TensorInfo{Type: models.Float16, Shape: slices.Clone(m.weights.Shape)}, true
	}
	t, ok := c.plain[name]
	return t.TensorInfo, ok
}

// Rows reads rows of a tensor as float32; see models.Source.
func (c *Checkpoint) Rows(dst []float32, name string, from, to int) error {
	if l, ok := c.packed[name]; ok {
		return l.floats(dst, from, to)
	}
	if m, ok := c.int8[name]; ok {
		if err := m.floats(dst, from, to); err != nil {
			return fmt.Errorf("%s: %w", c.dir, err)
		}
		return nil
	}
	t, ok := c.plain[name]
	if !ok {
		return fmt.Errorf("%s: no tensor %q", c.dir, name)
	}
	return t.Rows(dst, from, to)
}

// Packed returns the lossless int4 form of a layer if its blocks suit
// MatMulNBits (a power of two, at least 16).
func (c *Checkpoint) Packed(name string) (models.PackedLinear, bool) {
	l, ok := c.packed[name]
	if !ok || l.group < 16 || l.group&(l.group-1) != 0 {
		return nil, false
	}
	return l, true
}

// File returns a file of the folder, or fs.ErrNotExist. A missing tokenizer.json is assembled from
// vocab.json, merges.txt and tokenizer_config.json.
func (c *Checkpoint) File(name string) ([]byte, error) {
	if !safeName(name) {
		return nil, fmt.Errorf("%s: %q is not a file name in the folder", c.dir, name)
	}
	content, err := models.ReadFile(c.path(name), maxFile)
	if name == models.TokenizerName && errors.Is(err, fs.ErrNotExist) && c.has(models.VocabName) {
		if content, err = JoinTokenizer(c.File); err != nil {
			return nil, fmt.Errorf("%s: %w", c.dir, err)
		}
	}
	return content, err
}

func (c *Checkpoint) path(name string) string { return filepath.Join(c.dir, name) }

// safeName reports whether name stays within the folder.
func safeName(name string) bool {
	return filepath.IsLocal(name) && !strings.ContainsAny(name, `/\`) && name != "."
}

// openShard maps a shard, after unpacking it if it is gzipped.
func (c *Checkpoint) openShard(name string) (*safetensors.File, error) {
	path := c.path(name)
	_, err := os.Stat(path)
	if err == nil {
		c.shards = append(c.shards, name)
		return safetensors.Open(path)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if _, gzErr := os.Stat(path + ".gz"); gzErr != nil {
		if name == singleName {
			return nil, fmt.Errorf("%s: neither %s nor %s found; convert weights of another format to safetensors first: %w",
				c.dir, indexName, singleName, err)
		}
		return nil, fmt.Errorf("%s: a listed file is missing: %w", c.path(indexName), err)
	}
	c.shards = append(c.shards, name+".gz")
	unpacked, err := c.unpack(name)
	if err != nil {
		return nil, fmt.Errorf("unpack %s.gz: %w", path, err)
	}
	f, err := safetensors.Open(unpacked)
	if err != nil {
		return nil, fmt.Errorf("%s.gz: %w", path, err)
	}
	return f, nil
}

// maxRatio is how many times as large as its gzipped file a shard may be. Weights are hardly compressible.
const maxRatio = 20

func (c *Checkpoint) unpack(name string) (path string, err error) {
	if c.temp == "" {
		if c.temp, err = os.MkdirTemp("", "touchline-checkpoint-"); err != nil {
			return "", err
		}
	}
	in, err := os.Open(c.path(name + ".gz"))
	if err != nil {
		return "", err
	}
	defer in.Close()
	z, err := gzip.NewReader(in)
	if err != nil {
		return "", err
	}
	path = filepath.Join(c.temp, name)
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	info, err := in.Stat()
	if err != nil {
		return path, errors.Join(err, out.Close())
	}
	most := maxRatio*info.Size() + 1<<20
	n, err := io.Copy(out, io.LimitReader(z, most+1))
	if n > most {
		err = fmt.Errorf("more than %d times as large as the file", maxRatio)
	}
	return path, errors.Join(err, out.Close())
}
