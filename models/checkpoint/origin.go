package checkpoint

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"touchline/models"
)

// Origin returns the checkpoint's folder and its unused parts, and after Hash
// the hashes of its files.
func (c *Checkpoint) Origin() models.Origin {
	c.mu.Lock()
	defer c.mu.Unlock()
	return models.Origin{Path: c.dir, Files: maps.Clone(c.hashes), Skipped: c.skipped()}
}

// Hash hashes all files of the model in parallel and returns the origin with
// their SHA-256. progress, if not nil, is called by one goroutine at a time.
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
			sum, err := models.HashFile(ctx, c.path(name), read)
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

// sources returns the names of the model's files and their total size.
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

// skipped lists the tensors that a bundle does not use, with the reasons.
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
		s = append(s, fmt.Sprintf("audio encoder (apm, audio_projection_layer): %d tensors; audio input is not supported", audio))
	}
	if speech > 0 {
		s = append(s, fmt.Sprintf("speech (tts): %d tensors; not supported", speech))
	}
	if vision > 0 {
		s = append(s, fmt.Sprintf("vision (vpm, resampler): %d tensors; incomplete", vision))
	}
	if other > 0 {
		s = append(s, fmt.Sprintf("%d tensors of unknown parts", other))
	}
	return s
}
