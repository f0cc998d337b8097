package agent

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"

	"touchline/agent/prompt"
	"touchline/inference"
	"touchline/internal/wake"
	"touchline/media"
	"touchline/media/window"
	"touchline/pacing"
)

// utterance is one comment from its cycle to its last word. Session.mu guards
// all of it.
type utterance struct {
	rec    Record
	frames []window.Frame
	looked []window.Frame // frames, for the look with alert rules that follows the cycle
	anchor media.VideoFrame
	spoken bool // its words follow the voice

	language string // BCP 47
	text     string
	held     []inference.Chunk // audio that waits until the text has words
	words    []timedWord
	// placed is how many bytes of text are in words; written the audio given
	// to the voice so far, silence included.
	placed  int
	written time.Duration

	speech    SpokenUtterance
	audible   time.Duration
	announced bool // in the queue, or has left it
	ready     bool // it has what it starts with: its first sound, or text
	released  bool // left the queue
	complete  bool // its text has ended
	generated bool // its generation has ended, with all of its sound
	startAt   time.Time
	onset     time.Time
	endAt     time.Time
	wasCut    bool
	cutCause  error
	silenced  bool                    // the voice has cut it
	pausedAt  time.Time               // when the pause under way began; zero without
	paused    time.Duration           // of its words so far, by pauses
	lost      time.Duration           // of its words so far, as the voice slipped
	cancel    context.CancelCauseFunc // ends its generation
	repeated  bool                    // it repeats a comment, and was withdrawn
	replaced  error                   // a new instruction came during its generation
	// superseded: a new instruction came, but the comment continues to its end.
	superseded bool
	emitted    int // bytes of text shown

	changed wake.Signal // wakes its performer
}

// timedWord is a piece of the text and its time from the first audible sample.
type timedWord struct {
	text string
	at   time.Duration
}

func (u *utterance) describeFrames() {
	r := &u.rec
	first, last := u.frames[0], u.frames[len(u.frames)-1]
	for _, f := range u.frames {
		r.FrameIDs = append(r.FrameIDs, f.ID)
		r.FrameAt = append(r.FrameAt, f.Arrival)
	}
	r.OldestFrameAt, r.NewestFrameAt = first.Arrival, last.Arrival
	r.PTSFrom, r.PTSTo = first.PTS.Seconds(), last.PTS.Seconds()
	r.AnchorPTS = last.PTS.Seconds()
}

// written is one chunk of audio that the voice took.
type written struct {
	audible time.Duration // of the utterance so far
	lead    time.Duration // trimmed from its front so far
	length  time.Duration
	words   []inference.WordTime
}

// expected returns the length of its speech when all of its text is said, with the rest at a rate.
func (u *utterance) expected(r speechRate) time.Duration {
	if u.generated {
		return u.audible
	}
	return u.audible + r.time(len(u.text)-u.placed)
}

// speechRate is how fast a room's voice speaks: the last comments, later ones more, count before a usual rate. It bounds nothing: it
// places the next look until the sound is there.
type speechRate struct {
	letters int
	sound   time.Duration
}

// learn adds what was said.
func (r *speechRate) learn(letters int, sound time.Duration) {
	usual := speechTime(letters)
	r.letters = r.letters*3/4 + letters
	r.sound = r.sound*3/4 + min(max(sound, usual/4), 4*usual)
}

// time returns how long it takes to say a number of letters.
func (r speechRate) time(letters int) time.Duration {
	if r.letters == 0 {
		return speechTime(letters)
	}
	return time.Duration(int64(r.sound) * int64(letters) / int64(r.letters))
}

// wrote places the words of a chunk.
func (u *utterance) wrote(w written) {
	u.audible = w.audible
	base := u.written - w.lead
	u.written += w.length
	if w.words != nil {
		u.place(base, w.words)
	} else {
		u.spread(base, w.length)
	}
}

// nextToken returns the next word of the text not yet placed, with the space
// before it.
func (u *utterance) nextToken() (string, bool) {
	rest := u.text[u.placed:]
	start := strings.IndexFunc(rest, func(r rune) bool { return !unicode.IsSpace(r) })
	if start < 0 {
		return "", false
	}
	end := strings.IndexFunc(rest[start:], unicode.IsSpace)
	if end < 0 {
		return rest, true
	}
	return rest[:start+end], true
}

// lookAhead bounds the words of the text without sound (a dash, an emoji) between
// two that have one.
const lookAhead = 4

