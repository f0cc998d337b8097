package qwen3asr

import (
	"context"
	"errors"

	networks "touchline/inference/internal/device"
	"touchline/inference/step"
)

// class is the order in which work is done.
type class uint8

const (
	final   class = iota // the text of speech that has ended
	partial              // the text of speech that goes on
	file                 // recordings
)

// job is one answer of the decoder, or one pass of the aligner. Its ids are sent to out.
type job struct {
	step.Answer

	class   class
	prompt  prompt
	windows []*window
	// slots are the positions whose classes the aligner finds; nil for an answer.
	slots []int64
	out   networks.Outbox[int32]

	// Owned by the loop.
	single  bool // it is not fed together with others, as that failed
	counted bool // as a speaker
}

func (j *job) encoded() bool {
	for _, w := range j.windows {
		if w.out == nil {
			return false
		}
	}
	return true
}

// errUtteranceClosed is returned to a caller that waits while the utterance is closed.
var errUtteranceClosed = errors.New("the utterance was closed")

// wait returns all ids of a submitted job. It gives the job up when ctx or closed ends.
func (e *Engine) wait(ctx context.Context, j *job, closed <-chan struct{}) ([]int32, error) {
	defer e.loop.Cancel(j)
	var ids []int32
	for {
		id, ok, ended, err := j.out.Take()
		switch {
		case ok:
			ids = append(ids, id)
			continue
		case ended:
			return ids, err
		}
		select {
		case <-j.out.Wake():
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-closed:
			return nil, errUtteranceClosed
		}
	}
}
