package agent

import (
	"time"

	"touchline/agent/command"
	"touchline/agent/look"
	"touchline/agent/prompt"
	"touchline/agent/settings"
	"touchline/agent/speech"
	"touchline/media/source"
	"touchline/media/window"
)

// OrderOutput is an optional interface of a TextOutput: it receives the outcome of each instruction. It must not block.
type OrderOutput interface {
	Order(e command.OrderEvent)
}

// Steerer is a commentator as its room and the HTTP API control it. by names the
// client in logs and on the page. Bad values are *settings.RangeError, perhaps joined.
type Steerer interface {
	Snapshot() Snapshot
	// Check returns the error that Change would return.
	Check(c command.Change) error
	// Change applies all of a change or nothing, and returns the settings in force.
	Change(c command.Change, by string) (settings.Settings, error)
	// Start begins commenting on a source, named as in Change; ErrRunning if it is on already.
	Start(source, by string) error
	// Stop ends commenting and clears the instruction.
	Stop(by string)
	// Command carries out a command; see command.Steering. The error may wrap command.ErrNothingTo or speech.ErrFull.
	Command(c command.Command, by string) (command.Done, error)
	// Say queues an announcement; see Session.Say.
	Say(a speech.Notice, by string) error
	// History returns the last comments, oldest first.
	History() []look.Record
}

// Talker is an optional interface of a Steerer that hears people.
type Talker interface {
	// Talk begins or ends a participant's push-to-talk. Repeated calls change nothing. The error is the reason why the participant is not
	// recognized.
	Talk(identity string, held bool) error
}

// Snapshot is the full state of a commentator, as the page shows it.
type Snapshot struct {
	Status     Status `json:"status"`
	Engine     string `json:"engine"`
	EngineNote string `json:"engine_note,omitempty"` // limits of the engine, in words
	// EngineChange is the current change of the engine; nil if there is none. EngineProblem is why the last one failed.
	EngineChange  *EngineChange `json:"engine_change,omitempty"`
	EngineProblem string        `json:"engine_problem,omitempty"`
	// Capabilities are the engine's capabilities; without instructions it ignores the instruction.
	Capabilities Capabilities `json:"capabilities"`
	// RuleNames lists the alert rules that the engine can evaluate; empty if it accepts any sentence.
	RuleNames []string `json:"rule_names,omitempty"`
	// AlertNote is why alert rules are not looked for; "" when they are, or when there are none.
	AlertNote string `json:"alert_note,omitempty"`
	// Covered is why privacy masks cover the whole picture; "" when they do not.
	Covered string `json:"covered,omitempty"`
	// RegionsVersion is another one after each change of the room's regions; 0 without regions.
	RegionsVersion uint32 `json:"regions_version,omitempty"`

	ModelLoaded    bool   `json:"model_loaded"`
	CaptureRunning bool   `json:"capture_running"` // a frame arrived in the last 2 s
	MonitorMode    string `json:"monitor_mode"`    // "IDLE" or "ACTIVE"
	Instruction    string `json:"instruction"`
	InstructionBy  string `json:"instruction_by,omitempty"` // the client that set it
	// Waiting lists the instructions that wait for the hold time of the one in force, oldest first.
	Waiting []command.WaitingOrder `json:"waiting,omitempty"`
	// Command is the last command that had an effect.
	Command        *command.Done     `json:"command,omitempty"`
	Profile        string            `json:"active_profile"`
	Profiles       []prompt.Profile  `json:"profiles"`
	CycleCount     uint64            `json:"cycle_count"`
	FramesBuffered int               `json:"frames_buffered"`
	TTSEnabled     bool              `json:"tts_enabled"`
	Settings       settings.Settings `json:"settings"` // every field set
	// Delay is the delay of the relayed picture, TargetDelay the delay that it moves to, in seconds.
	Delay       float64 `json:"delay"`
	TargetDelay float64 `json:"target_delay"`
	// AlignmentLast and AlignmentP95 cover the last 100 comments, seconds; -1 before the first measurement.
	AlignmentLast float64 `json:"alignment_last"`
	AlignmentP95  float64 `json:"alignment_p95"`
	// Counters since the start.
	Comments uint64 `json:"comments"`
	Silent   uint64 `json:"silent"`
	Skipped  uint64 `json:"skipped"`
	Repeated uint64 `json:"repeated"` // not published because they repeat a comment
	Late     uint64 `json:"late"`
	Dropped  uint64 `json:"dropped"`
	Failed   uint64 `json:"failed"`
	// VoiceProblem is why speech fails, with the engine or in this room alone; "" when it works.
	VoiceProblem string `json:"voice_problem,omitempty"`
	// LongSide (pixels), MaxSlices and WindowSize are settings that bound a cycle's cost and window.
	LongSide   int `json:"long_side"`
	MaxSlices  int `json:"max_slices"`
	WindowSize int `json:"window_size"`
	// Presets are the names for Settings.Preset. With settings.Auto, PresetInForce is the one that it has chosen, and PresetReason why.
	Presets       []string `json:"presets,omitempty"`
	PresetInForce string   `json:"preset_in_force,omitempty"`
	PresetReason  string   `json:"preset_reason,omitempty"`
	// Source describes the watched track; its width is 0 while there is none.
	Source SourceInfo `json:"source"`
	// Sources are the sources that this program publishes in the room.
	Sources []source.Info `json:"sources,omitempty"`
	// Scene reports whether there is a built-in camera.
	Scene bool `json:"scene"`
	// Worlds are the generated worlds that the built-in camera can show.
	Worlds []string `json:"worlds,omitempty"`
	// World is the one that is watched; nil for another source.
	World *World `json:"world,omitempty"`
	// Kept reports that changes of the room last across restarts.
	Kept bool `json:"kept"`
	// StateProblem is why changes are not kept at present; "" when they are.
	StateProblem string `json:"state_problem,omitempty"`
	// AlertQueue describes the alerts that wait for webhooks and MQTT; nil without such a target.
	AlertQueue *AlertQueue `json:"alert_queue,omitempty"`
}

