// Package inference is the vocabulary of engines: a Model is loaded once and
// shared, a Session is one room's conversation with it, a Chunk is one step of
// an answer.
//
// It has no media transport and no room. Its subpackages are the engines: scene
// (no model), remote (an OpenAI-compatible server), minicpmo (the built-in
// model), qwen3asr (speech recognition), sphinx (spoken orders), and voice (speech for engines without).
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

// Frame is one picture of a prompt: packed 8-bit RGB. Read-only.
type Frame struct {
	// PTS is the picture's media time. Frames with equal PTS and Epoch are the
	// same picture, so engines may cache results by them.
	PTS           time.Duration
	Epoch         uint32
	Width, Height int
	Pix           []byte // Width*Height*3, R G B, top row first
}

// Prompt is one request to an engine.
type Prompt struct {
	// System is the system prompt: role, language, when to stay silent.
	System string
	// Text goes with the frames: past comments, length hint, the instruction.
	Text string
	// Instruction is the viewer's instruction alone, and InstructionBy the viewer ("" if not known), for engines that ignore Text.
	Instruction, InstructionBy string
	// InstructionNumber is another one when the same instruction is given again.
	InstructionNumber uint64
	// Longer is how many steps the answer is longer than usual, shorter if negative, for engines that ignore Text.
	Longer int
	// Frames are oldest first, at least one. A prompt may have a Text and no frames if the engine reads Text.
	Frames []Frame
	// MaxTokens is the limit of the answer; 0 means the engine's own limit.
	MaxTokens int
	// Speech requests audio in addition to the text, if the engine has a voice.
	Speech bool
	// Language of the answer, BCP 47; "" means English.
	Language string
	// Sampling sets the random draws; nil fields keep the engine's values.
	Sampling Sampling
	// MaxSlices is the largest number of tiles of each picture, in addition to the whole picture; 0 means the engine's own.
	MaxSlices int
	// Pronunciations maps words in lower case to the text that the voice reads instead. The text keeps the word.
	Pronunciations map[string]string
	// Voice of the answer: VoiceModel, one of its OwnVoices such as "model:anna", or a speech program's voice such as "flite:slt".
	// VoiceAuto selects the model's voice if it has one, else a program for the language. "remote" and "remote:af_heart" are voices of a
	// speech server; "" is the configured voice.
	Voice string
	// VoiceNow returns the Voice for the next sentence, from any goroutine; nil if the voice does not change.
	VoiceNow func() string
	// Rules are the conditions of the alert rules of a structured prompt, numbered from 1, for
	// engines that ignore Text.
	Rules []string
	// Regions are the room's zones and lines, for engines whose sentences name them.
	Regions []Region
	// Urgent lets the prompt overtake other prompts that wait for the engine.
	Urgent bool
	// Schema is the JSON schema of the answer, which is then structured: without random sampling and speech; nil for none. Engine
	// minicpmo supports a subset (objects with all properties, an array with maxItems, strings with maxLength, integers from
	// minimum to maximum) and returns an error for any other keyword; its complete answers are always valid. Engine remote sends
	// the schema to the server, validates the answer (except maxLength) and requests one repair; its answer is valid or an error.
	// Other engines ignore the schema.
	Schema []byte
	// Trace, if not nil, is called with each exchange with the model when it ends, and always before the answer's text ends. Engines
	// without a model do not call it.
	Trace func(Exchange)
}

// Exchange is one request to a model and its answer, unchanged. A prompt has several if the engine retries.
type Exchange struct {
	// Request is the text or JSON that was sent to the model. Pictures are replaced by their sizes.
	Request string `json:"request"`
	// Reasoning and Answer are all text of the model, including the parts that the engine removes.
	Reasoning string `json:"reasoning,omitempty"`
	Answer    string `json:"answer"`
	// Error is the reason for an incomplete answer.
	Error string `json:"error,omitempty"`
}

// Structured reports whether the answer is JSON.
func (p Prompt) Structured() bool { return len(p.Schema) > 0 }

