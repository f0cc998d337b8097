// Package look makes comments of pictures: when to look, which pictures to show the engine and what to ask, and what its answer says.
//
// Loop takes one look at a time, a cycle of the commentary or a look with alert rules, and owns their state, their lock and
// their goroutines. It knows neither rooms nor captions nor voices: pictures, speech and outputs are ports.
package look

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"touchline/agent/prompt"
	"touchline/agent/repeat"
	"touchline/agent/settings"
	"touchline/inference"
	"touchline/internal/rescue"
	"touchline/internal/wake"
	"touchline/media"
	"touchline/media/window"
	"touchline/pacing"
)

// Causes of the end of a cycle.
var (
	// ErrReplaced is the cause of a cycle ended by a new instruction.
	ErrReplaced = errors.New("a new instruction came")
	// ErrStopped is the cause of a cycle ended because commenting was stopped.
	ErrStopped = errors.New("commenting was stopped")

	errSourceChanged = errors.New("the source changed")
	errForgotten     = errors.New("the masks or zones changed")
	errEngineChanged = errors.New("the engine changed")
	errStoodStill    = errors.New("this process stood still")
)

// Task holds the settings, the instruction, the profile and the background of the looks.
type Task struct {
	settings.InForce

	Active        bool // commenting is on
	Instruction   string
	InstructionBy string // the viewer who gave it; "" if not known
	// InstructionNumber is another one when the same instruction is given again.
	InstructionNumber uint64
	Profile           prompt.Profile
	Background        prompt.Background
	Spoken            bool // comments are spoken
}

// Options are the parts of a Loop. Rules may be nil.
type Options struct {
	Task    Task
	Engine  *Engine
	Picture *Picture
	// Newest returns the newest decoded picture.
	Newest func(ctx context.Context) (media.VideoFrame, error)
	// Ahead returns the delay of the picture of a frame that arrives now.
	Ahead  func(now time.Time) time.Duration
	Speech Speech
	Rules  Rules
	// Regions returns the zones and lines that rules and comments can name now; may be nil.
	Regions func() []inference.Region
	// OpenSensor returns a sensor for the engine in force, or says why it gets none; nil without sensors. The sensor calls looked, which
	// does not block, after each look; news is set after the first and when there is any.
	OpenSensor func(looked func(news bool)) (inference.Sensor, error)
	Output     Output
	Log        zerolog.Logger
}

// Speech speaks the comments. Its methods do not block.
type Speech interface {
	// Comment queues the comment of a cycle.
	Comment(c *Cycle, spoken bool) (Comment, error)
	// Clear drops all comments that have not begun and, with cut, silences the voice.
	Clear(cause error, cut bool)
	// VoiceEnd returns the end of the last comment, as far as it is known; zero without one.
	VoiceEnd(now time.Time) time.Time
}

// Comment is the comment of a cycle in the queue; see speech.Utterance for its methods.
type Comment interface {
	// SetAnchor moves the anchor, before the first Write.
	SetAnchor(pts time.Duration, arrival time.Time)
	Write(delta string) (ready bool)
	Sound(pcm media.PCM, words []inference.WordTime) (ready bool)
	EndText(keep, failed bool) (said, wanted bool)
	EndSound(cause error)
	Withdraw(again bool) (ok bool)
	// Ready reports whether it has sound or text to begin with, Began whether it has begun.
	Ready() bool
	Began() bool
	// Measure adds its times to a record, and returns the cause of its end; nil if it has none.
	Measure(r *Record) error
}

// Rules are the alert rules of the room.
type Rules interface {
	// Due returns the rules for a look of the engine that begins now, and counts their cadence from now.
	Due(now time.Time) []prompt.Rule
	// Next returns when a look of the engine must begin if the commentary starts none; false without an active rule.
	Next(now time.Time) (time.Time, bool)
	// ByFacts returns the active rules that facts decide.
	ByFacts(now time.Time) []prompt.Rule
	// Answer receives a look and its answer, or what facts say about one rule.
	Answer(ctx context.Context, a Answer)
	// Read reads the answer to a look for one rule alone; ok is false for an answer in another form.
	Read(answer, when string) (held bool, reason string, ok bool)
}

// Answer is a look with alert rules, and its answer.
type Answer struct {
	Rules    []prompt.Rule
	Text     string
	Err      error              // of the engine
	Finding  *inference.Finding // of facts, instead of a text
	Anchor   window.Frame       // the newest picture, or that of the finding
	Answered time.Time          // when the answer was complete
}

