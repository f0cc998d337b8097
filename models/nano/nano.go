// Package nano holds the checkpoint of nano, a small vision-language model in the shape of MiniCPM-o 4.5 that was trained on the generated
// worlds, and converts it to a bundle for the CPU. It neither trains the model (see worlds/train) nor runs it (see inference/nano).
package nano

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/convert"
)

// Name is the model's name in its bundle.
const Name = "nano"

// checkpointFiles is the checkpoint in the published layout: config.json, tokenizer, int8 weights.
//
//go:embed checkpoint
var checkpointFiles embed.FS

// Write writes the checkpoint to a folder, for `models convert`.
func Write(dir string) error {
	files, err := fs.Sub(checkpointFiles, "checkpoint")
	if err != nil {
		return fmt.Errorf("write nano's checkpoint: %w", err)
	}
	if err := os.CopyFS(dir, files); err != nil {
		return fmt.Errorf("write nano's checkpoint: %w", err)
	}
	return nil
}

// Merges returns the merges of nano's tokenizer, which learned them from its comments: two pieces each, with a space between them.
func Merges() ([]string, error) {
	content, err := checkpointFiles.ReadFile("checkpoint/tokenizer.json")
	if err != nil {
		return nil, fmt.Errorf("read nano's tokenizer: %w", err)
	}
	var file struct {
		Model struct {
			Merges [][2]string `json:"merges"`
		} `json:"model"`
	}
	if err := json.Unmarshal(content, &file); err != nil {
		return nil, fmt.Errorf("read nano's tokenizer: %w", err)
	}
	merges := make([]string, len(file.Model.Merges))
	for i, m := range file.Model.Merges {
		merges[i] = m[0] + " " + m[1]
	}
	return merges, nil
}

// Convert makes the bundle for the CPU (fp32), in a temporary folder that is renamed to dir when it is complete. The end of the name of
// dir is Version and the bundle's format, as the program that wants it expects them.
func Convert(ctx context.Context, dir string) error {
	version, err := Version()
	if err != nil {
		return err
	}
	if made := fmt.Sprintf("%s-%s-%d", Name, version, models.FormatVersion); filepath.Base(dir) != made {
		return fmt.Errorf("this program makes %s, not %s: take both programs of one release", made, filepath.Base(dir))
	}
	cache := filepath.Dir(dir)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(cache, ".nano-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	source, bundle := filepath.Join(work, "checkpoint"), filepath.Join(work, "bundle")
	if err := Write(source); err != nil {
		return err
	}
	c, err := checkpoint.Open(source)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := convert.Convert(ctx, c, bundle, convert.Options{
		Weights: []models.Weights{models.WeightsFloat32}, Devices: []models.Device{models.DeviceCPU}, Name: Name, Creator: "touchline",
		Origin: &models.Origin{Path: "touchline/nano"},
	}); err != nil {
		return err
	}
	return os.Rename(bundle, dir)
}

// Version identifies the checkpoint.
func Version() (string, error) { return hash(checkpointFiles) }

// hash identifies the checkpoint by the sizes and samples of its files. Two trainings have no weight in common, so samples are enough,
// and the rest need not be read.
func hash(files fs.FS) (string, error) {
	h := sha256.New()
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := files.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%s %d\n", path, info.Size())
		const blocks, block = 16, 4 << 10
		for at := int64(0); at < info.Size(); at += max(info.Size()/blocks, block) {
			sample := io.NewSectionReader(f.(io.ReaderAt), at, block) //nolint:forcetypeassert // embedded files have it
			if _, err := io.Copy(h, sample); err != nil {
				return err
			}
		}
		return nil
	})
	return hex.EncodeToString(h.Sum(nil))[:12], err
}
