package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"touchline/inference"
)

// EngineChoice names an engine.
type EngineChoice struct {
	// Engine is one of inference.Engines.
	Engine string `json:"engine"`
	// Model of a server; "" is its only one.
	Model string `json:"model,omitempty"`
	// Server is the address of a model server.
	Server string `json:"server,omitempty"`
}

// String names the engine for people.
func (c EngineChoice) String() string {
	switch {
	case c.Server == "":
		return c.Engine
	case c.Model == "":
		return c.Server
	}
	return c.Model + " on " + c.Server
}

// EngineOption is an engine that a room can have.
type EngineOption struct {
	EngineChoice

	// Program of the server, if recognised, such as "vLLM"; for a model in this process, its name.
	Program string `json:"program,omitempty"`
	// InForce is set for the engine of the comments.
	InForce bool `json:"in_force"`
	// Refused is why it cannot be chosen; "" if it can.
	Refused string `json:"refused,omitempty"`
}

// EngineChange is a change of the engine that is under way.
type EngineChange struct {
	EngineChoice

	// Percent of loading done, and the present step.
	Percent int    `json:"percent"`
	Detail  string `json:"detail,omitempty"`
	// Pauses is set while there are no comments, because both engines do not fit the memory at once.
	Pauses bool `json:"pauses,omitempty"`
}

// VoiceOption is a voice: the model's own, or one of a speech program.
type VoiceOption struct {
	// ID is a value of Settings.Voice.
	ID string `json:"id"`
	// Language is its BCP 47 tag, "" for several; Speaks reports whether it speaks that of the comments.
	Language string `json:"language"`
	Speaks   bool   `json:"speaks"`
}

// errEngineChanged is the cause of a cycle of an engine that is no longer in force.
var errEngineChanged = errors.New("the engine changed")

// engine is the model in force with the Session's conversation with it: an inference.Model and an inference.Session in
// one. Another model can take its place at any time; an answer under way goes on with the old one.
type engine struct {
	mu  sync.Mutex // never held across a call
	now *conversation
}

// conversation is a session of one model.
type conversation struct {
	inference.Session

	model inference.Model
	note  string
	uses  int           // calls under way; guarded by engine.mu
	left  bool          // another one is in force; guarded by engine.mu
	free  chan struct{} // closed when it is left and no call is under way
}

func newConversation(m inference.Model, note string) (*conversation, error) {
	session, err := m.NewSession()
	if err != nil {
		return nil, fmt.Errorf("open a session of the %s engine: %w", m.Name(), err)
	}
	return &conversation{Session: session, model: m, note: note, free: make(chan struct{})}, nil
}

func (e *engine) current() *conversation {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now
}

// replace puts a conversation in force, and returns the one before.
func (e *engine) replace(c *conversation) *conversation {
	e.mu.Lock()
	defer e.mu.Unlock()
	old := e.now
	e.now, old.left = c, true
	if old.uses == 0 {
		close(old.free)
	}
	return old
}

// use calls f with the conversation in force.
func (e *engine) use(f func(c *conversation)) {
	e.mu.Lock()
	c := e.now
	c.uses++
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if c.uses--; c.uses == 0 && c.left {
			close(c.free)
		}
	}()
	f(c)
}

// Name implements inference.Model.
func (e *engine) Name() string { return e.current().model.Name() }

// Status implements inference.Model.
func (e *engine) Status() inference.Status { return e.current().model.Status() }

// voiceProblem returns why speech fails: with the model, or in this room alone.
func (e *engine) voiceProblem() string {
	c := e.current()
	problem := c.model.Status().VoiceProblem
	if r, ok := c.Session.(inference.VoiceReporter); ok {
		problem = cmp.Or(problem, r.VoiceProblem())
	}
	return problem
}

// Capabilities implements inference.Model.
func (e *engine) Capabilities() inference.Capabilities { return e.current().model.Capabilities() }

// NewSession implements inference.Model.
func (e *engine) NewSession() (inference.Session, error) { return e.current().model.NewSession() }

// Generate implements inference.Session.
func (e *engine) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		e.use(func(c *conversation) { c.Generate(ctx, p)(yield) })
	}
}

// Speak implements inference.Speaker.
func (e *engine) Speak(ctx context.Context, text, voice, language string) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		e.use(func(c *conversation) {
			if speaker, ok := c.Session.(inference.Speaker); ok {
				speaker.Speak(ctx, text, voice, language)(yield)
			} else {
				yield(inference.Chunk{}, inference.ErrNoVoice)
			}
		})
	}
}

// Observe implements inference.Session.
func (e *engine) Observe(f inference.Frame) { e.use(func(c *conversation) { c.Observe(f) }) }

// Close closes the conversation and leaves the model open.
func (e *engine) Close() error { return e.current().Close() }

// SetModel puts another model in force; note describes its limits for the page. The next cycle asks the new one, and a cycle
// that has nothing to say yet is ended. Comments that are queued or spoken are heard to their end. SetModel returns after the
// session with the old model is closed, or with ctx's error. It checks no settings; see Fits.
func (s *Session) SetModel(ctx context.Context, m inference.Model, note string) error {
	next, err := newConversation(m, note)
	if err != nil {
		return err
	}
	var old *conversation
	s.locked(func() {
		old = s.engine.replace(next)
		s.startAgainLocked(errEngineChanged)
	})
	s.log.Info().Str("engine", m.Name()).Str("before", old.model.Name()).Msg("engine changed")
	s.nudge()
	select {
	case <-old.free:
	case <-ctx.Done():
		return ctx.Err() // the model's owner closes what is left of it
	}
	if err := old.Close(); err != nil {
		s.log.Warn().Err(err).Msg("engine session not closed")
	}
	return nil
}

// OwnVoices returns the voices of the engine itself; none without one.
func (s *Session) OwnVoices() (out []VoiceOption) {
	s.mu.Lock()
	language := s.live.Inference.Voice.Language
	s.mu.Unlock()
	can := s.engine.Capabilities()
	for _, id := range can.OwnVoiceIDs() {
		out = append(out, VoiceOption{ID: id, Speaks: can.VoiceSpeaks(language)})
	}
	return out
}

// Fits returns the errors of settings in force that a model cannot meet.
func (s *Session) Fits(m inference.Model) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checkModelLocked(m, Settings{
		Language: &s.live.Inference.Voice.Language, Frames: &s.live.Agent.Frames, Voice: new(s.live.VoiceID()),
	})
}

// startAgainLocked ends a cycle without a comment yet, and forgets what is known of the engine.
func (s *Session) startAgainLocked(cause error) {
	if c := s.inFlight; c != nil && c.replaced == nil && !s.speech.Ready(c.said) {
		c.replaced = cause
		c.cancel(cause)
	}
	if s.alerts.cancel != nil {
		s.alerts.cancel(cause)
	}
	s.alerts.failures, s.alerts.retryAt = 0, time.Time{}
	s.failures, s.retryAt, s.quiet = 0, time.Time{}, ""
	s.lastSign = nil
	s.speech.Forget(true)
}