// Output receives the results of looks. Its methods are called without a lock.
type Output interface {
	// Changed is called when a cycle begins or ends.
	Changed()
	// Took receives the engine's time for a cycle.
	Took(d time.Duration, now time.Time)
	// Frames receives the pictures of a cycle that leads to a comment.
	Frames(cycle uint64, frames []window.Frame)
	// Record receives the result of a cycle without a comment.
	Record(r Record)
}

// Loop takes the looks of one room. Its methods are safe for concurrent use; Run must be called once. They may be called with
// locks held that no port takes.
type Loop struct {
	traces // has the exported methods for the page

	opts    Options
	engine  *Engine
	picture *Picture
	log     zerolog.Logger
	lexicon *repeat.Lexicon
	album   album
	judge   judge
	sensing sensing
	wake    wake.Signal   // wakes think
	work    *rescue.Group // has the goroutines of Run
	trying  sync.Mutex    // held by TryRule

	mu         sync.Mutex // may be held during calls of ports, except Output
	task       Task
	gate       pacing.Gate
	lastSign   *window.Signature
	lastChange window.Change
	memory     memory
	number     uint64 // of the last cycle or announcement
	inFlight   *Cycle
	lastEpoch  uint32 // of the last cycle's anchor
	lastPTS    time.Duration
	cycled     bool // lastEpoch and lastPTS are set
	retry      retry
	quiet      string    // why the last cycle has no comment
	readyAt    time.Time // when the engine was seen to become ready
	polled     polled

	forgets     uint64                  // calls of Forget; looks that began before it must show their pictures to no one
	rulesCancel context.CancelCauseFunc // ends the look with rules in flight, if there is one
	rulesRetry  retry
}

// New makes a Loop; Run runs it.
func New(o Options) *Loop {
	l := &Loop{
		opts: o, engine: o.Engine, picture: o.Picture, task: o.Task, log: o.Log, wake: wake.New(), lexicon: repeat.New(),
		album: album{most: MaxTrials},
		judge: judge{looked: wake.New(), pictures: album{most: judgedPictures}}, rulesCancel: func(error) {},
	}
	l.judge.l = l
	l.sensing = sensing{open: o.OpenSensor, picture: o.Picture, log: o.Log, looked: func(news bool) {
		l.judge.looked.Set()
		if news {
			l.wake.Set()
		}
	}}
	o.Engine.current().Watch(l.judge.watched)
	return l
}

// Run takes looks until ctx ends, or the engine panics.
func (l *Loop) Run(ctx context.Context) error {
	g, ctx := rescue.WithContext(ctx)
	l.work = g
	defer l.sensing.close()
	g.Go(func() error { return l.think(ctx) })
	if l.opts.Rules != nil {
		g.Go(func() error { return l.judge.run(ctx) })
	}
	return g.Wait()
}

// locked runs f with the lock held and releases it even when f, which calls ports, panics.
func (l *Loop) locked(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// regions returns the zones and lines of the room.
func (l *Loop) regions() []inference.Region {
	if l.opts.Regions == nil {
		return nil
	}
	return l.opts.Regions()
}

// now returns the task.
func (l *Loop) now() (t Task) {
	l.locked(func() { t = l.task })
	return t
}

// Wake makes the loop check at once whether a look is due.
func (l *Loop) Wake() { l.wake.Set() }

// Set changes the task for the looks to come.
func (l *Loop) Set(t Task) {
	l.locked(func() { l.setLocked(t) })
}

func (l *Loop) setLocked(t Task) {
	l.task = t
	if !t.Spoken && l.inFlight != nil {
		l.inFlight.spoken = false
	}
}

// ActNow changes the task, makes the next cycle urgent and clears the context of the last. The cycle in flight ends, unless its
// comment is spoken to its end.
func (l *Loop) ActNow(t Task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setLocked(t)
	l.memory.past, l.lastSign = nil, nil
	l.retry = retry{}
	l.rulesCancel(ErrReplaced)
	l.opts.Speech.Clear(ErrReplaced, t.Agent.CutOnInstruction)
	l.inFlight.replace(ErrReplaced, t.Agent.CutOnInstruction)
	l.gate.Interrupt()
}

// Stop changes the task to one without comments: it ends the cycle in flight, drops comments that wait and silences the voice.
func (l *Loop) Stop(t Task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setLocked(t)
	l.opts.Speech.Clear(ErrStopped, true)
	l.inFlight.replace(ErrStopped, true)
}

// Unsaid removes a comment that was too late from the memory of past comments.
func (l *Loop) Unsaid(text string) {
	l.locked(func() { l.memory.unsaid(text) })
}

// SourceChanged clears the state of the previous source.
func (l *Loop) SourceChanged() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastSign, l.memory.past = nil, nil
	l.album.clear()
	l.judge.forget()
}

