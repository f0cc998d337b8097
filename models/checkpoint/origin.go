package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"touchline/models"
)

// Origin says where the checkpoint came from and what of it is not used. The
// hashes of its files are in it once Hash was called.
func (c *Checkpoint) Origin() models.Origin {
	c.mu.Lock()
	defer c.mu.Unlock()
	return models.Origin{Path: c.dir, Files: maps.Clone(c.hashes), Skipped: c.skipped()}
}

// Hash reads all files that the model is made of, several at a time, and
// returns the origin with their SHA-256. progress, if not nil, is told how
// many bytes of how many are done, by one goroutine at a time.
func (c *Checkpoint) Hash(ctx context.Context, progress func(done, total int64)) (models.Origin, error) {
	names, total, err := c.sources()
	if err != nil {
		return models.Origin{}, err
	}
	var (
		mu     sync.Mutex
		done   int64
		hashes = make(map[string]string, len(names))
	)
	read := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		done += int64(n)
		if progress != nil {
			progress(done, total)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, name := range names {
		group.Go(func() error {
			sum, err := hashFile(ctx, c.path(name), read)
			if err != nil {
				return fmt.Errorf("hash %s: %w", c.path(name), err)
			}
			mu.Lock()
			defer mu.Unlock()
			hashes[name] = sum
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return models.Origin{}, err
	}
	c.mu.Lock()
	c.hashes = hashes
	c.mu.Unlock()
	return c.Origin(), nil
}

// sources are the files that the model is made of, and their bytes.
func (c *Checkpoint) sources() (names []string, total int64, err error) {
	names = slices.Clone(c.shards)
	for _, name := range []string{
		"config.json", "generation_config.json", "preprocessor_config.json", indexName,
		"tokenizer.json", "tokenizer_config.json",
	} {
		if _, err := os.Stat(c.path(name)); err == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		info, err := os.Stat(c.path(name))
		if err != nil {
			return nil, 0, err
		}
		total += info.Size()
	}
	return names, total, nil
}

func hashFile(ctx context.Context, path string, read func(n int)) (string, error) {
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	buf := make([]byte, 1<<20)
	for {
		if err := context.Cause(ctx); err != nil {
			return "", err
		}
		n, err := f.Read(buf)
		h.Write(buf[:n])
		read(n)
		if err == io.EOF {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
}

// skipped says which tensors no part of a bundle uses, and why.
func (c *Checkpoint) skipped() []string {
	var audio, speech, vision, other int
	_, err := c.vision()
	for _, name := range c.names {
		switch part, _, _ := strings.Cut(name, "."); part {
		case "llm":
		case "apm", "audio_projection_layer":
			audio++
		case "tts":
			speech++
		case "vpm", "resampler":
			if err != nil {
				vision++
			}
		default:
			other++
		}
	}
	var s []string
	if audio > 0 {
		s = append(s, fmt.Sprintf("audio encoder (apm, audio_projection_layer): %d tensors; the program does not listen", audio))
	}
	if speech > 0 {
		s = append(s, fmt.Sprintf("speech (tts): %d tensors; not converted yet", speech))
	}
	if vision > 0 {
		s = append(s, fmt.Sprintf("vision (vpm, resampler): %d tensors; incomplete", vision))
	}
	if other > 0 {
		s = append(s, fmt.Sprintf("%d tensors of no known part", other))
	}
	return s
}
