package look

import (
	"slices"
	"time"

	"touchline/agent/prompt"
	"touchline/agent/repeat"
)

// Spoken words cannot be taken back, and an answer streams. But a comment waits for its frame, so its text is nearly
// always complete before its first sound or caption is due. Then it is compared as a whole (endsInRepeatLocked) and leaves the queue
// unheard. A comment that is due earlier is compared by its words so far (MayBegin): while they say nothing that was not said, it
// waits for the next ones, and starts with the first piece of news. This delays only comments that begin like an earlier one, by
// the time the engine takes to get to the point; nothing new is lost. What remains is a comment that began with news and was heard
// before it went on to repeat.
//
// A complete comment that tells a new measured fact is no repeat: the next person who comes in is news in the same words.

// MayBegin reports whether the comment may begin with its words so far: they have news, and repeat no earlier comment.
func (c *Cycle) MayBegin(text string, now time.Time) bool {
	past := fresh(c.past, now)
	if len(past) == 0 {
		return true
	}
	words := repeat.WholeWords(text)
	return c.l.lexicon.HasNews(words) && c.earlier(past, words) == ""
}

// earlier returns the newest comment that a text repeats; "" for none.
func (c *Cycle) earlier(past []prompt.PastComment, text string) string {
	for _, p := range slices.Backward(past) {
		if c.l.lexicon.Repeats(p.Text, text) {
			return p.Text
		}
	}
	return ""
}

// endsInRepeatLocked compares a complete answer, and withdraws one that repeats a comment and has not started, perhaps to be
// asked for again.
func (c *Cycle) endsInRepeatLocked(again bool, now time.Time) bool {
	l := c.l
	if c.complete || c.comment == nil || c.replaced != nil || l.memory.lacks(c.rec.Facts, now) {
		return false
	}
	earlier := c.earlier(l.memory.recent(now, l.task.Agent.Repeats), c.text)
	if earlier == "" || !c.comment.Withdraw(again) {
		return false
	}
	c.rec.Repeats, c.held, c.ready = earlier, nil, false
	return true
}

// askAgain reports whether the engine is asked once more, and prepares the utterance for that answer.
func (c *Cycle) askAgain() bool {
	l := c.l
	if !c.retries || c.complete {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.endsInRepeatLocked(true, time.Now()) {
		return false
	}
	l.log.Debug().Uint64("cycle", c.Number).Str("text", c.text).Msg("repeated comment withdrawn")
	c.text, c.passed = "", 0
	return true
}
