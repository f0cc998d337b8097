package agent

import (
	"slices"
	"time"

	"touchline/agent/prompt"
	"touchline/agent/repeat"
)

// Values of Config.Repeats.
const (
	RepeatsSilence = "silence" // a comment that repeats one of the last is not published
	RepeatsRetry   = "retry"   // the engine is asked once more; silence if that answer repeats one as well
	RepeatsAllow   = "allow"   // comments are not compared
)

// A comment must not repeat one of the last keptComments within repeatsWithin: what happens again after a while is news.
const (
	keptComments  = 8
	repeatsWithin = 2 * time.Minute
)

// Words that were heard cannot be taken back, and an answer streams. But a comment waits for its frame, so its text is nearly
// always complete before its first sound or caption is due. Then it is compared as a whole (endsInRepeat) and leaves the queue
// unheard. A comment that is due earlier is compared by its words so far (mayRepeat): while they say nothing that was not said, it
// waits for the next ones, and starts with the first piece of news. This delays only comments that begin like an earlier one, by
// the time the engine takes to get to the point; nothing new is lost. What remains is a comment that began with news and was heard
// before it went on to repeat.

// mayRepeatLocked reports whether a comment that is still generated must wait, because its words so far repeat.
func (s *Session) mayRepeatLocked(u *utterance, now time.Time) bool {
	if u.complete || len(s.comparedLocked(now)) == 0 {
		return false
	}
	words := repeat.WholeWords(u.text)
	return !s.lexicon.HasNews(words) || s.repeatedLocked(words, now) != ""
}

// comparedLocked returns the comments that the next one must not repeat, oldest first.
func (s *Session) comparedLocked(now time.Time) []prompt.PastComment {
	if s.agent.Repeats == RepeatsAllow {
		return nil
	}
	from := slices.IndexFunc(s.said, func(c prompt.PastComment) bool { return now.Sub(c.At) <= repeatsWithin })
	if from < 0 {
		return nil
	}
	return s.said[from:]
}

// repeatedLocked returns the newest comment that a text repeats; "" for none.
func (s *Session) repeatedLocked(text string, now time.Time) string {
	for _, c := range slices.Backward(s.comparedLocked(now)) {
		if s.lexicon.Repeats(c.Text, text) {
			return c.Text
		}
	}
	return ""
}

// endsInRepeatLocked compares a complete answer, and withdraws one that repeats a comment and has not started.
func (s *Session) endsInRepeatLocked(u *utterance, now time.Time) bool {
	if u.complete || u.released || u.replaced != nil {
		return false
	}
	said := s.repeatedLocked(u.text, now)
	if said == "" {
		return false
	}
	u.rec.Repeats = said
	s.queue = slices.DeleteFunc(s.queue, func(q *utterance) bool { return q == u })
	u.announced, u.ready = false, false
	if u.speech != nil {
		u.speech.Cut()
		u.speech = nil
	}
	u.audible, u.held, u.words = 0, nil, nil
	return true
}

// retries reports whether the engine is asked once more, and prepares the utterance for that answer.
func (s *Session) retries(u *utterance) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.agent.Repeats != RepeatsRetry || !s.endsInRepeatLocked(u, time.Now()) {
		return false
	}
	s.log.Debug().Uint64("cycle", u.rec.Cycle).Str("text", u.text).Msg("repeated comment withdrawn")
	u.text, u.placed, u.written = "", 0, 0
	return true
}