// MaxInstruction is the longest instruction, in characters.
const MaxInstruction = 2000

// Sampling are the settings of random draws.
type Sampling struct {
	// Temperature divides the logits, 0.01 to 10; 0 always chooses the likeliest token.
	Temperature *float64 `json:"temperature,omitempty"`
	// TopK is the number of likeliest tokens to draw from; 0 means all.
	TopK *int `json:"top_k,omitempty"`
	// TopP is the total probability of the tokens to draw from, above 0 and at most 1.
	TopP *float64 `json:"top_p,omitempty"`
	// RepetitionPenalty divides the logits of tokens already in the answer, 0.1 to 10; 1 is off.
	RepetitionPenalty *float64 `json:"repetition_penalty,omitempty"`
}

// Over returns the fields of s that are set, and own's values for the others.
func (s Sampling) Over(own Sampling) Sampling {
	return Sampling{
		cmp.Or(s.Temperature, own.Temperature), cmp.Or(s.TopK, own.TopK), cmp.Or(s.TopP, own.TopP),
		cmp.Or(s.RepetitionPenalty, own.RepetitionPenalty),
	}
}

// WordTime is the time of one word in its chunk's audio.
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
	// Words holds the times of words in the answer's sound that are known now, relative
	// to Audio's first sample, so words of an earlier chunk have negative ones; nil if
	// times are unknown.
	Words []WordTime

	// Anchor is the PTS of the newest event that the answer is about, if it is older than the newest picture of the prompt; 0 is that
	// picture. It comes with the first Text.
	Anchor time.Duration
	// Facts are the measured events that the answer tells, for the page. They come with the first Text.
	Facts []Fact

	// TextEnds is set if no Text follows but Audio may. An answer that ends with its text need not set it.
	TextEnds bool

	// VoiceFailed ends the sound of an answer whose text may go on; nil otherwise. No Audio follows it.
	VoiceFailed *VoiceFailure
}

// VoiceFailure is the end of an engine's own voice within an answer.
type VoiceFailure struct {
	// From is the byte offset in the answer's whole text at which sound ends: the beginning of the first sentence that was not spoken. It
	// may lie beyond the text so far.
	From int
	Err  error
}

// Model is a loaded engine, shared by all rooms. Safe for concurrent use.
type Model interface {
	// Name returns the engine's display name ("scene", "remote: qwen").
	Name() string
	// NewSession opens one room's conversation. It is cheap. While the model
	// loads, Generate waits or fails with ErrNotReady.
	NewSession() (Session, error)
	// Status returns the state of loading.
	Status() Status
	// Capabilities returns the engine's capabilities; they may change when a
	// model is loaded.
	Capabilities() Capabilities
	// Close releases all resources. Close the sessions first.
	Close() error
}

// Capabilities of an engine.
type Capabilities struct {
	// Instructions is set if the engine reads Prompt.Text or Prompt.Instruction.
	Instructions bool
	// Structured is set if its answers to a prompt with a schema are JSON.
	Structured bool
	// Speech is set if its answers have sound when a prompt requests it. OwnVoice is set if the sound is the model's own and not a
	// program's; only a model that is combined with a speech program (package voice) sets it.
	Speech, OwnVoice bool
	// OwnVoices are the names of its voices besides the usual one.
	OwnVoices []string
	// VoiceLanguages are the BCP 47 primary languages of its own voice; nil means any.
	VoiceLanguages []string
	// Languages are the BCP 47 primary languages of its answers; nil means any.
	Languages []string
	// MaxFrames returns the maximum number of pictures of one size in a prompt with Prompt.MaxSlices;
	// nil means no limit.
	MaxFrames func(width, height, slices int) int
	// Slices is set if the engine reads Prompt.MaxSlices.
	Slices bool
	// Sampling is set if the engine reads Prompt.Sampling: its own values, nil where they are not known.
	Sampling *Sampling
	// CheckRule is set if the engine supports only some alert rules, by Prompt.Rules: it returns an error for an unsupported condition,
	// and for one that names none of the room's zones and lines. RuleNames are examples of supported ones.
	CheckRule func(when string, regions []Region) error
	RuleNames []string
	// Facts is set if its sessions implement Judge, which decides all rules; there are no prompts with Rules then.
	Facts bool
}

