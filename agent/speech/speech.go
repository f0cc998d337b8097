// Package speech schedules the speech of a room: comments, announcements, alerts, confirmations and repeats are Utterances in one queue.
//
// Core is the decision: it takes events with the time as an argument and returns actions. It reads no clock, starts no
// goroutine and knows neither engine nor room. Scheduler is its shell: a lock, and one goroutine that carries out the
// actions in their order.
//
// # Order
//
// The queue is ordered by priority, then by age. Comments have the lowest priority. A comment waits for its frame on the
// delayed picture (pacing.Release), for the voice before it and for people who speak; an announcement waits for none of
// them but the voice. An utterance may cut what is said with less than some priority, at its own first sound, so that no
// silence comes between. Equal priority keeps its order.
//
// # The end of an utterance
//
// Each Utterance ends once: spoken (or shown, without a voice), cut while it was said, or dropped before it was. Its
// Maker gets the Result.
package speech

import (
	"context"
	"errors"
	"time"

	"touchline/inference"
	"touchline/media"
)

// Causes of an end that the scheduler itself brings about.
var (
	// ErrTooLate is the cause of a comment dropped because its frame was shown more than 10 s ago.
	ErrTooLate = errors.New("it was more than 10 s late")
	// ErrTalkedOver is the cause of speech cut because a participant began to speak.
	ErrTalkedOver = errors.New("somebody began to speak")
	// ErrVoiceLost is the cause of speech whose end the voice does not report.
	ErrVoiceLost = errors.New("the voice did not play it")
	// ErrFull is returned by Add while too many utterances wait.
	ErrFull = errors.New("speech queue is full; retry later")
)

// MaxPerAuthor bounds the waiting announcements of one author, MaxWaiting the waiting announcements of all authors. Announcements without
// an author, the commentator's own, do not count for MaxWaiting.
const (
	MaxPerAuthor = 16
	MaxWaiting   = 64
)

// Priority orders utterances; higher ones are spoken first.
type Priority uint8

// The priorities.
const (
	Comment      Priority = iota // of a look at the picture
	Announcement                 // waits for the end of the current speech
	Interjection                 // an answer to a person in the room, or an announcement that interrupts
	Alert
)

// State of an Utterance.
type State uint8

// The states.
const (
	Queued  State = iota // has nothing to begin with yet
	Waiting              // for its frame, for the voice, or for people to end
	Playing              // the voice has it, or its text is shown
	Paused               // silent for now, and goes on from there
	Cut                  // silenced before its end
	Done                 // spoken to its end, or dropped before it began
)

// String returns the state in lower case.
func (s State) String() string {
	return [...]string{"queued", "waiting", "playing", "paused", "cut", "done"}[s]
}

// Outcome is how an utterance ended.
type Outcome uint8

// The outcomes.
const (
	Spoken   Outcome = iota + 1 // played to its end
	Shown                       // text alone
	Silenced                    // cut while it was spoken
	Dropped                     // before it began
)

// Anchor is the frame that a comment is about.
type Anchor struct {
	Epoch   uint32
	PTS     time.Duration
	Arrival time.Time
}

// Line is the delayed picture; see delay.Line.
type Line interface {
	// Due predicts when the picture of a media time is shown.
	Due(epoch uint32, pts time.Duration, now time.Time) (time.Time, bool)
	// Shown returns when it was really shown; false while it was not.
	Shown(epoch uint32, pts time.Duration) (time.Time, bool)
	Delay() time.Duration
	Target() time.Duration
	SetTarget(d time.Duration)
}

// Floor is whether a person who may instruct the commentator speaks.
type Floor uint8

// The floors.
const (
	FloorFree     Floor = iota // no authorised person speaks
	FloorDoubtful              // a person speaks, or a microphone picks up the voice
	FloorTaken                 // a person speaks
)

// BargeIn is the voice's behaviour while a person speaks.
type BargeIn uint8

// The values.
const (
	Talk      BargeIn = iota // it goes on
	Duck                     // it is lower
	Wait                     // the next comment waits
	Interrupt                // it pauses in doubt, and is cut when a person speaks
)

// Maker generates the text and sound of an utterance, and receives its captions and result. The methods are called from the scheduler's
// goroutines without a lock.
type Maker interface {
	// Make generates the sound of an announcement when its turn comes; it is not called for comments. It runs in its own goroutine; an
	// error ends the scheduler. ctx is cancelled when the sound is no longer wanted.
	Make(ctx context.Context, u *Utterance) error
	// Begun is called when the utterance leaves the queue. A dropped utterance is not spoken.
	Begun(dropped bool)
	// Caption receives the next step of the caption.
	Caption(s Step)
	// Ended receives the result, once.
	Ended(r Result)
}

// Step is a step of a caption.
type Step struct {
	Delta  string // new text; may be "" in the final step
	Text   string // all so far
	Final  bool
	Spoken bool // the words follow the voice
}

// Result is the result of an utterance.
type Result struct {
	Outcome Outcome
	// Cause is the cause of a cut or drop.
	Cause error
	// Failure is the error that ended the sound early.
	Failure error
	// Text is the shown text; for a dropped utterance, all of its text.
	Text   string
	Spoken bool // its words followed the voice
	// Audible is the length of its sound.
	Audible time.Duration
	// Started and Ended bound its sound or text.
	Started, Ended time.Time
	// Ready is when it had its first sound or text, FirstSound is of sound alone.
	Ready, FirstSound time.Time
	// Delay and Target are the delay of the picture and its target when it began.
	Delay, Target time.Duration
	// ShownAt is when its frame was shown; zero if unknown.
	ShownAt time.Time
}

// Written is a piece of sound that was written to the voice.
type Written struct {
	Audible time.Duration // of the utterance so far
	Lead    time.Duration // trimmed from its front so far
	Length  time.Duration
	Words   []inference.WordTime // nil if their times are not known
}

// Events are callbacks of a Voice, from its goroutine; they must not block.
type Events struct {
	// Started: the packet with the first audible sample was written; onset is
	// that sample's scheduled time.
	Started func(onset time.Time)
	// Slipped: the rest is heard later by lost in total since the onset, as the machine is too busy for the voice track or
	// the sound came too late. Pauses do not count.
	Slipped func(lost time.Duration)
	// Ended: the packet with the last audible sample was written; end is when its playback ends.
	// cut is set when the utterance was stopped before its end.
	Ended func(end time.Time, cut bool)
}

// Voice is the voice in the room.
type Voice interface {
	// NewUtterance prepares one. Audio may be written before it is started.
	NewUtterance(ev Events) Sound
	// SetGain changes the level, in dB; 0 leaves the sound as it is. It takes effect within a frame and does not click.
	SetGain(db float64)
}

// Sound is one utterance for the voice track. Utterances play in the
// order of Start, one after the other.
// All methods are safe for concurrent use and never block for long.
type Sound interface {
	// Write appends audio (any rate; leading silence is trimmed) and returns
	// the audible time so far. Trailing silence is held back until more sound follows.
	Write(pcm media.PCM) (audible time.Duration, err error)
	// LeadTrimmed returns the silence trimmed from the start so far, to correct word times.
	LeadTrimmed() time.Duration
	// End ends the audio and returns its audible time.
	End() time.Duration
	// Start schedules the first audible sample for the given time, or as soon as possible after it.
	Start(at time.Time)
	// Pause silences it within 40 ms, and Resume goes on from where it was.
	Pause()
	Resume()
	// Cut silences it within 40 ms. Ended is called if Started was.
	Cut()
}