// place gives the words of the text the times of the spoken words. Those are a
// cleaned form of the text, so they are matched by their letters.
func (u *utterance) place(base time.Duration, heard []inference.WordTime) {
	for _, h := range heard {
		from := u.placed
		matched := false
		var pieces []string
		for range lookAhead {
			token, ok := u.nextToken()
			if !ok {
				break
			}
			pieces = append(pieces, token)
			u.placed += len(token)
			if letters(token) == letters(h.Text) {
				matched = true
				break
			}
		}
		if !matched && len(pieces) > 1 {
			u.placed = from + len(pieces[0]) // no match: place one word
			pieces = pieces[:1]
		}
		for _, p := range pieces {
			u.words = append(u.words, timedWord{p, max(base+h.Start, 0)})
		}
	}
}

// lettersPerSecond is the usual rate of speech.
const lettersPerSecond = 14

// SpeechTime estimates how long it takes to say a text.
func SpeechTime(text string) time.Duration { return speechTime(len(text)) }

func speechTime(letters int) time.Duration {
	return media.TicksToDuration(int64(letters), lettersPerSecond)
}

// spread places words over audio without word times: by their length, and only
// as many as fit.
func (u *utterance) spread(base, length time.Duration) {
	total := len(u.text) - u.placed
	if total == 0 {
		return
	}
	whole := max(length, speechTime(total))
	from := u.placed
	for {
		token, ok := u.nextToken()
		at := time.Duration(int64(whole) * int64(u.placed-from) / int64(total))
		if !ok || at >= length {
			return
		}
		u.words = append(u.words, timedWord{token, max(base+at, 0)})
		u.placed += len(token)
	}
}

func letters(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, s)
}

// hush ends the rest of its sound, for a cause that may be nil; a text that goes on goes on.
func (u *utterance) hush(cause error) {
	u.silenced = true
	if u.complete && u.cancel != nil {
		u.cancel(cause)
	}
}

// drop marks a comment as dropped.
func (u *utterance) drop(cause error) {
	u.cutCause = cause
	u.hush(cause)
	if u.speech != nil {
		u.speech.Cut()
	}
}

// speechLead is how early speech is passed to the voice, so that the first sample
// is on time; a comment later than maxLateness is dropped.
const (
	speechLead  = 100 * time.Millisecond
	maxLateness = 10 * time.Second
)

// startOfLocked returns the start of a queued comment, given the end of the voice
// before it.
func (s *Session) startOfLocked(u *utterance, now, voiceEnd time.Time) time.Time {
	if !u.spoken {
		voiceEnd = time.Time{}
	}
	return pacing.Release(now, s.dueLocked(u, now), voiceEnd, s.paceLocked().PauseAfter)
}

// dueLocked returns when the delayed picture shows the comment's anchor; zero without a delayed picture.
func (s *Session) dueLocked(u *utterance, now time.Time) time.Time {
	if !s.relays() {
		return time.Time{}
	}
	due, ok := s.line.Due(u.anchor.Epoch, u.anchor.PTS, now)
	if !ok {
		return time.Time{}
	}
	return due
}

// deliverLoop starts queued comments, each with its frame, until ctx ends.
func (s *Session) deliverLoop(ctx context.Context) error {
	for {
		wait := s.startNext(ctx, time.Now())
		if wait <= 0 {
			s.wake.Set()
			s.publishStatus()
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.deliver:
		case <-time.After(min(wait, recheck)):
		}
	}
}

// startNext starts the first queued comment if it is due. It returns the time
// until then; 0 when it started.
func (s *Session) startNext(ctx context.Context, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return recheck
	}
	u := s.queue[0]
	at := s.startOfLocked(u, now, s.clock.End())
	lead := time.Duration(0)
	if u.spoken {
		lead = speechLead
	}
	wait := at.Sub(now) - lead
	if u.spoken && !u.ready {
		return recheck // its first sound wakes the loop
	}
	if wait <= 0 && u.spoken && (s.holding || s.keepsQuietLocked(now) || s.voiceLagsLocked(now)) {
		return recheck // its end wakes the loop
	}
	if wait <= 0 && s.mayRepeatLocked(u, now) {
		return recheck // its next words wake the loop
	}
	if wait <= 0 {
		s.startLocked(ctx, u, at, now)
	}
	return max(wait, 0)
}

// voiceLagsLocked reports whether the voice has not ended the last comment. On an overloaded machine it falls behind, and
// the time of the next comment is known when that one has ended.
func (s *Session) voiceLagsLocked(now time.Time) bool {
	u := s.speaking
	return u != nil && (!u.generated || now.Before(u.endsLocked().Add(2*maxLateness)))
}

