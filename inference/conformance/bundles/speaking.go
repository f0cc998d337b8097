// Package bundles makes a small bundle with a voice, for tests of packages that use the engine. Its networks are models/testdata/tiny,
// its flow and vocoder the fixtures of the engine's tests: an answer of a few words becomes some seconds of noise, on a CPU in a
// twentieth of that time.
package bundles

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"touchline/inference/conformance/synth"
	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/convert"
	"touchline/models/safetensors"
	"touchline/models/torch"
)

// OpenFixture opens a file of tensors that the official code computed. root is the folder of the module.
func OpenFixture(root, name string) (*safetensors.File, error) {
	file, err := os.Open(filepath.Join(root, "inference", "minicpmo", "testdata", name+".safetensors.gz"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	z, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(z)
	if err != nil {
		return nil, err
	}
	return safetensors.Parse(name, b)
}

// Speaking writes the tiny checkpoint with its voice as a bundle for the CPU to the folder out, which must not exist. root is the folder
// of the module, work a folder for temporary files.
func Speaking(ctx context.Context, root, work, out string) error {
	dir, err := published(ctx, root, filepath.Join(work, "checkpoint"))
	if err != nil {
		return err
	}
	src, err := checkpoint.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(convert.Convert(ctx, src, out, convert.Options{
		Name: "tiny", Weights: []models.Weights{models.WeightsFloat32}, Devices: []models.Device{models.DeviceCPU},
	}), src.Close())
}

// published writes a folder in the published form: the small checkpoint, and the assets of a random one with the weights of the fixtures.
func published(ctx context.Context, root, dir string) (string, error) {
	shape, err := synth.Find("tiny")
	if err != nil {
		return "", err
	}
	random, err := synth.New(shape.WithSpeech(), 1)
	if err != nil {
		return "", err
	}
	if err := random.Write(ctx, dir, 1<<30, nil); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if e.Name() != "assets" {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	tiny, failed := filepath.Abs(filepath.Join(root, "models", "testdata", "tiny"))
	entries, listed := os.ReadDir(tiny)
	if err = errors.Join(err, failed, listed); err != nil {
		return "", err
	}
	for _, e := range entries {
		err = errors.Join(err, os.Symlink(filepath.Join(tiny, e.Name()), filepath.Join(dir, e.Name())))
	}
	for file, fixture := range map[string]string{"flow.pt": "voice_flow", "hift.pt": "voice_hift"} {
		f, failed := OpenFixture(root, fixture)
		if err = errors.Join(err, failed); err != nil {
			return "", err
		}
		err = torch.WriteFile(filepath.Join(dir, "assets", "token2wav", file), f)
	}
	return dir, err
}
