package voice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"touchline/inference"
	"touchline/internal/rescue"
)

// aloud reads a piece of a text that the model does not speak as it writes, and sends its sound and its end: by a speech program, or, with
// c.own, by the model. It runs in its own goroutine, and uses only what does not change in the mixer.
func (m *mixer) aloud(ctx context.Context, c choice, piece string) {
	it, to := item{last: true}, maker{to: m.done}
	it.err = rescue.Call(func() (err error) {
		if c.own {
			it.left, err = m.byModel(ctx, c.voice, piece, &to)
			return err
		}
		return c.synth.sentence(ctx, piece, m.lang, m.says, func(c inference.Chunk) bool { return to.send(ctx, item{chunk: c}) })
	})
	to.send(ctx, it)
}

// byModel lets the model read a piece. If it fails, left is the text without sound.
func (m *mixer) byModel(ctx context.Context, voice, piece string, to *maker) (left string, err error) {
	began, length, at := time.Now(), time.Duration(0), 0
	for c, cerr := range m.room.model.Speak(ctx, piece, voice, m.lang) {
		if f := c.VoiceFailed; f != nil {
			cerr = cmp.Or(f.Err, inference.ErrNoVoice)
		}
		if err = cerr; err != nil {
			break
		}
		if len(c.Audio) == 0 {
			continue
		}
		for _, w := range c.Words {
			at = pastWord(piece, at, w.Text)
		}
		length += duration(len(c.Audio), c.AudioRate)
		if !to.send(ctx, item{chunk: inference.Chunk{Audio: c.Audio, AudioRate: c.AudioRate, Words: c.Words}}) {
			return "", nil
		}
	}
	switch {
	case ctx.Err() != nil:
		return "", nil
	case err == nil && length > 0:
		now := time.Now()
		m.room.spoke(now.Sub(began)-to.waited > length+lateness, now)
		m.room.v.report(ofModel, nil)
		m.room.v.found()
		return "", nil
	case err == nil:
		err = errMute
	}
	if !errors.Is(err, inference.ErrNoVoice) {
		m.room.v.report(ofModel, failedVoice(err))
	}
	return strings.TrimSpace(piece[at:]), err
}

// errMute is returned when a model yields no sound for a text with words.
var errMute = errors.New("the answer had no sound")

func failedVoice(err error) error { return fmt.Errorf("the model's voice failed: %w", err) }