// endsLocked returns the end of the speech that the voice has.
func (u *utterance) endsLocked() time.Time { return u.startAt.Add(u.audible + u.lost) }

// startLocked removes the first comment from the queue and performs it.
func (s *Session) startLocked(ctx context.Context, u *utterance, at, now time.Time) {
	s.queue = slices.Delete(s.queue, 0, 1)
	s.releaseLocked(u)
	u.rec.Delay, u.rec.TargetDelay = s.line.Delay().Seconds(), s.line.Target().Seconds()
	if due := s.dueLocked(u, now); !due.IsZero() && at.Sub(due) > maxLateness {
		u.drop(errTooLate)
		s.said = slices.DeleteFunc(slices.Clone(s.said), func(c prompt.PastComment) bool { return c.Text == strings.TrimSpace(u.text) })
		s.counters.dropped++
		u.rec.Outcome, u.rec.Reason, u.rec.Text = OutcomeDropped, errTooLate.Error(), strings.TrimSpace(u.text)
		rec := u.rec
		s.work.Go(func() error { s.publishRecord(rec); return nil })
		return
	}
	u.startAt, s.latest = at, u
	if u.spoken {
		s.clock.Start(at, u.audible)
		s.speaking = u
		u.speech.Start(at)
	} else {
		u.onset = now
	}
	s.work.Go(func() error { s.perform(ctx, u); return nil })
}

func (s *Session) releaseLocked(u *utterance) {
	u.released = true
	if err := s.gate.Release(); err != nil {
		s.log.Error().Err(err).Uint64("cycle", u.rec.Cycle).Msg("comment released out of turn")
	}
}

// speechEvents returns the callbacks for the voice's goroutine.
func (s *Session) speechEvents(u *utterance) SpeechEvents {
	return SpeechEvents{
		Started: func(onset time.Time) {
			s.mu.Lock()
			u.onset, u.startAt = onset, onset
			s.followVoiceLocked(u)
			s.mu.Unlock()
			u.changed.Set()
		},
		Slipped: func(lost time.Duration) {
			s.mu.Lock()
			u.lost = lost
			s.followVoiceLocked(u)
			if u == s.speaking {
				s.clock.Slip(time.Since(u.onset)-u.paused-lost, lost)
			}
			s.mu.Unlock()
			u.changed.Set()
			s.wake.Set()
		},
		Ended: func(end time.Time, cut bool) {
			s.mu.Lock()
			u.endAt, u.wasCut = end, cut
			if s.speaking == u {
				s.speaking = nil
				s.clock.Finish(end)
				if !cut {
					s.clock.Slip(u.audible, u.lost)
				}
				s.unspoken.Set()
			}
			s.mu.Unlock()
			u.changed.Set()
			s.wake.Set()
			s.deliver.Set()
		},
	}
}

// followVoiceLocked sets the end of speech by what was really sent.
func (s *Session) followVoiceLocked(u *utterance) {
	if u == s.speaking && !u.silenced {
		s.clock.Finish(u.endsLocked())
	}
}

// wordLead is how long before its sound a word is shown, about the time of its
// delivery.
const wordLead = 20 * time.Millisecond

// perform publishes a comment's words as they are spoken (text alone at once),
// then its record.
func (s *Session) perform(ctx context.Context, u *utterance) {
	for {
		c, wait := s.step(u, time.Now())
		if c.Delta != "" || c.Final {
			for _, t := range s.opts.Texts {
				t.Caption(c)
			}
		}
		if c.Final {
			if s.awaitGenerated(ctx, u) {
				s.publishRecord(s.measure(u))
				s.publishStatus()
			}
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-u.changed:
		case <-time.After(wait):
		}
		if c.Delta != "" {
			s.publishStatus()
		}
	}
}

// step returns the next part of a comment's caption and the time until the next step.
func (s *Session) step(u *utterance, now time.Time) (Caption, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delta, final, wait := u.stepLocked(now)
	u.emitted += len(delta)
	return Caption{
		Segment: s.segmentID(u.rec.Cycle), Cycle: u.rec.Cycle, Delta: delta, Text: u.text[:u.emitted],
		Final: final, Spoken: u.spoken, Language: u.language,
	}, wait
}

// awaitGenerated waits for the end of a cut comment's generation, so that its
// record is complete; false when ctx ended.
func (s *Session) awaitGenerated(ctx context.Context, u *utterance) bool {
	for {
		s.mu.Lock()
		done := u.generated
		s.mu.Unlock()
		if done {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-u.changed:
		case <-time.After(recheck):
		}
	}
}

