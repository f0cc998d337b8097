package agent

import (
	"context"
	"strconv"
	"strings"
	"time"

	"touchline/agent/command"
	"touchline/agent/look"
	"touchline/agent/settings"
	"touchline/inference"
	"touchline/internal/limit"
	"touchline/internal/redact"
)

// initializingFor bounds the state "initializing": front ends give up on an
// agent that stays in it for 20 s.
const initializingFor = 10 * time.Second

// LiveKit's agent states (attribute lk.agent.state).
const (
	StateInitializing = "initializing"
	StateIdle         = "idle"
	StateListening    = "listening"
	StateThinking     = "thinking"
	StateSpeaking     = "speaking"
)

// Status is the current activity of the bot.
type Status struct {
	// State is one of LiveKit's agent states.
	State string `json:"state"`
	// Detail is the reason for silence or waiting.
	Detail string `json:"detail,omitempty"`
	// Percent of the model that is loaded, 0 to 100.
	Percent int `json:"percent"`
	// Activity is the bot's activity in one word: waiting, loading, failed, watching, thinking, speaking, silent, idle, reconnecting.
	Activity string `json:"chip"`
	// Hearing is the mode of speech recognition in the room; "" while no microphone is recognized.
	Hearing string `json:"hearing,omitempty"`
}

// Activities are the states that the page shows, in one word.
const (
	ActivityWaiting      = "waiting"
	ActivityLoading      = "loading"
	ActivityWatching     = "watching"
	ActivityThinking     = "thinking"
	ActivitySpeaking     = "speaking"
	ActivitySilent       = "silent"
	ActivityIdle         = "idle"
	ActivityReconnecting = "reconnecting"
	ActivityFailed       = "failed" // of the engine; the detail has the reason and the remedy
)

// statusEvery is how often Session looks for changes that raise no event.
const statusEvery = 250 * time.Millisecond

