package agent

import (
	"errors"
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

// Engine is the room's conversation with an engine, and what is known of the engine. Its Status has the VoiceProblem of this room, and
// NewSession opens another conversation of the room. Closing it leaves the model open.
type Engine interface {
	inference.Model
	inference.Session
	inference.Speaker
}

// engine is the Engine in force. Another one can take its place at any time; an answer that has begun goes on with the old one.
type engine struct {
	mu  sync.Mutex // never held across a call
	now *engineInForce
}

type engineInForce struct {
	Engine

	note string
	uses sync.WaitGroup // answers; none begins once another one is in force
}

func (e *engine) current() *engineInForce {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now
}

// hold returns the Engine in force, which stays open until release is called.
func (e *engine) hold() (_ Engine, release func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now.uses.Add(1)
	return e.now, e.now.uses.Done
}

// replace puts an Engine in force, and returns the one before.
func (e *engine) replace(next *engineInForce) (old *engineInForce) {
	e.mu.Lock()
	defer e.mu.Unlock()
	old, e.now = e.now, next
	return old
}

func (e *engine) Name() string { return e.current().Name() }

func (e *engine) Status() inference.Status { return e.current().Status() }

func (e *engine) Capabilities() inference.Capabilities { return e.current().Capabilities() }

// SetEngine puts another Engine in force; note describes its limits for the page. The next cycle asks the new one, and a cycle that has
// nothing to say yet is ended. Comments that are queued or spoken are played to their end. SetEngine returns when the old Engine is
// closed. It checks no settings; see Fits.
func (s *Session) SetEngine(e Engine, note string) {
	var old *engineInForce
	s.locked(func() {
		old = s.engine.replace(&engineInForce{Engine: e, note: note})
		s.startAgainLocked(errEngineChanged)
	})
	s.log.Info().Str("engine", e.Name()).Str("before", old.Name()).Msg("engine changed")
	s.nudge()
	old.uses.Wait()
	if err := old.Close(); err != nil {
		s.log.Warn().Err(err).Msg("engine session not closed")
	}
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
