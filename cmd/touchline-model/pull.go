package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"time"

	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/disk"
	"touchline/models/hub"
	"touchline/models/sight"
	"touchline/models/sight/pack"
)

// unlikeTested warns about tokenizer files whose content differs from the tested one: they may have
// changed on the hub since.
func unlikeTested(ctx context.Context, model, dir string, note func(string)) error {
	switch model {
	case "Qwen/Qwen3-ASR-0.6B", "Qwen/Qwen3-ASR-1.7B", "Qwen/Qwen3-ForcedAligner-0.6B":
	default:
		return nil
	}
	tested := map[string]string{
		models.VocabName:  "ca10d7e9fb3ed18575dd1e277a2579c16d108e32f27439684afa0e10b1440910",
		models.MergesName: "8831e4f1a044471340f7c0a83d7bd71306a5b867e95fd870f74d0c5308a904d5",
	}
	sums, err := disk.HashFiles(ctx, dir, []string{models.VocabName, models.MergesName}, nil)
	for name, sum := range sums {
		if sum != tested[name] {
			note(name + " is another file than the one that this program was tested with")
		}
	}
	return err
}

// Run downloads and converts.
func (c *pullCmd) Run(ctx context.Context) error {
	if c.Model == "sight" {
		return c.sight(ctx)
	}
	if c.Bundle == "" {
		return errors.New("expected the folder of the bundle")
	}
	// Fail before the long download.
	if entries, err := os.ReadDir(c.Bundle); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s: the folder is not empty, it has %s: remove it or choose another folder", c.Bundle, entries[0].Name())
	}
	progress := newBar()
	client, err := hub.New(hub.Options{
		Endpoint: c.Endpoint, Token: c.Token, Now: time.Now,
		Failed: func(err error, wait time.Duration) {
			progress.Note(fmt.Sprintf("%v; retrying in %v", err, wait.Round(100*time.Millisecond)))
		},
	})
	if err != nil {
		return err
	}
	defer client.Close()
	revision, err := client.Files(ctx, c.Model, c.Revision, hub.ForConversion)
	if err != nil {
		return err
	}
	dir := cmp.Or(c.Keep, filepath.Clean(c.Bundle)+".checkpoint")
	fmt.Printf("%s at %s: %d files, %s, into %s\n", c.Model, revision.Commit, len(revision.Files), size(revision.Bytes()), dir)
	err = client.Pull(ctx, revision, dir, func(p hub.Progress) { progress.Step("", p.Done, p.Total, p.Rate, max(0, p.ETA)) })
	progress.End()
	if err != nil {
		return err
	}
	if err := unlikeTested(ctx, revision.Model, dir, progress.Note); err != nil {
		return err
	}
	src, err := checkpoint.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	o := options(c.FormatFlags)
	o.Name, o.Origin = path.Base(c.Model), &models.Origin{Path: revision.Model, Revision: revision.Commit}
	if err := convertTo(ctx, src, c.Bundle, o); err != nil {
		return err
	}
	fmt.Printf("The checkpoint in %s is no longer needed.\n", dir)
	return nil
}

// sight makes the bundle of the engine sight.
func (c *pullCmd) sight(ctx context.Context) error {
	dir := cmp.Or(c.Bundle, sight.Default())
	b, err := pack.Make(ctx, dir, pack.Options{
		From: c.From, WholeAlphabet: c.Alphabet == "all", Note: func(text string) { fmt.Println("sight: " + text) },
	})
	if err != nil {
		return err
	}
	if err := b.Verify(ctx); err != nil {
		return err
	}
	var bytes int64
	for _, f := range b.Manifest.Files {
		bytes += f.Size
	}
	fmt.Printf("%s: %d files, %s: all checksums match; %d characters\n", dir, len(b.Manifest.Files), size(bytes),
		len(b.Manifest.Reader.Characters))
	return nil
}