// Forget drops the pictures of past looks, of the window and of looks in flight, and what was found in them. What these find raises no
// alert; a look with rules, and a cycle that has nothing to say yet, are ended.
func (l *Loop) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgets++
	l.lastSign = nil
	l.album.clear()
	l.judge.forget()
	l.picture.Clear()
	l.inFlight.drop(errForgotten)
	l.rulesCancel(errForgotten)
	for _, eyes := range []any{l.engine.current().Conversation, l.sensing.current()} {
		if f, ok := eyes.(interface{ Forget() }); ok {
			f.Forget()
		}
	}
}

// Woke ends what is about pictures from before a time in which the process stood still, up to now: looks in flight, waiting comments,
// the voice.
func (l *Loop) Woke(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastSign = nil
	l.picture.ClearBefore(now.Add(-time.Second)) // the decoder has older ones
	l.rulesCancel(errStoodStill)
	l.opts.Speech.Clear(errStoodStill, true)
	l.inFlight.replace(errStoodStill, true)
	l.gate.Interrupt()
}

// SetEngine puts another conversation in force; note describes the engine's limits for the page. The next cycle asks the new one, and a
// cycle that has nothing to say yet is ended. closeOld closes the conversation before, after the calls that use it.
func (l *Loop) SetEngine(c Conversation, note string) (closeOld func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.Watch(l.judge.watched)
	closeOld = l.engine.replace(c, note)
	l.inFlight.drop(errEngineChanged)
	l.rulesCancel(errEngineChanged)
	l.rulesRetry, l.retry, l.quiet, l.lastSign = retry{}, retry{}, "", nil
	l.sensing.reopen()
	return closeOld
}

// State describes the looks for the status of the room.
type State struct {
	Cycle    uint64 // the number of the last one
	Thinking bool   // a cycle waits for the text of its answer
	Failed   bool   // the last cycles failed
	Quiet    string // why the last cycle has no comment
}

// State returns the state of the looks.
func (l *Loop) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return State{Cycle: l.number, Thinking: l.inFlight != nil, Failed: l.retry.failures > 0, Quiet: l.quiet}
}

// Number returns the next number of a cycle, for an announcement.
func (l *Loop) Number() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	return l.number
}

// polled is the state that raises no event when it changes.
type polled struct {
	phase inference.Phase
	reads bool      // the engine reads alert rules
	look  time.Time // with alert rules; zero without any
	facts bool      // facts decide alert rules
}

// Poll looks for changes that raise no event, and wakes the loop after one: a model is loaded, people change the alert rules.
func (l *Loop) Poll(now time.Time) {
	p := polled{phase: l.engine.Status().Phase, reads: l.ReadsRules(), facts: l.judges(now)}
	if p.reads {
		if at, ok := l.opts.Rules.Next(now); ok {
			p.look = at
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p == l.polled {
		return
	}
	if p.phase == inference.PhaseReady && p.phase != l.polled.phase {
		l.readyAt = now
	}
	l.polled = p
	l.wake.Set()
}

// Remark adds a participant's speech to the next prompts.
func (l *Loop) Remark(r prompt.Remark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.task.Agent.Hearing.Remarks {
		l.memory.heard(r)
	}
}

// ForgetHeard removes the speech of an identity, or of all if it is "", from the next prompts, and the looks that quote it or
// have an instruction of that identity.
func (l *Loop) ForgetHeard(by string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.memory.forget(by)
	l.traces.forget(by, time.Now())
}

// retry is when to look again after failures.
type retry struct {
	failures int
	at       time.Time
}

// Intervals between failed looks.
const (
	retryFirst = time.Second
	retryMost  = 10 * time.Second
)

func (r *retry) fail(now time.Time) {
	r.failures++
	r.at = now.Add(min(retryFirst<<min(r.failures-1, 4), retryMost))
}
