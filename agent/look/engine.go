package look

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"touchline/inference"
)

// Conversation is a room's conversation with an engine, and what is known of the engine. Its Status has the VoiceProblem of this room,
// and NewSession opens another conversation of the room. Closing it leaves the model open.
type Conversation interface {
	inference.Model
	inference.Session
	inference.Speaker
	inference.Seer
	inference.Judge
}

// Engine is the conversation in force. Another one can take its place at any time; an answer that has begun goes on with the old one.
type Engine struct {
	mu  sync.Mutex // never held across a call
	now *inForce
}

type inForce struct {
	Conversation

	note string
	uses sync.WaitGroup // calls; none begins once another one is in force
}

// NewEngine returns an engine with a conversation; note describes its limits for the page.
func NewEngine(c Conversation, note string) *Engine {
	return &Engine{now: &inForce{Conversation: c, note: note}}
}

func (e *Engine) current() *inForce {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now
}

// hold returns the conversation in force, which stays open until its use is done.
func (e *Engine) hold() *inForce {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now.uses.Add(1)
	return e.now
}

// replace puts a conversation in force. closeOld closes the one before, after the calls that use it.
func (e *Engine) replace(c Conversation, note string) (closeOld func() error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	old := e.now
	e.now = &inForce{Conversation: c, note: note}
	return func() error {
		old.uses.Wait()
		return old.Close()
	}
}

// Note describes the limits of the engine for the page.
func (e *Engine) Note() string { return e.current().note }

// RulesUnread explains that the engine does not support alert rules, and names the remedy.
func (e *Engine) RulesUnread() string {
	return fmt.Sprintf("the %s engine reads no alert rules; choose an engine that follows instructions", e.Name())
}

// Name implements inference.Model.
func (e *Engine) Name() string { return e.current().Name() }

// Status implements inference.Model.
func (e *Engine) Status() inference.Status { return e.current().Status() }

// Capabilities implements inference.Model.
func (e *Engine) Capabilities() inference.Capabilities { return e.current().Capabilities() }

// takesLooks reports whether the engine can be asked, perhaps after loading on demand.
func (e *Engine) takesLooks() bool {
	phase := e.Status().Phase
	return phase == inference.PhaseReady || phase == inference.PhaseUnloaded
}

// NewSession implements inference.Model.
func (e *Engine) NewSession() (inference.Session, error) { return e.current().NewSession() }

// Generate implements inference.Session.
func (e *Engine) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		c := e.hold()
		defer c.uses.Done()
		c.Generate(ctx, p)(yield)
	}
}

// Speak implements inference.Speaker.
func (e *Engine) Speak(ctx context.Context, text, voice, language string) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		c := e.hold()
		defer c.uses.Done()
		c.Speak(ctx, text, voice, language)(yield)
	}
}

// Observe implements inference.Session.
func (e *Engine) Observe(f inference.Frame) { e.current().Observe(f) }

// Close closes the conversation and leaves the model open.
func (e *Engine) Close() error { return e.current().Close() }