// AlertQueue describes the alerts that wait for webhooks and MQTT, of all rooms of the process.
type AlertQueue struct {
	Waiting int `json:"waiting"` // one for each target and phase
	// Kept reports that they last across restarts.
	Kept bool `json:"kept"`
	// Problem is why they are not kept, or why the MQTT broker is not connected; "" for none.
	Problem string `json:"problem,omitempty"`
}

// Capabilities are what the engine can do, as in inference.Capabilities.
type Capabilities struct {
	Instructions bool     `json:"instructions"`
	Languages    []string `json:"languages,omitempty"` // none: any
	Structured   bool     `json:"structured"`
	Speech       bool     `json:"speech"`
}

// World describes a generated world.
type World struct {
	Name string `json:"name"`
	// Teams of the match are called by the colours of their shirts.
	Teams []string `json:"teams,omitempty"`
	// Grade judges the comments of the last minute by the world's truth; nil before the first.
	Grade *Grade `json:"grade,omitempty"`
}

// Grade counts comments by a world's truth.
type Grade struct {
	Right int `json:"right"`
	// Wrong comments have anything wrong in them.
	Wrong int `json:"wrong"`
	// Unjudged comments say nothing that can be judged.
	Unjudged int `json:"unjudged"`
	// Missed are goals of the match, or comings and goings in the yard, that no comment mentioned; nil while an instruction may
	// leave them out.
	Missed *int `json:"missed,omitempty"`
}

// SourceInfo describes the watched track.
type SourceInfo struct {
	Identity string  `json:"identity,omitempty"`
	Track    string  `json:"track,omitempty"` // track SID
	Codec    string  `json:"codec,omitempty"`
	Width    int     `json:"width"`
	Height   int     `json:"height"`
	FPS      float64 `json:"fps"` // measured
	Muted    bool    `json:"muted,omitempty"`
	// Epoch of the described pictures; for a selected track, the first that its pictures can have.
	Epoch uint32 `json:"-"`
}

// FrameOutput is an optional interface of a TextOutput: it receives the pictures
// of each cycle that led to a comment. It must not block.
type FrameOutput interface {
	Frames(cycle uint64, frames []window.Frame)
}

// Event is one item of a session's log: exactly one field is set.
type Event struct {
	At      time.Time    `json:"at"`
	Caption *Caption     `json:"caption,omitempty"`
	Record  *look.Record `json:"record,omitempty"`
	Status  *Status      `json:"status,omitempty"`
}
