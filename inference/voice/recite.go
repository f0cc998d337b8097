package voice

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"touchline/inference"
	"touchline/internal/rescue"
)

// farAhead is how far the sound of a room may be ahead of what is heard before its next sentence is spoken, where the room may choose the
// model's voice. An answer that the model speaks as it writes is as far ahead at most.
const farAhead = 5 * time.Second

// reciter speaks the pieces of a text that the engine does not speak as it writes, one after another: by a speech program, or by the
// model, which reads them, if the room has chosen its voice meanwhile.
type reciter struct {
	speaking
	room   *session
	unread *atomic.Bool // the model does not read
	done   chan<- item

	voice  string    // of the model
	reads  bool      // the model reads the sentence under way
	counts bool      // the room speaks in the model's voice
	within bool      // the last piece was a clause of a sentence that goes on
	from   time.Time // when the first sound was ready, at the earliest when it was heard
	length time.Duration
}

// run speaks pieces until ctx ends.
func (r *reciter) run(ctx context.Context, jobs <-chan string) {
	for {
		var piece string
		select {
		case piece = <-jobs:
		case <-ctx.Done():
			return
		}
		if !r.wait(ctx) {
			return
		}
		if r.now != nil && !r.within {
			r.choose(r.now())
		}
		r.within = isClause(piece)
		err := rescue.Call(func() error { return r.say(ctx, piece) })
		if !send(ctx, r.done, item{err: err, last: true}) {
			return
		}
	}
}

// leave ends the room's use of the model's voice.
func (r *reciter) leave() {
	if r.counts {
		r.room.v.strain.end(r.room)
	}
	r.counts = false
}

// wait waits while enough sound is ahead, so that a choice of the model's voice acts soon. It returns false if ctx ends first. A speech
// server works ahead, as it may fail.
func (r *reciter) wait(ctx context.Context) bool {
	if r.now == nil || !r.reads && r.synth.cfg.Program == remote || !r.room.v.Model.Capabilities().Speech {
		return true
	}
	ahead := r.length - time.Since(r.from)
	if ahead <= farAhead {
		return true
	}
	select {
	case <-time.After(ahead - farAhead):
		return true
	case <-ctx.Done():
		return false
	}
}

// choose takes the voice of the next sentence. The voice stays if the model is chosen and cannot read.
func (r *reciter) choose(c choice) {
	if !c.own {
		r.synth, r.reads = c.synth, false
		r.leave()
		return
	}
	r.voice, r.reads = c.voice, false
	if _, ok := r.room.Session.(inference.Speaker); !ok || r.unread.Load() {
		return
	}
	switch strain := r.room.v.strain; {
	case !r.counts:
		r.counts = r.room.own(true)
		r.reads = r.counts
	case strain.resting(r.room):
		r.room.rest(true)
	default:
		r.reads = true
	}
	r.unread.Store(!r.reads)
}

// say speaks a piece.
func (r *reciter) say(ctx context.Context, piece string) error {
	if r.reads {
		if piece = r.read(ctx, piece); piece == "" {
			return nil
		}
	}
	return r.synth.sentence(ctx, piece, r.language, r.says, func(c inference.Chunk) bool { return r.emit(ctx, c) })
}

// emit passes sound on.
func (r *reciter) emit(ctx context.Context, c inference.Chunk) bool {
	if r.from.IsZero() {
		r.from = time.Now()
	}
	r.length += duration(len(c.Audio), c.AudioRate)
	return send(ctx, r.done, item{chunk: c})
}

// read lets the model read a piece. It returns what is left of it for a program, which speaks the rest of the text if the model fails.
func (r *reciter) read(ctx context.Context, piece string) (left string) {
	speaker, ok := r.room.Session.(inference.Speaker)
	if !ok {
		return piece
	}
	began, before, at := time.Now(), r.length, 0
	var failed error
	for c, err := range speaker.Speak(ctx, piece, r.voice, r.language) {
		if c.VoiceFailed != nil {
			err = c.VoiceFailed.Err
			if err == nil {
				err = inference.ErrNoVoice
			}
		}
		if err != nil {
			failed = err
			break
		}
		if len(c.Audio) == 0 {
			continue
		}
		for _, w := range c.Words {
			at = pastWord(piece, at, w.Text)
		}
		if !r.emit(ctx, inference.Chunk{Audio: c.Audio, AudioRate: c.AudioRate, Words: c.Words}) {
			return ""
		}
	}
	sounded := r.length - before
	switch {
	case ctx.Err() != nil:
		return ""
	case failed == nil && sounded > 0:
		r.room.v.strain.sentence(time.Since(began) > sounded+lateness, time.Now())
		r.room.v.report(ofModel, nil)
		return ""
	case failed == nil:
		failed = errMute
	}
	if !errors.Is(failed, inference.ErrNoVoice) {
		r.room.v.report(ofModel, failedVoice(failed))
	}
	r.unread.Store(true)
	r.reads = false
	return strings.TrimSpace(piece[at:])
}

// clauseEnds are the stops within a sentence; the text goes on without a space behind those that are wide.
const (
	wideEnds   = "，、；："
	clauseEnds = ",;:—–" + wideEnds
)

// isClause reports whether a piece is a clause of a sentence that goes on.
func isClause(piece string) bool {
	r, _ := utf8.DecodeLastRuneInString(piece)
	return strings.ContainsRune(clauseEnds, r)
}

// join returns the text of pieces.
func join(pieces []string) string {
	var b strings.Builder
	for i, piece := range pieces {
		if i > 0 {
			if r, _ := utf8.DecodeLastRuneInString(pieces[i-1]); !strings.ContainsRune(wideEnds, r) {
				b.WriteByte(' ')
			}
		}
		b.WriteString(piece)
	}
	return b.String()
}
