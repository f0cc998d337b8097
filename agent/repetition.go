package agent

import (
	"slices"
	"time"

	"touchline/agent/prompt"
	"touchline/agent/repeat"
	"touchline/agent/settings"
)

// Values of Config.Repeats.
const (
	RepeatsSilence = settings.RepeatsSilence // a comment that repeats one of the last is not published
	RepeatsRetry   = settings.RepeatsRetry   // the engine is asked once more; silence if that answer repeats one as well
	RepeatsAllow   = settings.RepeatsAllow   // comments are not compared
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

// mayRepeat reports whether a comment that is still generated must wait, because its words so far repeat.
func mayRepeat(l *repeat.Lexicon, said []prompt.PastComment, text string) bool {
	if len(said) == 0 {
		return false
	}
	words := repeat.WholeWords(text)
	return !l.HasNews(words) || repeated(l, said, words) != ""
}

// comparedLocked returns the comments that the next one must not repeat, oldest first.
func (s *Session) comparedLocked(now time.Time) []prompt.PastComment {
	if s.live.Agent.Repeats == RepeatsAllow {
		return nil
	}
	return fresh(s.said, now)
}

// fresh returns the comments that are not too old to be repeated.
func fresh(said []prompt.PastComment, now time.Time) []prompt.PastComment {
	from := slices.IndexFunc(said, func(c prompt.PastComment) bool { return now.Sub(c.At) <= repeatsWithin })
	if from < 0 {
		return nil
	}
	return said[from:]
}

// repeated returns the newest comment that a text repeats; "" for none.
func repeated(l *repeat.Lexicon, said []prompt.PastComment, text string) string {
	for _, c := range slices.Backward(said) {
		if l.Repeats(c.Text, text) {
			return c.Text
		}
	}
	return ""
}

// endsInRepeatLocked compares a complete answer, and withdraws one that repeats a comment and has not started, perhaps to be
// asked for again.
func (s *Session) endsInRepeatLocked(c *cycle, again bool, now time.Time) bool {
	if c.complete || c.said == nil || c.replaced != nil {
		return false
	}
	said := repeated(s.lexicon, s.comparedLocked(now), c.text)
	if said == "" || !s.speech.Withdraw(c.said, again) {
		return false
	}
	c.rec.Repeats, c.held, c.ready = said, nil, false
	return true
}

// retries reports whether the engine is asked once more, and prepares the utterance for that answer.
func (s *Session) retries(c *cycle) bool {
	if !c.retries || c.complete {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.endsInRepeatLocked(c, true, time.Now()) {
		return false
	}
	s.log.Debug().Uint64("cycle", c.rec.Cycle).Str("text", c.text).Msg("repeated comment withdrawn")
	c.text, c.passed = "", 0
	return true
}