// VoiceSpeaks reports whether the engine's own voice speaks a language (a BCP 47 tag; "" means English).
func (c Capabilities) VoiceSpeaks(tag string) bool {
	return c.VoiceLanguages == nil || slices.Contains(c.VoiceLanguages, Primary(tag))
}

// OwnVoiceIDs returns the model's own voices, as in Prompt.Voice; none if it has no voice.
func (c Capabilities) OwnVoiceIDs() []string {
	if !c.OwnVoice {
		return nil
	}
	ids := []string{VoiceModel}
	for _, name := range c.OwnVoices {
		ids = append(ids, VoiceModel+":"+name)
	}
	return ids
}

// DefaultVoice is the name of the voice that comes with a checkpoint: "model:default" is "model".
const DefaultVoice = "default"

// CheckVoice returns an error if a voice, as in Prompt.Voice, names a voice of the model that it does not have.
func (c Capabilities) CheckVoice(id string) error {
	program, name, _ := strings.Cut(id, ":")
	switch {
	case program != VoiceModel:
		return nil
	case !c.OwnVoice:
		return ErrNoVoice
	case name != "" && name != DefaultVoice && !slices.Contains(c.OwnVoices, name):
		return fmt.Errorf("the model has no voice %.80q: choose one of %s", name, strings.Join(c.OwnVoiceIDs(), ", "))
	}
	return nil
}

// Rules reports whether the engine supports alert rules.
func (c Capabilities) Rules() bool { return c.Instructions || c.CheckRule != nil }

// Speaks reports whether the engine answers in a language (a BCP 47 tag; ""
// means English).
func (c Capabilities) Speaks(tag string) bool {
	return c.Languages == nil || slices.Contains(c.Languages, Primary(tag))
}

// AnswersIn returns the language of the engine's answers to a prompt with the language tag. The voice follows the engine: a speech
// program must not read English as Dutch.
func (c Capabilities) AnswersIn(tag string) string {
	if c.Speaks(tag) {
		return tag
	}
	return c.Languages[0]
}

// Primary returns the language of a BCP 47 tag without script and region, in lower case; "" means English.
func Primary(tag string) string {
	base, _, _ := strings.Cut(strings.ToLower(cmp.Or(tag, "en")), "-")
	return base
}

// askFor are the sentences of AskFor, each in its own language.
func askFor(language string) string {
	switch language {
	case "en":
		return "Answer in English."
	case "zh":
		return "请用中文回答。"
	case "es":
		return "Responde en español."
	case "fr":
		return "Réponds en français."
	case "de":
		return "Antworte auf Deutsch."
	case "it":
		return "Rispondi in italiano."
	case "pt":
		return "Responda em português."
	case "nl":
		return "Antwoord in het Nederlands."
	case "ja":
		return "日本語で答えてください。"
	case "ko":
		return "한국어로 대답하세요."
	}
	return ""
}

// AskFor returns the prompt sentence that selects the language of the answer,
// independent of the instruction's language. A tag with a script or a region is named
// as well: "pt-BR", "zh-Hant".
func AskFor(tag string) string {
	language := Primary(tag)
	if ask := askFor(language); ask != "" {
		if strings.EqualFold(cmp.Or(tag, "en"), language) || language == "en" {
			return ask
		}
		return fmt.Sprintf("%s (%s)", ask, tag)
	}
	return fmt.Sprintf("Answer in the language that has the BCP 47 tag %q, whatever the language of this text.", tag)
}

