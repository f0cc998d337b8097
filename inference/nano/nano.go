// Package nano has the settings of nano, the small model that was trained on the generated worlds, and finds its bundle in the user's
// cache. It has no weights: package models/nano, which touchline-model links, makes the bundle.
package nano

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"touchline/internal/child"
	"touchline/models"
)

// Name is the model's name in its bundle.
const Name = "nano"

// version identifies the checkpoint: models/nano.Version.
const version = "19aa1d26d010"

// Settings of nano for one room: slots of the decoder, cached pictures, bytes for beginnings of prompts, threads of an operator, and the
// agent's frame_stride. A second thread waits more than it works: 57 instead of 66 ms for an answer, and 57 % of the CPU time, on two cores
// of an AMD EPYC. The frame_stride is the one it was trained with most; a look then spans 1.8 s. With stride 1 a look spans 0.6 s and often
// does not show a change since the last one: a perfect commentator sees 28 of 81 changes of the match's light, with stride 3 54; of 59
// departures in the yard 50 and 56.
const (
	Slots       = 1
	VisionCache = 64
	PrefixCache = 32 << 20
	Threads     = 1
	Stride      = 3
)

// Bundle returns the folder of nano's bundle for the CPU (fp32), below the cache folder. The first call of a version has it made, by
// RunProgram or by models/nano.Convert, in under a second; several processes may do so in parallel.
func Bundle(ctx context.Context, cache string, convert func(ctx context.Context, dir string) error) (string, error) {
	dir := folder(cache)
	if _, err := models.OpenBundle(dir); err == nil {
		return dir, nil
	}
	if err := convert(ctx, dir); err != nil {
		if _, opened := models.OpenBundle(dir); opened == nil {
			return dir, nil // another process was faster
		}
		return "", fmt.Errorf("convert nano to %s: %w", dir, err)
	}
	return dir, nil
}

// folder returns the bundle's folder; a newer program has another, and converts again.
func folder(cache string) string {
	return filepath.Join(cache, fmt.Sprintf("%s-%s-%d", Name, version, models.FormatVersion))
}

// Check returns an error if Bundle needs touchline-model, which is missing.
func Check(ctx context.Context) error {
	if _, err := models.OpenBundle(folder(models.Cache())); err == nil {
		return nil
	}
	if _, err := child.ModelCommand(ctx); err != nil {
		return fmt.Errorf("nano's bundle is not made yet: %w", err)
	}
	return nil
}

// RunProgram has touchline-model make the bundle. The program ends with ctx, or with this process.
func RunProgram(ctx context.Context, dir string) error {
	cmd, err := child.ModelCommand(ctx, "nano", dir)
	if err != nil {
		return err
	}
	runtime.LockOSThread() // whose end is the signal
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	out, err := cmd.CombinedOutput()
	if text := strings.TrimSpace(string(out)); err != nil && text != "" {
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}
