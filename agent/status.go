package agent

import (
	"context"
	"slices"
	"strconv"
	"time"

	"touchline/inference"
)

// initializingFor bounds the state "initializing": front ends give up on an
// agent that stays in it for 20 s.
const initializingFor = 10 * time.Second

// Chips are the states that the page shows, in one word.
const (
	ChipWaiting      = "waiting"
	ChipLoading      = "loading"
	ChipWatching     = "watching"
	ChipThinking     = "thinking"
	ChipSpeaking     = "speaking"
	ChipSilent       = "silent"
	ChipIdle         = "idle"
	ChipReconnecting = "reconnecting"
	ChipFailed       = "failed" // of the engine; the detail has the reason and the remedy
)

// statusEvery is how often Session looks for changes that raise no event.
const statusEvery = 250 * time.Millisecond

// watchStatus looks for changes that raise no event, and wakes the loop of looks: a camera stops, a model loads, people change
// the alert rules.
func (s *Session) watchStatus(ctx context.Context) error {
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	var seen watched
	for {
		if now := s.watched(); now != seen {
			if now.phase == inference.PhaseReady && now.phase != seen.phase {
				s.locked(func() { s.readyAt = time.Now() })
			}
			seen = now
			s.wake.Set()
		}
		s.publishStatus()
		s.expireAlerts(ctx, time.Now())
		s.takeOrders(time.Now())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// watched is what raises no event when it changes.
type watched struct {
	phase inference.Phase
	reads bool      // the engine reads alert rules
	look  time.Time // with alert rules; zero without any
}

func (s *Session) watched() (w watched) {
	w.phase, w.reads = s.engine.Status().Phase, s.readsRules()
	if w.reads {
		if at, ok := s.opts.Alerts.Next(time.Now()); ok {
			w.look = at
		}
	}
	return w
}

// publishStatus publishes the status if it has changed.
func (s *Session) publishStatus() {
	s.statusMu.Lock()
	defer s.statusMu.Unlock()
	st, changed := s.newStatus(time.Now())
	if !changed {
		return
	}
	for _, t := range s.opts.Texts {
		t.State(st)
	}
}

func (s *Session) newStatus(now time.Time) (st Status, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st = s.statusLocked(now)
	changed = st != s.last
	s.last = st
	return st, changed
}

func (s *Session) statusLocked(now time.Time) Status {
	model, source := s.engine.Status(), s.picture.source()
	st := Status{State: StateIdle, Percent: model.Percent}
	if mode := s.live.Agent.Hearing.Mode; mode != HearingOff && s.opts.Ears != nil {
		st.Hearing = mode
	}
	switch {
	case s.room != "":
		st.Chip, st.Detail = ChipReconnecting, s.room
	case s.speech.Speaking():
		st.State, st.Chip = StateSpeaking, ChipSpeaking
	case model.Phase == inference.PhaseLoading || model.Phase == inference.PhaseWarming:
		st.Chip, st.Detail = ChipLoading, model.Detail
		if !s.started.IsZero() && now.Sub(s.started) < initializingFor {
			st.State = StateInitializing
		}
	case model.Phase == inference.PhaseFailed:
		st.Chip, st.Detail = ChipFailed, model.Detail
	case !source.any:
		st.Chip, st.Detail = ChipWaiting, s.awayOr("waiting for a camera")
	case !source.fresh(now):
		st.Chip, st.Detail = ChipWaiting, s.awayOr("the camera sends no picture")
	case !s.active:
		st.Chip, st.Detail = ChipIdle, "no instruction: say what to watch for"
	case s.inFlight != nil:
		st.State, st.Chip = StateThinking, ChipThinking
	case s.failures > 0:
		st.State, st.Chip, st.Detail = StateListening, ChipFailed, s.quiet
	case s.quiet != "":
		st.State, st.Chip, st.Detail = StateListening, ChipSilent, s.quiet
	default:
		st.State, st.Chip = StateListening, ChipWatching
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

// Status returns the current activity.
func (s *Session) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.statusLocked(time.Now())
}

func (s *Session) publishRecord(r Record) {
	ev := s.log.Info()
	switch r.Outcome {
	case OutcomeSkipped, OutcomeSilent, OutcomeRepeated:
		ev = s.log.Debug()
	}
	ev.Uint64("cycle", r.Cycle).Str("outcome", r.Outcome).Str("reason", r.Reason).
		Float64("ready_s", r.ReadySec).Float64("delay_s", r.Delay).
		Float64("alignment_error_s", r.AlignmentError).Float64("audio_s", r.AudioSec).Msg("cycle")
	if r.Text != "" {
		s.log.Debug().Uint64("cycle", r.Cycle).Str("text", r.Text).Msg("comment")
	}
	s.raw.end(r)
	for _, t := range s.opts.Texts {
		t.Record(r)
	}
}

// Snapshot returns the full state.
func (s *Session) Snapshot() Snapshot {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	phase, can, source := s.engine.Status().Phase, s.engine.Capabilities(), s.picture.source()
	out := Snapshot{
		Status:       s.statusLocked(now),
		Engine:       s.engine.Name(),
		EngineNote:   s.engine.current().note,
		Capabilities: Capabilities{can.Instructions, can.Languages, can.Structured, can.Speech},
		RuleNames:    can.RuleNames,
		AlertNote:    s.alertNoteLocked(now),

		ModelLoaded:    phase == inference.PhaseReady,
		CaptureRunning: source.fresh(now),
		MonitorMode:    "IDLE",
		Instruction:    s.instruction,
		InstructionBy:  s.instructionBy,
		Waiting:        slices.Clone(s.waiting),
		Command:        s.done,
		Profile:        s.profile.Name,
		Profiles:       s.suggestedLocked(),
		CycleCount:     s.cycle,
		FramesBuffered: s.picture.buffered(),
		VoiceProblem:   s.engine.Status().VoiceProblem,
		LongSide:       s.live.Media.LongSide,
		MaxSlices:      s.live.Inference.MaxSlices,
		WindowSize:     s.live.Media.WindowSize,
		PresetReason:   s.presetReason,
		TTSEnabled:     s.live.Inference.Voice.Enabled && s.opts.Audio != nil,
		Settings:       s.settingsLocked(),
		Delay:          s.line.Delay().Seconds(),
		TargetDelay:    s.line.Target().Seconds(),
		Comments:       s.counters.comments,
		Silent:         s.counters.silent,
		Skipped:        s.counters.skipped,
		Repeated:       s.counters.repeated,
		Late:           s.counters.late,
		Dropped:        s.counters.dropped,
		Failed:         s.counters.failed,
		Source: SourceInfo{
			Width: source.width, Height: source.height, FPS: source.fps, Epoch: source.epoch,
		},
	}
	for _, p := range s.opts.Presets {
		out.Presets = append(out.Presets, p.Name)
	}
	if s.ladder != nil {
		out.PresetInForce = s.ladder.Rung().Name
	}
	if s.active {
		out.MonitorMode = "ACTIVE"
	}
	if source.any {
		out.Source.Codec = source.codec.String()
	}
	out.AlignmentLast, out.AlignmentP95 = s.alignmentLocked()
	return out
}

// alignmentLocked returns the last alignment error and the p95 in seconds, -1 before the first.
func (s *Session) alignmentLocked() (last, p95 float64) {
	n := len(s.aligned)
	if n == 0 {
		return -1, -1
	}
	sorted := slices.Sorted(slices.Values(s.aligned))
	return s.aligned[n-1].Seconds(), sorted[min(n-1, (n*95+99)/100-1)].Seconds()
}

// segmentID names the captions of one utterance. It is unique across the runs of a
// bot.
func (s *Session) segmentID(cycle uint64) string {
	return strconv.FormatInt(s.started.UnixMilli(), 36) + "-" + strconv.FormatUint(cycle, 10)
}
