package sight

import (
	"cmp"
	"context"
	"iter"
	"math/rand/v2"
	"sync"
	"time"

	"touchline/inference"
	"touchline/inference/scene"
	"touchline/inference/sight/facts"
)

// never is before all looks.
const never = -time.Hour

// sentenceTokens is a model's number of tokens for the longest sentence.
const sentenceTokens = 24

// session is one room's conversation. Observe and Generate may run at the same time.
type session struct {
	model *Model
	pump  *pump

	mu       sync.Mutex
	camera   *scene.Analyzer
	measured time.Duration // the last picture that was measured
	cutAt    time.Duration // the last cut, and the last picture of a pan
	panAt    time.Duration
	observed bool
	epoch    uint32
	looked   time.Duration // the last look
	forgot   time.Duration // the last picture before Forget
	watcher  *facts.Watcher
	board    *board      // of the pump's goroutine
	seen     [3]partSeen // the same
	light    int         // 1 if the view became brighter since the last look, -1 if darker
	watched  func(inference.Sight)
}

func newSession(m *Model, random *rand.Rand) *session {
	s := &session{
		model: m, camera: scene.NewAnalyzer(), watcher: facts.NewWatcher(random),
		measured: never, cutAt: never, panAt: never, looked: never, forgot: never,
	}
	s.pump = newPump(m.slots, time.Duration(float64(time.Second)/m.cfg.FPS), s.look)
	return s
}

// Observe measures the camera's movement and passes the picture on to the next look.
func (s *session) Observe(f inference.Frame) {
	s.mu.Lock()
	s.observed = true
	s.measure(f)
	s.mu.Unlock()
	s.pump.offer(f, false)
}

// measure notes cuts, pans and other sources.
func (s *session) measure(f inference.Frame) {
	switch {
	case f.Epoch != s.epoch:
		s.epoch, s.cutAt, s.panAt, s.looked, s.forgot, s.light = f.Epoch, never, never, never, never, 0
		s.watcher.Reset()
	case f.PTS <= s.measured:
		return
	}
	s.measured = f.PTS
	s.camera.Push(f)
	for _, change := range s.camera.Take() {
		switch change.Kind { //nolint:exhaustive // the others are told by what is followed
		case scene.Brighter:
			s.light = 1
		case scene.Darker:
			s.light = -1
		}
	}
	cut, pan := s.camera.Camera()
	if cut {
		s.cutAt = f.PTS
	}
	if pan {
		s.panAt = f.PTS
	}
}

// look finds things and text in a picture, in the goroutine of the pump.
func (s *session) look(f inference.Frame, e effort) error {
	s.mu.Lock()
	since := func(at time.Duration) bool { return at > s.looked && at <= f.PTS }
	l := facts.Look{PTS: f.PTS, Frame: &f, Cut: since(s.cutAt), Pan: since(s.panAt), Light: s.light}
	fresh := l.Cut || s.looked == never
	s.mu.Unlock()
	nets := &s.model.nets
	if fresh { // a mask may have the colour of what was below
		s.board, s.seen = newBoard(), [3]partSeen{}
	}
	var err error
	if l.Boxes, err = nets.detect(f, s.model.cfg.Parts && e < wholeOnly, &s.seen); err != nil {
		return err
	}
	if nets.text != nil && e < noText {
		if l.Lines, err = s.board.Look(f, nets.text); err != nil {
			return err
		}
	}
	l.Texts, l.Clock = s.board.Texts(), s.board.clock
	s.push(l)
	return nil
}

// push follows what a look found, unless another source came meanwhile.
func (s *session) push(l facts.Look) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.Frame.Epoch != s.epoch || l.PTS <= max(s.looked, s.forgot) {
		return // another source or a mask came meanwhile
	}
	s.watcher.Push(l)
	s.looked, s.light = l.PTS, 0
	if s.watched != nil {
		s.watched(s.sightLocked())
	}
}

// Generate tells the facts since the last answer in one to three sentences, or answers inference.Silence. It looks at the frames of the
// prompt that Observe has not received.
func (s *session) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		whole, err := s.answer(ctx, p)
		if err != nil {
			yield(inference.Chunk{}, err)
			return
		}
		for i, piece := range scene.Pieces(whole.Text) {
			c := inference.Chunk{Text: piece}
			if i == 0 {
				c.Anchor, c.Facts = whole.Anchor, whole.Facts
			}
			if err := ctx.Err(); err != nil {
				yield(inference.Chunk{}, err)
				return
			}
			if !yield(c, nil) {
				return
			}
		}
	}
}

// answer returns the whole answer to a prompt in one chunk.
func (s *session) answer(ctx context.Context, p inference.Prompt) (inference.Chunk, error) {
	if err := ctx.Err(); err != nil {
		return inference.Chunk{}, err
	}
	if len(p.Frames) == 0 {
		return inference.Chunk{}, errNoFrames
	}
	if err := s.catchUp(ctx, p.Frames); err != nil {
		return inference.Chunk{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := facts.TellOptions{
		Language: p.Language, Instruction: p.Instruction, InstructionBy: p.InstructionBy, InstructionNumber: p.InstructionNumber,
	}
	switch {
	case p.MaxTokens > 0 && p.MaxTokens < 2*sentenceTokens || p.Longer < -1:
		o.MaxSentences, o.Register = 1, facts.Brief
	case p.Longer < 0:
		o.MaxSentences = 1
	case p.Longer > 0:
		o.MaxSentences = 3
	}
	s.watcher.SetRegions(p.Regions)
	told := s.watcher.Tell(o)
	return inference.Chunk{Text: cmp.Or(told.Text, inference.Silence), Anchor: told.Newest, Facts: told.Facts}, nil
}

// Judge implements inference.Judge, by facts or by what package scene measures.
func (s *session) Judge(rules []string, regions []inference.Region) (inference.Judgement, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watcher.SetRegions(regions)
	out := inference.Judgement{PTS: s.looked, Epoch: s.epoch}
	for _, when := range rules {
		f := inference.Finding{PTS: s.looked}
		if scene.CheckRule(when) == nil {
			f.Reason, f.Holds = s.camera.Holds(when)
		} else {
			f, f.Holds = s.watcher.Holds(when)
		}
		out.Findings = append(out.Findings, f)
	}
	return out, s.looked != never
}

// Sight implements inference.Seer.
func (s *session) Sight() (inference.Sight, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sightLocked(), s.looked != never
}

func (s *session) sightLocked() inference.Sight {
	seen := s.watcher.Sight()
	seen.Epoch = s.epoch
	return seen
}

// Watch implements inference.Seer.
func (s *session) Watch(f func(inference.Sight)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched = f
}

// Forget implements inference.Seer.
func (s *session) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watcher.Reset()
	s.forgot, s.looked, s.light = s.measured, never, 0
}

// Close ends the looks and waits for the last one.
func (s *session) Close() error {
	s.pump.close()
	return nil
}

// catchUp looks at all pictures of a prompt if Observe never received one. Otherwise the last look is recent: the newest picture is
// passed on to the next one.
func (s *session) catchUp(ctx context.Context, frames []inference.Frame) error {
	s.mu.Lock()
	observed := s.observed
	if newest := frames[len(frames)-1]; observed && newest.Epoch == s.epoch {
		s.measure(newest)
		s.pump.offer(newest, false)
	}
	s.mu.Unlock()
	if observed {
		return s.pump.failure()
	}
	for _, f := range frames {
		s.mu.Lock()
		s.measure(f)
		s.mu.Unlock()
		s.pump.offer(f, true)
		if err := s.pump.settle(ctx); err != nil {
			return err
		}
	}
	return nil
}