// Session is one conversation. Not safe for concurrent use, except that
// Observe may run during Generate, and Generate while the sound of finished answers is still made.
type Session interface {
	// Generate answers one prompt. The sequence ends with the answer, or with a
	// non-nil error as its last element: ctx's error if ctx ended. Breaking out
	// of the loop cancels the work.
	Generate(ctx context.Context, p Prompt) iter.Seq2[Chunk, error]
	// Observe receives every sampled frame, so that an engine can embed or
	// measure it before the prompt. It returns quickly and may drop frames.
	Observe(f Frame)
	// Close releases the session's resources.
	Close() error
}

// VoiceCanceller is a Session whose answer can go on without its sound.
type VoiceCanceller interface {
	// CancelVoice ends the sound of the last Generate call; its text continues. It does not wait.
	CancelVoice()
}

// Speaker speaks texts. It is also an optional interface of a Session, for texts that are not answers: there Speak may
// run during Generate, words are pronounced as the last prompt says, and its VoiceNow changes the voice between sentences.
type Speaker interface {
	// Speak yields the text and its audio, in any order of the two. The voice is named as in Prompt.Voice, the language
	// by a BCP 47 tag; "" means the configured ones. The sequence ends with the text, or with an error as its
	// last element: ErrNoVoice from one that cannot speak.
	Speak(ctx context.Context, text, voice, language string) iter.Seq2[Chunk, error]
}

type speed struct{}

// AtSpeed returns a context whose texts a Speaker speaks that much faster, if it can.
func AtSpeed(ctx context.Context, factor float64) context.Context {
	return context.WithValue(ctx, speed{}, factor)
}

// Speed returns the factor of AtSpeed; 1 without one.
func Speed(ctx context.Context) float64 {
	if factor, ok := ctx.Value(speed{}).(float64); ok {
		return factor
	}
	return 1
}

type behind struct{}

// Behind returns a context whose work has lower priority than live rooms: for texts that a Speaker speaks for no room.
func Behind(ctx context.Context) context.Context { return context.WithValue(ctx, behind{}, true) }

// IsBehind reports whether work has lower priority than live rooms.
func IsBehind(ctx context.Context) bool { return ctx.Value(behind{}) != nil }

// ErrNoVoice is returned for speech that is asked of a model without a voice.
var ErrNoVoice = errors.New("this model has no voice")

// Phase is a state of a model.
type Phase uint8

// The phases in their usual order. After an idle unload (PhaseUnloaded) the next
// prompt loads the model again.
const (
	PhaseUnloaded Phase = iota
	PhaseLoading
	PhaseWarming
	PhaseReady
	PhaseFailed
)

// String returns the phase in lower case.
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

// Status is a snapshot of a model's state.
type Status struct {
	Phase Phase
	// Percent of loading and warming done, 0 to 100.
	Percent int
	// Detail describes the current step, or the failure and its remedy.
	Detail string
	// VoiceProblem is the reason for answers without the requested speech; "" without a problem.
	VoiceProblem string
	// Problem is what a ready model lacks, as a GPU that was lost, and its remedy; "" without a problem.
	Problem string
}

// ErrNotReady is returned when a model cannot answer yet; the caller may retry.
var ErrNotReady = errors.New("the model is not ready")

// ErrOverloaded is returned when the queue of prompts is full.
var ErrOverloaded = errors.New("the model has too much to do")

// TooLongError is returned for a prompt with more tokens than a model takes. It comes before any other answer. Prompts are not
// truncated, because the instruction is at the end.
type TooLongError struct{ Tokens, Max int }

// Error returns both lengths and the remedy.
func (e *TooLongError) Error() string {
	return fmt.Sprintf("the prompt has %d tokens, and at most %d fit: use fewer pictures, fewer slices or less text", e.Tokens, e.Max)
}

// ModelMissingError is returned when a server answers but does not have the model.
type ModelMissingError struct {
	Server, Model string
	Available     []string
}

// Error names the server, the requested model and the available ones.
func (e *ModelMissingError) Error() string {
	return fmt.Sprintf("expected model %q on %s, which has %q: choose one of these or load it there",
		e.Model, e.Server, e.Available)
}
