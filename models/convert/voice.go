package convert

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"touchline/models"
	"touchline/models/disk"
)

// large lists the files that are copied unchanged: the files of the voice.
func (c *conversion) large() error {
	v := c.manifest.Voice
	if v == nil {
		return nil
	}
	src, ok := c.src.(voiced)
	if !ok {
		return errors.New("the source has no files of the voice")
	}
	for _, name := range []string{v.Speaker, v.Codes, v.Sound} {
		if name == "" {
			continue
		}
		f, size, err := src.OpenFile(name)
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			return fmt.Errorf("copy %s: %w", name, err)
		}
		c.voice = append(c.voice, models.File{Name: name, Size: size})
	}
	return nil
}

func (c *conversion) voiceBytes() (n int64) {
	for _, f := range c.voice {
		n += f.Size
	}
	return n
}

// copyVoice copies the files of the voice, one after the other.
func (c *conversion) copyVoice(ctx context.Context, progress *meter) error {
	for i := range c.voice {
		if err := c.copyFile(ctx, &c.voice[i], progress); err != nil {
			return fmt.Errorf("copy %s: %w", c.voice[i].Name, err)
		}
	}
	return nil
}

// copyFile copies a file and sets its checksum.
func (c *conversion) copyFile(ctx context.Context, f *models.File, progress *meter) (err error) {
	in, _, err := c.src.(voiced).OpenFile(f.Name) //nolint:forcetypeassert // checked by large
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := os.OpenFile(c.folder.file(f.Name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	f.SHA256, err = disk.Hash(ctx, sha256.New(), io.TeeReader(in, out), func(n int64) { progress.add(0, n) })
	return err
}
