package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"touchline/agent/bot"
	"touchline/configs"
	"touchline/inference"
	"touchline/inference/voice"
	"touchline/internal/wav"
)

// sayCmd speaks a text into a file.
type sayCmd struct {
	Text     string `arg:"" help:"Text to speak; - reads it from standard input."`
	Out      string `arg:"" name:"out.wav" help:"WAV file to write: mono, 16 bits, the rate of the voice." type:"path"`
	Voice    string `help:"Voice of the program or model, such as slt, flite:slt or model:anna; overrides the settings." placeholder:"NAME"`
	Language string `help:"Language of the text, such as en or nl; overrides the settings." placeholder:"TAG"`

	modelFlags
}

// maxSaid bounds the text, in bytes: more than an hour of speech.
const maxSaid = 64 << 10

// Run writes the file and prints its length.
func (c *sayCmd) Run(ctx context.Context, a *app) error {
	settings := a.cfg
	if err := c.modelFlags.apply(&settings); err != nil {
		return err
	}
	if c.Model != "" {
		settings.Inference.Voice.Program = inference.VoiceModel
	}
	cfg := settings.Inference.Voice
	if c.Voice != "" {
		cfg.Name = c.Voice
		if program, name, ok := strings.Cut(c.Voice, ":"); ok || program == inference.VoiceModel { // as the page lists it
			cfg.Program, cfg.Name = program, name
		}
	}
	cfg.Language = cmp.Or(c.Language, cfg.Language)
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("inference.voice.%w", err)
	}
	text, err := c.text(os.Stdin)
	if err != nil {
		return err
	}
	var sp voice.Speech
	var took time.Duration
	if cfg.Program == inference.VoiceModel {
		settings.Inference.Voice = cfg
		sp, took, err = c.byModel(ctx, settings, text, a.log)
	} else {
		sp, took, err = byProgram(ctx, cfg, text, a.log)
	}
	if err != nil {
		return err
	}
	if err := writeFile(c.Out, sp); err != nil {
		return err
	}
	_, err = fmt.Fprintf(os.Stdout, "%s: %.2f s at %d Hz, made in %.2f s\n",
		c.Out, float64(len(sp.Audio))/float64(sp.Rate), sp.Rate, took.Seconds())
	return err
}

// byProgram speaks a text with the speech programs, and returns the elapsed time.
func byProgram(ctx context.Context, cfg inference.VoiceConfig, text string, log zerolog.Logger) (voice.Speech, time.Duration, error) {
	synth, err := voice.New(cfg, log)
	if err != nil {
		return voice.Speech{}, 0, err
	}
	began := time.Now()
	sp, err := synth.Say(ctx, text, "")
	return sp, time.Since(began), err
}

// byModel loads the settings' engine, which speaks the text in its own voice, and returns the elapsed time.
func (c *sayCmd) byModel(ctx context.Context, cfg configs.Config, text string, log zerolog.Logger,
) (sp voice.Speech, took time.Duration, err error) {
	engine, err := bot.NewEngine(cfg.Bot(), log)
	if err != nil {
		return sp, 0, err
	}
	err = with(ctx, engine, func(ctx context.Context) (err error) {
		if err := errors.Join(ready(ctx, engine), engine.Whole(ctx)); err != nil {
			return err
		}
		id := inference.VoiceModel + ":" + cmp.Or(cfg.Inference.Voice.Name, inference.DefaultVoice)
		if err := engine.Capabilities().CheckVoice(id); err != nil {
			return err
		}
		began := time.Now()
		sp, err = ownSpeech(ctx, engine, text, id)
		took = time.Since(began)
		return err
	})
	return sp, took, err
}

// ownSpeech returns a text as an engine speaks it.
func ownSpeech(ctx context.Context, engine *bot.Engine, text, name string) (sp voice.Speech, err error) {
	session, err := engine.Open(nil)
	if err != nil {
		return sp, err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	for c, err := range session.Speak(ctx, text, name, "") {
		switch {
		case err != nil:
			return sp, err
		case c.VoiceFailed != nil:
			return sp, fmt.Errorf("the model's voice failed: %w", c.VoiceFailed.Err)
		case len(c.Audio) > 0:
			sp.Audio, sp.Rate = append(sp.Audio, c.Audio...), c.AudioRate
		}
	}
	if len(sp.Audio) == 0 {
		return sp, voice.ErrNothingToSay
	}
	return sp, nil
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
	_, err = f.Write(wav.EncodePCM(sp.Audio, sp.Rate))
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the speech to %s: %w", path, err)
	}
	return nil
}
