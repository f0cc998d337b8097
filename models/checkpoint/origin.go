package checkpoint

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"touchline/models"
	"touchline/models/disk"
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
	hashes, err := disk.HashFiles(ctx, c.dir, c.sources(), progress)
	if err != nil {
		return models.Origin{}, fmt.Errorf("hash %s: %w", c.dir, err)
	}
	c.mu.Lock()
	c.hashes = hashes
	c.mu.Unlock()
	return c.Origin(), nil
}

// sources returns the names of the model's files, sorted.
func (c *Checkpoint) sources() []string {
	names := slices.Clone(c.shards)
	published := []string{
		"config.json", "generation_config.json", "preprocessor_config.json", indexName,
		models.TokenizerName, models.TokenizerConfigName, flowName, vocoderName, flowConfig, speakerName, codesName, soundName,
	}
	if !c.has(models.TokenizerName) {
		published = append(published, models.VocabName, models.MergesName)
	}
	for _, name := range published {
		if _, err := os.Stat(c.path(name)); err == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// skipped lists the tensors that a bundle does not use, with the reasons.
func (c *Checkpoint) skipped() []string {
	counts := map[string]int{}
	_, err := c.vision()
	for _, name := range c.names {
		part, _, _ := strings.Cut(name, ".")
		switch part {
		case "llm", "tts", "flow", "hift": // an incomplete voice is among the missing parts
		case "audio_tower": // complete, or Describe fails
		case "vpm", "resampler":
			if err != nil {
				counts[part]++
			}
		default:
			counts[part]++
		}
	}
	var s []string
	add := func(format string, parts ...string) {
		n := 0
		for _, part := range parts {
			n += counts[part]
			delete(counts, part)
		}
		if n > 0 {
			s = append(s, fmt.Sprintf(format, n))
		}
	}
	add("audio encoder (apm, audio_projection_layer): %d tensors; audio input is not supported", "apm", "audio_projection_layer")
	add("vision (vpm, resampler): %d tensors; incomplete", "vpm", "resampler")
	add("%d tensors of unknown parts", slices.Collect(maps.Keys(counts))...)
	return s
}
