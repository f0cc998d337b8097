package judge

import (
	"context"
	"fmt"
	"slices"
	"time"

	"touchline/agent/look"
	"touchline/agent/prompt"
	"touchline/configs"
	"touchline/media"
	"touchline/media/window"
	"touchline/worlds/claims"
)

// meetStrangers shows pictures of neither world. The correct answer is silence, a statement that it is neither, or a comment on other
// things.
func (c *Command) meetStrangers(ctx context.Context, cfg configs.Config, profile prompt.Profile, engines *engines, out *Result) error {
	width := cfg.Media.LongSide
	height := width * 9 / 16 / 2 * 2
	var pictures []media.VideoFrame
	if c.Pictures != "" {
		var err error
		if pictures, err = readPictures(c.Pictures, width, height); err != nil {
			return err
		}
	}
	if c.Strangers == 0 && len(pictures) == 0 {
		return nil
	}
	model, give, err := engines.take(ctx)
	if err != nil {
		return err
	}
	defer give()
	session, err := model.NewSession()
	if err != nil {
		return fmt.Errorf("open a session: %w", err)
	}
	defer func() { _ = session.Close() }()
	for n := range c.Strangers + len(pictures) {
		var picture media.VideoFrame
		if n < c.Strangers {
			picture = stranger(n, width, height)
		} else {
			picture = pictures[n-c.Strangers]
		}
		var frames []window.Frame
		for i := range cfg.Agent.Frames {
			picture.Epoch, picture.PTS = uint32(n+1), time.Duration(i)*200*time.Millisecond
			frames = append(frames, window.Frame{VideoFrame: picture})
		}
		prompt := prompt.Look{System: profile.Prompt, Spoken: true, Change: window.Whole, Frames: look.Pictures(frames)}.
			Prompt(cfg.Inference.Config, model.Capabilities())
		text, _, err := say(ctx, session, prompt)
		if err != nil {
			return err
		}
		out.Strangers.Of++
		if claimsNothing(claims.Parse(text, cfg.Inference.Voice.Language, c.World)) {
			out.Strangers.Right++
		} else {
			out.Taken = append(out.Taken, fmt.Sprintf("picture %d: %s", n, text))
		}
	}
	return nil
}

// claimsNothing reports whether an answer makes no claim about the world: it is silent, refuses, or describes other things.
func claimsNothing(all []claims.Claim) bool {
	return !slices.ContainsFunc(all, func(c claims.Claim) bool {
		return c.Kind != claims.Stranger && c.Kind != claims.Dark && c.Kind != claims.Cannot
	})
}
