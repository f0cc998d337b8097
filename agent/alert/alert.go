package alert

import (
	"errors"
	"time"

	"touchline/inference"
)

// ErrNoAlert is returned when an alert cannot be acknowledged: its rule has a newer
// one, or is gone.
var ErrNoAlert = errors.New("no such alert in this room; only the last alert of a rule can be acknowledged")

// ErrNoRule is returned when a room has no alert rule with the id.
var ErrNoRule = errors.New("no such alert rule in this room; list the rules for their ids")

// ErrTooManyRules is returned when a room has as many alert rules as it may have.
var ErrTooManyRules = errors.New("the room has 16 alert rules, the most that it can have; remove one first")

// RuleText is an alert rule as the settings file and the API have it. An empty field has the default that it documents.
type RuleText struct {
	// Name of the rule, for people.
	Name string `json:"name,omitempty" yaml:"name" doc:"For people; the sentence when empty."`
	// When is the condition, as a sentence about the newest pictures: "a goal is scored".
	When string `json:"when" yaml:"when" doc:"A sentence, such as \"somebody enters by the left door\"; at most 200 characters."`
	// Level is info, warning or critical.
	Level string `json:"level,omitempty" yaml:"level" doc:"info, warning (default) or critical."`
	// Votes is how many of the last looks must agree: "2 of 3", by facts "1 of 1".
	Votes string `json:"votes,omitempty" yaml:"votes" doc:"How many of the last looks must agree: \"2 of 3\", by facts \"1 of 1\" (default)."`
	// Cadence is the time between two looks for the rule: "2s". Facts decide after each look of the detector.
	Cadence string `json:"cadence,omitempty" yaml:"cadence" doc:"Time between two looks of the engine for the rule: \"2s\" (default)."`
	// Pause is the shortest time between two alerts of the rule: "30s".
	Pause string `json:"pause,omitempty" yaml:"pause" doc:"Shortest time between two alerts of the rule: \"30s\" (default)."`
	// Hours in which the rule is active: "22:00-06:00".
	Hours string `json:"hours,omitempty" yaml:"hours" doc:"When the rule is active: \"22:00-06:00\"; always when empty."`
	// Zone of Hours, in the IANA database: "Europe/Madrid".
	Zone string `json:"zone,omitempty" yaml:"zone" doc:"Time zone of hours and days, such as Europe/Madrid."`
	// Days on which Hours begin: mon to sun.
	Days []string `json:"days,omitempty" yaml:"days" doc:"Days on which the hours begin: mon to sun; every day when empty."`
	// Interrupt lets an alert of the rule interrupt speech.
	Interrupt bool `json:"interrupt,omitempty" yaml:"interrupt" doc:"An alert of the rule may interrupt speech."`
	// By is what decides the rule: ByAuto, ByFacts or ByModel.
	By string `json:"by,omitempty" yaml:"by" doc:"What decides the rule: auto (default), facts or model."`
}

// RuleStatus is an alert rule of a room with its state.
type RuleStatus struct {
	ID string `json:"id"`
	RuleText

	// Active is false outside of the rule's hours.
	Active bool `json:"active" doc:"False outside of the rule's hours."`
	// On is set while an alert of the rule is not cleared.
	On bool `json:"on" doc:"An alert of the rule is not cleared yet."`
	// Alert is the id of the rule's last alert; AckedBy is the client that acknowledged it.
	Alert   string `json:"alert,omitempty" doc:"Id of the last alert of the rule."`
	AckedBy string `json:"acked_by,omitempty" doc:"The client that acknowledged this alert."`
	// SnoozedUntil is when looks for the rule begin again; SnoozedBy is the client that stopped them.
	SnoozedUntil time.Time `json:"snoozed_until,omitzero" doc:"When looks for the rule begin again; absent when it is not snoozed."`
	SnoozedBy    string    `json:"snoozed_by,omitempty" doc:"The client that snoozed the rule."`
	// Problem is why the engine cannot be asked for the rule; "" if it can.
	Problem string `json:"problem,omitempty" doc:"Why the engine cannot be asked for the rule; absent if it can."`
	// Looks for the rule with an answer; Late of these began more than a cadence after they were due.
	Looks uint64 `json:"looks"`
	Late  uint64 `json:"late" doc:"Looks that began more than a cadence after they were due."`
	// Unanswered looks: the engine failed, or its answer had another form.
	Unanswered uint64 `json:"unanswered" doc:"Looks that the engine did not answer, or not in the form asked for."`
}

// What decides a rule.
const (
	ByAuto  = "auto"  // facts where they can, else the model
	ByFacts = "facts" // what the detector of engine sight found and followed
	ByModel = "model" // the engine's answer to the sentence
)

// Levels of alerts.
const (
	LevelInfo     = "info"
	LevelWarning  = "warning"
	LevelCritical = "critical"
)

// Phases of an alert.
const (
	PhaseNew     = "new"     // enough looks agree
	PhaseShown   = "shown"   // the delayed picture shows its frame
	PhaseCleared = "cleared" // the rule does not hold any more
	PhaseAcked   = "acked"   // a person has seen it
)

// Alert is one phase of an alert, for the data topic "touchline.alert", SSE readers
// and outputs. The phases of an alert have the same ID.
type Alert struct {
	Type  string    `json:"type"` // "alert"
	ID    string    `json:"id"`
	Phase string    `json:"phase"` // PhaseNew, PhaseShown, PhaseAcked or PhaseCleared
	At    time.Time `json:"at"`    // of the phase

	Rule  string `json:"rule"` // id of the rule
	Name  string `json:"name"`
	Level string `json:"level"`
	// Reason in a sentence: why the engine sees the rule hold, or why the alert ended.
	Reason string `json:"reason"`

	// AnchorPTS is the media time, s, of the newest frame of the look that led to the alert, or by facts of the event's frame; FrameID
	// names this frame.
	AnchorPTS float64 `json:"anchor_pts"`
	FrameID   uint64  `json:"frame_id"`
	// Agreed of the last Looks looks saw the rule hold.
	Agreed int `json:"agreed"`
	Looks  int `json:"looks"`
	// LatencySec is from the frame's arrival to the alert.
	LatencySec float64 `json:"latency_sec"`
	// Box is the thing that the rule is about in the frame; nil for an alert by a model, and where there is no such thing.
	Box *inference.Box `json:"box,omitempty"`

	// Interrupt: the alert may interrupt speech.
	Interrupt bool `json:"interrupt,omitempty"`
	// AckedBy is the client that acknowledged the alert.
	AckedBy string `json:"acked_by,omitempty"`
	// Test: a client sent it to test the outputs. It counts as no alert.
	Test bool `json:"test,omitempty"`
}
