package modelcmd

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"time"

	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/hub"
)

// PullCmd downloads a checkpoint and converts it.
type PullCmd struct {
	formatFlags

	Model    string `arg:"" help:"Name on the hub, such as openbmb/MiniCPM-o-4_5."`
	Bundle   string `arg:"" type:"path" help:"The folder to make."`
	Revision string `default:"main" help:"Branch, tag or commit. The commit is written into the manifest."`
	Keep     string `type:"path" help:"Folder of the downloaded checkpoint. Without it: beside the bundle; it can be deleted afterwards."`
	Endpoint string `env:"HF_ENDPOINT" help:"A mirror of the hub."`
	Token    string `env:"HF_TOKEN" help:"For models that ask for a login; the environment is the place for it."`
}

// Run downloads and converts.
func (c *PullCmd) Run(ctx context.Context) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	// Not after a download of an hour.
	if entries, err := os.ReadDir(c.Bundle); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s: expected a new or empty folder, has %s and more: remove it or choose another", c.Bundle, entries[0].Name())
	}
	progress := newBar()
	client, err := hub.New(hub.Options{
		Endpoint: c.Endpoint, Token: c.Token, Now: time.Now,
		Failed: func(err error, wait time.Duration) {
			progress.note(fmt.Sprintf("%v; again in %v", err, wait.Round(100*time.Millisecond)))
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
	dir := c.Keep
	if dir == "" {
		dir = filepath.Clean(c.Bundle) + ".checkpoint"
	}
	fmt.Printf("%s at %s: %d files, %s, into %s\n", c.Model, revision.Commit, len(revision.Files), size(revision.Bytes()), dir)
	err = client.Pull(ctx, revision, dir, func(p hub.Progress) { progress.step("", p.Done, p.Total, p.Rate, max(0, p.ETA)) })
	progress.end()
	if err != nil {
		return err
	}
	src, err := checkpoint.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	o.Name, o.Origin = path.Base(c.Model), &models.Origin{Path: revision.Model, Revision: revision.Commit}
	if err := convertWith(ctx, src, c.Bundle, o); err != nil {
		return err
	}
	fmt.Printf("  the checkpoint in %s is not needed any more\n", dir)
	return nil
}