// stepLocked returns the text to show now, whether it is the last, and the time
// until the next step.
func (u *utterance) stepLocked(now time.Time) (delta string, final bool, wait time.Duration) {
	rest := u.text[u.emitted:]
	switch {
	case !u.spoken:
		return rest, u.generated, recheck
	case u.onset.IsZero() && u.endAt.IsZero():
		return "", false, recheck // the voice has not begun
	case !u.endAt.IsZero() && !now.Before(u.endAt):
		if u.wasCut && u.cutCause != nil {
			rest, _ = u.dueWords(now) // only the words heard
			return rest, true, 0
		}
		// Speech was turned off: the rest follows as text.
		return rest, u.generated, recheck
	}
	delta, wait = u.dueWords(now)
	if !u.endAt.IsZero() {
		wait = min(wait, u.endAt.Sub(now))
	}
	return delta, false, max(wait, time.Millisecond)
}

// dueWords returns the words that are due and not shown, and the time until the
// next one.
func (u *utterance) dueWords(now time.Time) (string, time.Duration) {
	if u.onset.IsZero() {
		return "", recheck
	}
	if !u.pausedAt.IsZero() {
		now = u.pausedAt
	}
	var b strings.Builder
	seen := 0
	for _, w := range u.words {
		if seen += len(w.text); seen <= u.emitted {
			continue
		}
		if left := u.onset.Add(u.paused + u.lost + w.at - wordLead).Sub(now); left > 0 {
			return b.String(), min(left, recheck)
		}
		b.WriteString(w.text)
	}
	return b.String(), recheck
}

// pauseVoiceLocked pauses what the voice says.
func (s *Session) pauseVoiceLocked(now time.Time) {
	if u := s.speaking; u != nil && u.pausedAt.IsZero() {
		u.pausedAt = now
		u.speech.Pause()
		u.changed.Set()
	}
}

// resumeVoiceLocked goes on with what was paused.
func (s *Session) resumeVoiceLocked(now time.Time) {
	u := s.speaking
	if u == nil || u.pausedAt.IsZero() || u.silenced {
		return
	}
	pause := now.Sub(u.pausedAt)
	u.pausedAt, u.startAt = time.Time{}, u.startAt.Add(pause)
	if !u.onset.IsZero() { // else it begins now
		u.paused += pause
	}
	s.clock.Finish(s.clock.End().Add(pause))
	u.speech.Resume()
	u.changed.Set()
}

// cutLocked silences a comment that the voice has. With a nil cause, its text is
// still shown in full.
func (s *Session) cutLocked(u *utterance, cause error, now time.Time) {
	if u.speech == nil {
		return
	}
	u.cutCause = cause
	u.hush(cause)
	u.speech.Cut()
	s.clock.Cut(now)
	if u.onset.IsZero() { // it never started, so Ended will not follow
		u.endAt, u.wasCut = now, true
		if s.speaking == u {
			s.speaking = nil
			s.unspoken.Set()
		}
		u.changed.Set()
	}
}

// alignedMemory is the number of alignment errors kept for the p95.
const alignedMemory = 100

// lateBy is the alignment error above which a comment counts as late.
const lateBy = 100 * time.Millisecond

// measure completes the record of a comment that has ended.
func (s *Session) measure(u *utterance) Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &u.rec
	r.Spoken = u.spoken
	r.Text = strings.TrimSpace(u.text[:u.emitted])
	r.Outcome = OutcomeShown
	r.StartedAt, r.EndedAt = u.onset, u.endAt
	if u.spoken {
		r.Outcome = OutcomeSpoken
		r.AudioSec = u.audible.Seconds()
	} else {
		r.EndedAt = time.Now()
	}
	switch {
	case u.wasCut && u.cutCause != nil:
		r.Outcome, r.Reason = OutcomeCut, u.cutCause.Error()
	case s.room != "":
		// A room that returns before the end gets the words from the beginning.
		r.Outcome, r.Reason = OutcomeCut, s.room
	}
	shown, ok := s.line.Shown(u.anchor.Epoch, u.anchor.PTS)
	if r.Announced == "" && ok && !shown.IsZero() && s.relays() && !u.onset.IsZero() { // zero: nothing was published yet
		off := u.onset.Sub(shown)
		r.ShownAt, r.AlignmentError, r.Aligned = shown, off.Seconds(), true
		if r.Late = off.Abs() > lateBy; r.Late {
			s.counters.late++
		}
		if len(s.aligned) == alignedMemory {
			s.aligned = slices.Delete(s.aligned, 0, 1)
		}
		s.aligned = append(s.aligned, off.Abs())
	}
	s.counters.comments++
	return *r
}
