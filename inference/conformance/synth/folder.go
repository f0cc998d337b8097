package synth

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"touchline/models"
	"touchline/models/safetensors"
)

// Write writes the checkpoint to a new folder in its published form: shards of
// about shardBytes with their index, config.json and the other small files.
// progress, if not nil, is called by several goroutines with the size of each
// piece.
func (s *Source) Write(ctx context.Context, dir string, shardBytes int64, progress func(n int)) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	shards := s.shards(shardBytes)
	weights := map[string]string{}
	var total int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, names := range shards {
		file := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards))
		for _, name := range names {
			weights[s.publishedName(name)] = file
			total += s.tensors[name].bytes()
		}
		group.Go(func() error { return s.writeShard(ctx, filepath.Join(dir, file), names, progress) })
	}
	for _, v := range voiceFiles() {
		if names := s.namesOf(v.prefix); len(names) > 0 {
			group.Go(func() error { return s.writeVoice(ctx, filepath.Join(dir, v.file), v, names, progress) })
		}
	}
	index, err := json.Marshal(object{"metadata": object{"total_size": total}, "weight_map": weights})
	if err != nil {
		return errors.Join(err, group.Wait())
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	files := maps.Clone(s.files)
	files["model.safetensors.index.json"] = index
	for name, content := range files {
		err := writeFile(filepath.Join(dir, name), func(out io.Writer) error {
			_, err := out.Write(content)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Bytes returns the size of all tensors.
func (s *Source) Bytes() int64 {
	var n int64
	for _, t := range s.tensors {
		n += t.bytes()
	}
	return n
}

func (t *tensor) bytes() int64 {
	return int64(t.info.Rows()) * int64(t.info.Cols()) * int64(t.info.Type.Size())
}

// shards distributes the tensors over files.
func (s *Source) shards(limit int64) [][]string {
	var shards [][]string
	var size int64
	for _, p := range s.shape.specs() {
		if p.typ() != models.BFloat16 {
			continue // in a file of its own
		}
		n := s.tensors[p.name].bytes()
		if len(shards) == 0 || size+n > limit {
			shards, size = append(shards, nil), 0
		}
		last := len(shards) - 1
		shards[last], size = append(shards[last], p.name), size+n
	}
	return shards
}

// publishedName returns the name of a tensor in its file.
func (s *Source) publishedName(name string) string {
	if s.shape.Hearing == nil {
		return name
	}
	return "thinker." + strings.TrimPrefix(name, "llm.")
}

// pieceValues is the number of values that are computed at once.
const pieceValues = 1 << 18

func (s *Source) writeShard(ctx context.Context, path string, names []string, progress func(n int)) error {
	entries := make([]safetensors.Entry, len(names))
	for i, name := range names {
		entries[i] = safetensors.Entry{Name: s.publishedName(name), TensorInfo: s.tensors[name].info}
	}
	return writeFile(path, func(out io.Writer) error {
		w, err := safetensors.NewWriter(out, entries, map[string]string{"format": "pt"})
		if err != nil {
			return err
		}
		return errors.Join(s.writeTensors(ctx, w, names, progress), w.Close())
	})
}

// writeFile creates a file and its folder.
func writeFile(path string, write func(out io.Writer) error) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := bufio.NewWriterSize(f, 1<<20)
	return errors.Join(write(out), out.Flush())
}

// writeTensors writes the values of tensors in their types.
func (s *Source) writeTensors(ctx context.Context, w io.Writer, names []string, progress func(n int)) error {
	var values []float32
	var bytes []byte
	for _, name := range names {
		info := s.tensors[name].info
		step := max(1, pieceValues/info.Cols())
		for from := 0; from < info.Rows(); from += step {
			if err := ctx.Err(); err != nil {
				return err
			}
			to := min(from+step, info.Rows())
			values = slices.Grow(values[:0], (to-from)*info.Cols())[:(to-from)*info.Cols()]
			if err := s.Rows(values, name, from, to); err != nil {
				return err
			}
			bytes = bytes[:0]
			for _, v := range values {
				b := models.BFloat16Bits(v)
				if info.Type == models.Float32 {
					bytes = append(bytes, 0, 0) // the values are bfloat16
				}
				bytes = append(bytes, byte(b), byte(b>>8))
			}
			if _, err := w.Write(bytes); err != nil {
				return err
			}
			if progress != nil {
				progress(len(bytes))
			}
		}
	}
	return nil
}
