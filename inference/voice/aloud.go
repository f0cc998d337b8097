package voice

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"touchline/inference"
	"touchline/internal/rescue"
)

// aloud reads a piece of a text that the model does not speak as it writes: by a speech program, or by the model, if the room has chosen
// its voice meanwhile.
type aloud struct {
	choice // with own the model reads
	room   *Room
	piece  string
	lang   string
	says   map[string]string // pronunciations
	to     chan<- item
}

// run reads the piece, and sends its sound and its end.
func (a aloud) run(ctx context.Context) {
	it := item{last: true, read: a.own}
	it.err = rescue.Call(func() (err error) {
		if a.own {
			it.unread, it.left = a.byModel(ctx)
			return nil
		}
		return a.synth.sentence(ctx, a.piece, a.lang, a.says, func(c inference.Chunk) bool { return send(ctx, a.to, item{chunk: c}) })
	})
	send(ctx, a.to, it)
}

// byModel lets the model read the piece. If it fails, left is the text without sound.
func (a aloud) byModel(ctx context.Context) (failed bool, left string) {
	began, length, at := time.Now(), time.Duration(0), 0
	var fault error
	for c, err := range a.room.model.Speak(ctx, a.piece, a.voice, a.lang) {
		if f := c.VoiceFailed; f != nil {
			err = f.Err
			if err == nil {
				err = inference.ErrNoVoice
			}
		}
		if err != nil {
			fault = err
			break
		}
		if len(c.Audio) == 0 {
			continue
		}
		for _, w := range c.Words {
			at = pastWord(a.piece, at, w.Text)
		}
		length += duration(len(c.Audio), c.AudioRate)
		if !send(ctx, a.to, item{chunk: inference.Chunk{Audio: c.Audio, AudioRate: c.AudioRate, Words: c.Words}}) {
			return false, ""
		}
	}
	switch {
	case ctx.Err() != nil:
		return false, ""
	case fault == nil && length > 0:
		now := time.Now()
		a.room.spoke(now.Sub(began) > length+lateness, now)
		a.room.v.report(ofModel, nil)
		return false, ""
	case fault == nil:
		fault = errMute
	}
	if !errors.Is(fault, inference.ErrNoVoice) {
		a.room.v.report(ofModel, failedVoice(fault))
	}
	return true, strings.TrimSpace(a.piece[at:])
}

// errMute is returned when a model yields no sound for a text with words.
var errMute = errors.New("the answer had no sound")

func failedVoice(err error) error { return fmt.Errorf("the model's voice failed: %w", err) }
