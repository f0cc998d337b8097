// Package inference is the vocabulary of engines: a Model is loaded once and
// shared, a Session is one room's conversation with it, a Chunk is one step of
// what it says.
//
// It knows no media transport and no room. Engines live in its folders:
// scene (no model), remote (an OpenAI-compatible server), voice (speech for
// engines that have none), minicpmo.
package inference

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
)

// Frame is one picture as an engine sees it: packed 8-bit RGB. Read-only.
type Frame struct {
	// PTS is the picture's media time; two frames with the same PTS and
	// Epoch are the same picture, so what was computed for one may be reused.
	PTS           time.Duration
	Epoch         uint32
	Width, Height int
	Pix           []byte // Width*Height*3, R G B, top row first
}

// Prompt is one question to an engine.
type Prompt struct {
	// System is the standing order: who the commentator is, the language,
	// when to keep silent.
	System string
	// Text goes with the frames: carry-over, length hint, the instruction.
	Text string
	// Instruction is the viewer's order alone, for engines that read no Text.
	Instruction string
	// Frames are oldest first, at least one.
	Frames []Frame
	// MaxTokens caps the answer; 0 means the engine's own cap.
	MaxTokens int
	// Speech asks for audio beside the text, where the engine has a voice.
	Speech bool
	// Language of the answer, BCP 47; "" means English.
	Language string
}

// WordTime places one word inside its chunk's audio.
type WordTime struct {
	Text       string // the word with its trailing punctuation, no spaces
	Start, End time.Duration
}

// Chunk is one step of an answer. Text and Audio may come together or apart;
// the concatenated Texts are the whole answer.
type Chunk struct {
	Text string

	// Audio is mono 16-bit at AudioRate, in playing order.
	Audio     []int16
	AudioRate int
	// Words times the words spoken in Audio, relative to its first sample;
	// nil when the engine does not know.
	Words []WordTime
}

// Silence is the answer that means "nothing new": it is never spoken or shown.
const Silence = "..."

// Model is a loaded engine, shared by all rooms. Safe for concurrent use.
type Model interface {
	// Name says which engine this is, for people ("scene", "remote: qwen").
	Name() string
	// NewSession opens one room's conversation. Cheap; the model may still
	// be loading, in which case Generate waits or fails with ErrNotReady.
	NewSession() (Session, error)
	// Status reports the progress of loading. Safe to call at any time.
	Status() Status
	// Capabilities are what the engine can do. Safe to call at any time; they
	// may change when a model is loaded.
	Capabilities() Capabilities
	// Close releases everything. Sessions must be closed before.
	Close() error
}

// Capabilities of an engine.
type Capabilities struct {
	// Instructions is set when the engine reads Prompt.Text or
	// Prompt.Instruction.
	Instructions bool
	// Languages are the BCP 47 primary languages that the engine answers in;
	// nil means any.
	Languages []string
	// MaxFrames returns the number of pictures of a size that a prompt may
	// have; nil is no limit.
	MaxFrames func(width, height int) int
}

// Speaks reports whether the engine answers in a language (a BCP 47 tag; ""
// means English).
func (c Capabilities) Speaks(tag string) bool {
	return c.Languages == nil || slices.Contains(c.Languages, primary(tag))
}

// primary is the language of a tag without script and region.
func primary(tag string) string {
	base, _, _ := strings.Cut(strings.ToLower(cmp.Or(tag, "en")), "-")
	return base
}

// AskFor returns the sentence that asks a model to answer in a language,
// whatever the language of the instruction.
func AskFor(tag string) string {
	if primary(tag) == "en" {
		return "Answer in English."
	}
	return fmt.Sprintf("Answer in the language that has the BCP 47 tag %q, whatever the language of this text.", tag)
}

// Session is one conversation. Not safe for concurrent use, except that
// Observe may run beside Generate.
type Session interface {
	// Generate answers one prompt. The sequence ends with the answer, with a
	// non-nil error as its last element, or when ctx ends (ctx's error).
	// Breaking out of the loop cancels the work.
	Generate(ctx context.Context, p Prompt) iter.Seq2[Chunk, error]
	// Observe takes every sampled frame as it comes, so that an engine can
	// embed or measure it before it is asked. It returns quickly, may drop
	// frames, and does nothing in engines without use for it.
	Observe(f Frame)
	// Close frees what the session holds.
	Close() error
}

// Phase of a model's life.
type Phase uint8

// The phases in their usual order. PhaseUnloaded follows an idle unload: the
// next prompt loads again.
const (
	PhaseUnloaded Phase = iota
	PhaseLoading
	PhaseWarming
	PhaseReady
	PhaseFailed
)

// String names the phase in plain words.
func (p Phase) String() string {
	switch p {
	case PhaseUnloaded:
		return "unloaded"
	case PhaseLoading:
		return "loading"
	case PhaseWarming:
		return "warming up"
	case PhaseReady:
		return "ready"
	case PhaseFailed:
		return "failed"
	}
	return fmt.Sprintf("Phase(%d)", uint8(p))
}

// Status is a snapshot of a model's life.
type Status struct {
	Phase Phase
	// Percent of loading and warming done, 0 to 100.
	Percent int
	// Detail in words: what is being done, or why it failed and what to do.
	Detail string
	// VoiceProblem is why answers come without the speech that was asked for; "" when they do not.
	VoiceProblem string
}

// ErrNotReady is returned when a model cannot answer yet and waiting for it is
// up to the caller.
var ErrNotReady = errors.New("the model is not ready")

// ErrOverloaded is returned when too many prompts wait already.
var ErrOverloaded = errors.New("the model has too much to do")

// ModelMissingError is returned when a server is there but lacks the model.
type ModelMissingError struct {
	Server, Model string
	Available     []string
}

// Error names the server, the model asked for and those it has.
func (e *ModelMissingError) Error() string {
	return fmt.Sprintf("expected model %q on %s, which has %q: choose one of these or load it there",
		e.Model, e.Server, e.Available)
}
