package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"touchline/inference/voice"
)

// sayCmd speaks a text into a file.
type sayCmd struct {
	Text     string `arg:"" help:"Text to speak; - reads it from standard input."`
	Out      string `arg:"" name:"out.wav" help:"WAV file to write: mono, 16 bits, the rate of the voice." type:"path"`
	Voice    string `help:"Voice of the speech program (flite -lv, espeak-ng --voices); overrides the settings." placeholder:"NAME"`
	Language string `help:"Language of the text, such as en or nl; overrides the settings." placeholder:"TAG"`
}

// maxSaid bounds the text, in bytes: more than an hour of speech.
const maxSaid = 64 << 10

// Run writes the file and prints its length.
func (c *sayCmd) Run(ctx context.Context, a *app) error {
	cfg := a.cfg.Inference.Voice
	if c.Voice != "" {
		cfg.Name = c.Voice
	}
	if c.Language != "" {
		cfg.Language = c.Language
	}
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("inference.voice.%w", err)
	}
	text, err := c.text(os.Stdin)
	if err != nil {
		return err
	}
	synth, err := voice.New(cfg, a.log)
	if err != nil {
		return err
	}
	began := time.Now()
	sp, err := synth.Say(ctx, text, "")
	if err != nil {
		return err
	}
	took := time.Since(began)
	if err := writeFile(c.Out, sp); err != nil {
		return err
	}
	_, err = fmt.Fprintf(os.Stdout, "%s: %.2f s at %d Hz, made in %.2f s\n",
		c.Out, float64(len(sp.Audio))/float64(sp.Rate), sp.Rate, took.Seconds())
	return err
}

// text returns the text to speak.
func (c *sayCmd) text(stdin io.Reader) (string, error) {
	text := c.Text
	if text == "-" {
		read, err := io.ReadAll(io.LimitReader(stdin, maxSaid+1))
		if err != nil {
			return "", fmt.Errorf("read the text: %w", err)
		}
		text = string(read)
	}
	if len(text) > maxSaid {
		return "", fmt.Errorf("the text is longer than %d KiB; speak it in parts", maxSaid>>10)
	}
	return strings.TrimSpace(text), nil
}

// writeFile writes speech as a WAV file.
func writeFile(path string, sp voice.Speech) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write the speech: %w", err)
	}
	if err := errors.Join(voice.WriteWAV(f, sp.Rate, sp.Audio), f.Close()); err != nil {
		return fmt.Errorf("write the speech to %s: %w", path, err)
	}
	return nil
}
