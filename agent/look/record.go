package look

import (
	"time"

	"touchline/media/window"
)

// Record is the result of one cycle with its times, for the data topic
// "touchline.cycle", SSE readers and the page. Times are wall clock in RFC 3339
// with nanoseconds; durations are seconds, as in the original's cycle_end record.
type Record struct {
	Type  string `json:"type"` // "cycle_end"
	Cycle uint64 `json:"cycle"`

	// Outcome is one of the constants OutcomeSpoken to OutcomeFailed.
	Outcome string `json:"outcome"`
	// Reason of an outcome other than spoken and shown, in words.
	Reason string `json:"reason,omitempty"`

	// Announced is the reason of an announcement: "alert", "again", "said" or the reason in a request; "" for a comment.
	Announced string `json:"announced,omitempty"`
	// Alert is the id of the alert whose reason was said in place of a comment; "" for a comment.
	Alert string `json:"alert,omitempty"`
	// Again is set if the last comment was repeated on request.
	Again bool `json:"again,omitempty"`

	Text string `json:"text,omitempty"`
	// Facts are the measured events that the text tells, if the engine has such.
	Facts []Fact `json:"facts,omitempty"`
	// Repeats is the earlier comment that the answer repeats; for a published second try, the comment that the first answer repeated.
	Repeats     string `json:"repeats,omitempty"`
	Instruction string `json:"instruction,omitempty"`
	// InstructionBy is the author of the instruction.
	InstructionBy string `json:"-"`
	Profile       string `json:"profile,omitempty"`
	Engine        string `json:"engine,omitempty"`

	FrameIDs      []uint64  `json:"frame_ids"`
	OldestFrameAt time.Time `json:"oldest_frame_at,omitzero"` // arrival of the window's oldest frame
	NewestFrameAt time.Time `json:"newest_frame_at,omitzero"`
	// FrameAt has the arrival of each frame of the window, for the score sheet.
	FrameAt []time.Time `json:"frame_at,omitempty"`

	PTSFrom   float64 `json:"pts_from"`   // s, media time of the oldest frame
	PTSTo     float64 `json:"pts_to"`     // s, of the newest
	AnchorPTS float64 `json:"anchor_pts"` // s, of the frame that the comment is aligned to: the newest one, or the one of an event before it

	InferenceStart time.Time `json:"inference_start,omitzero"`
	InferenceEnd   time.Time `json:"inference_end,omitzero"`
	InferenceSec   float64   `json:"inference_sec"`
	// LatencySec is InferenceEnd minus NewestFrameAt.
	LatencySec float64 `json:"latency_sec"`
	Skipped    bool    `json:"skipped"`

	// FirstWordSec and FirstAudioSec count from the newest frame's arrival; 0 when there was none.
	FirstWordSec  float64 `json:"first_word_sec"`
	FirstAudioSec float64 `json:"first_audio_sec"`
	// ReadySec is ready minus the arrival of the anchor, the sample for the delay estimator.
	ReadySec float64 `json:"ready_sec"`

	// TargetDelay and Delay of the relayed picture when the comment started, seconds.
	TargetDelay float64 `json:"target_delay"`
	Delay       float64 `json:"delay"`

	// ShownAt is when the delayed picture showed the anchor; StartedAt and EndedAt bound the
	// comment's sound or text.
	ShownAt   time.Time `json:"shown_at,omitzero"`
	StartedAt time.Time `json:"started_at,omitzero"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	// AlignmentError is StartedAt minus ShownAt in seconds; Late when it is over 0.1.
	AlignmentError float64 `json:"alignment_error"`
	Aligned        bool    `json:"aligned"` // the error was measured (there was a delayed picture)
	Late           bool    `json:"late"`

	AudioSec  float64 `json:"audio_sec"`
	SceneDiff float64 `json:"scene_diff"` // 0 to 255, from the last cycle
	Spoken    bool    `json:"spoken"`
	Tokens    int     `json:"tokens,omitempty"` // text chunks, where the engine streams tokens
}

// Show sets the pictures of a record.
func (r *Record) Show(frames []window.Frame) {
	first, last := frames[0], frames[len(frames)-1]
	for _, f := range frames {
		r.FrameIDs = append(r.FrameIDs, f.ID)
		r.FrameAt = append(r.FrameAt, f.Arrival)
	}
	r.OldestFrameAt, r.NewestFrameAt = first.Arrival, last.Arrival
	r.PTSFrom, r.PTSTo = first.PTS.Seconds(), last.PTS.Seconds()
	r.AnchorPTS = last.PTS.Seconds()
}

// Outcomes of a cycle.
const (
	OutcomeSpoken   = "spoken"   // played to its end
	OutcomeShown    = "shown"    // text only
	OutcomeSilent   = "silent"   // the engine had nothing new to say
	OutcomeSkipped  = "skipped"  // the scene did not change, so the engine did not run
	OutcomeRepeated = "repeated" // it repeated a recent comment, and was not published
	OutcomeDropped  = "dropped"  // replaced or too late, before it began
	OutcomeCut      = "cut"      // silenced, or the room lost, while it was spoken
	OutcomeFailed   = "failed"   // the engine failed
)

// IsComment reports whether the cycle published words.
func (r Record) IsComment() bool {
	switch r.Outcome {
	case OutcomeSpoken, OutcomeShown, OutcomeCut:
		return r.Text != ""
	default:
		return false
	}
}
