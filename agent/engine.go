package agent

import (
	"touchline/agent/look"
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

// String returns the engine's display name.
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
	// Notes say what was learnt about a server in force, such as "no temperature, one picture a request".
	Notes string `json:"notes,omitempty"`
	// Refused is why it cannot be chosen; "" if it can.
	Refused string `json:"refused,omitempty"`
}

// EngineChange is a running change of the engine.
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
	// Language is its BCP 47 tag, "" for several; Speaks reports whether it speaks the comments' language.
	Language string `json:"language"`
	Speaks   bool   `json:"speaks"`
}

// Engine is the room's conversation with an engine.
type Engine = look.Conversation

// SetEngine puts another Engine in force; note describes its limits for the page. The next cycle asks the new one, and a cycle that has
// nothing to say yet is ended. Comments that are queued or spoken are played to their end. SetEngine returns when the old Engine is
// closed. It checks no settings; see Fits.
func (s *Session) SetEngine(e Engine, note string) {
	before := s.engine.Name()
	closeOld := s.Looks.SetEngine(e, note)
	s.speech.Forget(true)
	s.log.Info().Str("engine", e.Name()).Str("before", before).Msg("engine changed")
	steered{s}.Changed(nil)
	if err := closeOld(); err != nil {
		s.log.Warn().Err(err).Msg("engine session not closed")
	}
}

// OwnVoices returns the voices of the engine itself; none without one.
func (s *Session) OwnVoices() (out []VoiceOption) {
	language := s.State().Inference.Voice.Language
	can := s.engine.Capabilities()
	for _, id := range can.OwnVoiceIDs() {
		out = append(out, VoiceOption{ID: id, Speaks: can.VoiceSpeaks(language)})
	}
	return out
}