// watchStatus looks for changes that raise no event: a camera stops, a model loads, people change the alert rules.
func (s *Session) watchStatus(ctx context.Context) error {
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	for last := time.Now(); ; {
		now := time.Now()
		if now.Sub(last) > limit.StoodStill {
			s.log.Warn().Float64("gap_s", now.Sub(last).Seconds()).Msg("this process stood still; comments about the time before are dropped")
			s.Looks.Woke(now)
			s.speech.Forget(false) // it took them for slow
		}
		last = now
		s.Looks.Poll(now)
		s.publishStatus()
		s.expireAlerts(ctx, time.Now())
		s.Tick(time.Now())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// publishStatus publishes the status if it has changed.
func (s *Session) publishStatus() {
	s.statusMu.Lock()
	defer s.statusMu.Unlock()
	st := s.Status()
	if st == s.last {
		return
	}
	s.last = st
	for _, t := range s.opts.Texts {
		t.State(st)
	}
}

// Status returns the current activity.
func (s *Session) Status() Status {
	now, state := time.Now(), s.State()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.statusLocked(state, now)
}

func (s *Session) statusLocked(state command.State, now time.Time) Status {
	model, source, looks := s.engine.Status(), s.picture.Source(), s.Looks.State()
	undecoded, covered := trouble(s.dec), s.cover.reason()
	st := Status{State: StateIdle, Percent: model.Percent}
	if mode := state.Agent.Hearing.Mode; mode != settings.HearingOff && s.opts.Ears != nil {
		st.Hearing = mode
	}
	switch {
	case s.room != "":
		st.Activity, st.Detail = ActivityReconnecting, s.room
	case s.speech.Speaking():
		st.State, st.Activity = StateSpeaking, ActivitySpeaking
	case model.Phase == inference.PhaseLoading || model.Phase == inference.PhaseWarming:
		st.Activity, st.Detail = ActivityLoading, redact.Addresses(model.Detail)
		if !s.started.IsZero() && now.Sub(s.started) < initializingFor {
			st.State = StateInitializing
		}
	case model.Phase == inference.PhaseFailed:
		st.Activity, st.Detail = ActivityFailed, redact.Addresses(model.Detail)
	case !source.Any:
		st.Activity, st.Detail = ActivityWaiting, s.awayOr("waiting for a camera")
	case !source.Fresh(now):
		st.Activity, st.Detail = ActivityWaiting, s.awayOr("the camera sends no picture")
	case undecoded != "":
		st.Activity, st.Detail = ActivityWaiting, "the camera's picture cannot be decoded: "+undecoded
	case covered != "":
		st.State, st.Activity, st.Detail = StateListening, ActivitySilent, covered
	case !state.Active:
		st.Activity, st.Detail = ActivityIdle, "no instruction: say what to watch for"
	case looks.Thinking:
		st.State, st.Activity = StateThinking, ActivityThinking
	case looks.Failed:
		st.State, st.Activity, st.Detail = StateListening, ActivityFailed, looks.Quiet
	case looks.Quiet != "":
		st.State, st.Activity, st.Detail = StateListening, ActivitySilent, looks.Quiet
	default:
		st.State, st.Activity = StateListening, ActivityWatching
	}
	return st
}

// awayOr returns the reason of the input why the camera is away, or else words.
func (s *Session) awayOr(words string) string {
	if in, ok := s.opts.Input.(interface{ Away() string }); ok {
		if why := in.Away(); why != "" {
			return why
		}
	}
	return words
}

// trouble returns why a decoder has no picture, "" if it has.
func trouble(d Decoder) string {
	if d, ok := d.(interface{ Trouble() string }); ok {
		return d.Trouble()
	}
	return ""
}

func (s *Session) publishRecord(r look.Record) {
	ev := s.log.Info()
	switch r.Outcome {
	case look.OutcomeSkipped, look.OutcomeSilent, look.OutcomeRepeated:
		ev = s.log.Debug()
	}
	ev.Uint64("cycle", r.Cycle).Str("outcome", r.Outcome).Str("reason", r.Reason).
		Float64("ready_s", r.ReadySec).Float64("delay_s", r.Delay).
		Float64("alignment_error_s", r.AlignmentError).Float64("audio_s", r.AudioSec).Msg("cycle")
	if r.Text != "" {
		s.log.Debug().Uint64("cycle", r.Cycle).Str("text", r.Text).Msg("comment")
	}
	s.locked(func() { s.tally.count(r) })
	s.heardMu.Lock()
	defer s.heardMu.Unlock()
	if s.forgotten.took(r) {
		r.Instruction = ""
	}
	s.Looks.Ended(r)
	for _, t := range s.opts.Texts {
		t.Record(r)
	}
}

// Snapshot returns the full state.
func (s *Session) Snapshot() Snapshot {
	now, view := time.Now(), s.View()
	s.mu.Lock()
	defer s.mu.Unlock()
	model, can, source := s.engine.Status(), s.engine.Capabilities(), s.picture.Source()
	out := Snapshot{
		Status:       s.statusLocked(view.State, now),
		Engine:       s.engine.Name(),
		EngineNote:   strings.TrimSpace(s.Looks.Note() + " " + redact.Addresses(model.Problem)),
		Capabilities: Capabilities{can.Instructions, can.Languages, can.Structured, can.Speech},
		RuleNames:    can.RuleNames,
		AlertNote:    s.alertNote(now),
		Covered:      s.cover.reason(),

		RegionsVersion: s.cover.version(),

		ModelLoaded:    model.Phase == inference.PhaseReady,
		CaptureRunning: source.Fresh(now),
		MonitorMode:    "IDLE",
		Instruction:    view.Instruction,
		InstructionBy:  view.InstructionBy,
		Waiting:        view.Waiting,
		Command:        view.Done,
		Profile:        view.Profile.Name,
		Profiles:       view.Profiles,
		CycleCount:     s.Looks.State().Cycle,
		FramesBuffered: s.picture.Len(),
		VoiceProblem:   redact.Addresses(model.VoiceProblem),
		LongSide:       view.Media.LongSide,
		MaxSlices:      view.Inference.MaxSlices,
		WindowSize:     view.Media.WindowSize,
		PresetInForce:  view.Preset,
		PresetReason:   view.PresetReason,
		TTSEnabled:     s.speaks(view.InForce),
		Settings:       view.Settings,
		Delay:          s.line.Delay().Seconds(),
		TargetDelay:    s.line.Target().Seconds(),
		Comments:       s.tally.outcomes[look.OutcomeSpoken] + s.tally.outcomes[look.OutcomeShown] + s.tally.outcomes[look.OutcomeCut],
		Silent:         s.tally.outcomes[look.OutcomeSilent],
		Skipped:        s.tally.outcomes[look.OutcomeSkipped],
		Repeated:       s.tally.outcomes[look.OutcomeRepeated],
		Late:           s.tally.late,
		Dropped:        s.tally.outcomes[look.OutcomeDropped],
		Failed:         s.tally.outcomes[look.OutcomeFailed],
		Source: SourceInfo{
			Width: source.Width, Height: source.Height, FPS: source.FPS, Epoch: source.Epoch,
		},
	}
	for _, p := range s.opts.Presets {
		out.Presets = append(out.Presets, p.Name)
	}
	if view.Active {
		out.MonitorMode = "ACTIVE"
	}
	if source.Any {
		out.Source.Codec = source.Codec.String()
	}
	out.AlignmentLast, out.AlignmentP95 = s.tally.alignment()
	return out
}

// segmentID names the captions of one utterance. It is unique across the runs of a
// bot.
func (s *Session) segmentID(cycle uint64) string {
	return strconv.FormatInt(s.started.UnixMilli(), 36) + "-" + strconv.FormatUint(cycle, 10)
}
