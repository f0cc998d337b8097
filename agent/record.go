package agent

import (
	"time"
)

// Record is what one cycle did, with all its times. It goes to the data topic
// "touchline.cycle", to SSE readers and to the page. Times are wall clock in
// RFC 3339 with nanoseconds; durations are seconds, as the original's
// cycle_end record has them.
type Record struct {
	Type  string `json:"type"` // "cycle_end"
	Cycle uint64 `json:"cycle"`

	// Outcome: "spoken", "shown" (text only), "silent" (the model said "..."),
	// "skipped" (the scene did not change), "dropped", "cut", "failed".
	Outcome string `json:"outcome"`
	// Reason in plain words for anything but spoken and shown.
	Reason string `json:"reason,omitempty"`

	Text        string `json:"text,omitempty"`
	Instruction string `json:"instruction,omitempty"`
	Profile     string `json:"profile,omitempty"`
	Engine      string `json:"engine,omitempty"`

	FrameIDs      []uint64  `json:"frame_ids"`
	OldestFrameAt time.Time `json:"oldest_frame_at,omitzero"` // arrival of the window's oldest frame
	NewestFrameAt time.Time `json:"newest_frame_at,omitzero"`
	// FrameAt are the arrivals of all frames of the window, for the score sheet.
	FrameAt []time.Time `json:"frame_at,omitempty"`

	PTSFrom   float64 `json:"pts_from"`   // s, media time of the oldest frame
	PTSTo     float64 `json:"pts_to"`     // s, of the newest
	AnchorPTS float64 `json:"anchor_pts"` // s, the frame the comment waits for

	InferenceStart time.Time `json:"inference_start,omitzero"`
	InferenceEnd   time.Time `json:"inference_end,omitzero"`
	InferenceSec   float64   `json:"inference_sec"`
	// LatencySec is InferenceEnd minus NewestFrameAt.
	LatencySec float64 `json:"latency_sec"`
	Skipped    bool    `json:"skipped"`

	// FirstWordSec and FirstAudioSec count from the newest frame's arrival; 0 when there was none.
	FirstWordSec  float64 `json:"first_word_sec"`
	FirstAudioSec float64 `json:"first_audio_sec"`
	// ReadySec is what the delay estimator learned from: ready minus arrival.
	ReadySec float64 `json:"ready_sec"`

	// TargetDelay is where D is going, Delay where it was when the comment started, seconds.
	TargetDelay float64 `json:"target_delay"`
	Delay       float64 `json:"delay"`

	// ShownAt is when the delayed picture showed the anchor, StartedAt when the comment started,
	// EndedAt when its last sound (or word) was out.
	ShownAt   time.Time `json:"shown_at,omitzero"`
	StartedAt time.Time `json:"started_at,omitzero"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	// AlignmentError is StartedAt minus ShownAt in seconds; Late when it is over 0.1.
	AlignmentError float64 `json:"alignment_error"`
	Aligned        bool    `json:"aligned"` // the error was measured (there was a delayed picture)
	Late           bool    `json:"late"`

	AudioSec  float64 `json:"audio_sec"`
	SceneDiff float64 `json:"scene_diff"` // 0 to 255 against the last look
	Spoken    bool    `json:"spoken"`
	Tokens    int     `json:"tokens,omitempty"` // text chunks, where the engine streams tokens
}

// What became of a cycle.
const (
	OutcomeSpoken  = "spoken"  // heard to its end
	OutcomeShown   = "shown"   // text only
	OutcomeSilent  = "silent"  // the engine had nothing new to say
	OutcomeSkipped = "skipped" // the scene did not change, the engine was not asked
	OutcomeDropped = "dropped" // replaced or hopelessly late, never heard
	OutcomeCut     = "cut"     // silenced, or the room lost, while it was heard
	OutcomeFailed  = "failed"  // the engine failed
)

// IsComment tells whether the cycle ended in words that people read or heard.
func (r Record) IsComment() bool {
	switch r.Outcome {
	case OutcomeSpoken, OutcomeShown, OutcomeCut:
		return r.Text != ""
	default:
		return false
	}
}

// LiveKit's agent states (attribute lk.agent.state).
const (
	StateInitializing = "initializing"
	StateIdle         = "idle"
	StateListening    = "listening"
	StateThinking     = "thinking"
	StateSpeaking     = "speaking"
)

// Status is what the bot does right now, in words for people.
type Status struct {
	// State is one of LiveKit's agent states.
	State string `json:"state"`
	// Detail: why it is silent, what it waits for.
	Detail string `json:"detail,omitempty"`
	// Percent of the model's loading, 0 to 100; 100 when loaded.
	Percent int `json:"percent"`
	// Chip is the page's state chip: waiting, loading, failed, watching, thinking,
	// speaking, silent, idle, reconnecting.
	Chip string `json:"chip"`
}
