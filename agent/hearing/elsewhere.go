package hearing

import (
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"touchline/agent/command"
	"touchline/agent/settings"
	"touchline/inference"
)

// A loudspeaker beside an open microphone plays the words of other participants and of the camera. They must not act with the right of
// the microphone's owner. The room knows them already from the microphone of their speaker, earlier by the way through the loudspeaker.
// People in one place are different: all of their microphones hear an order at the same time.
const (
	// together is how much earlier another microphone may have an order that it hears directly, because networks differ.
	together = 150 * time.Millisecond
	// replayed is the longest way through a loudspeaker. The camera's sound may take longer by the delay of the picture.
	replayed = 2500 * time.Millisecond
	// wakeLength is the number of words before an order that are compared too.
	wakeLength = 2
	// othersWait bounds the wait for the texts of other microphones, longest is their length, and remembered bounds their age.
	othersWait = 3 * time.Second
	longest    = 30 * time.Second
	remembered = 2 * time.Minute
)

var (
	errElsewhere = errors.New("another microphone or the camera had these words before; with a loudspeaker, use a headset")
	errUnknown   = errors.New("the words of another microphone are not known yet; repeat the order")
)

// outside is speech in a microphone whose owner may not instruct.
type outside struct {
	mic      *microphone
	watched  bool
	number   int // of the utterance
	from, to time.Time
	text     string
	deleted  bool          // while it was said: it gets no text
	spans    []span        // of the text's words; nil if they are not known
	known    chan struct{} // closed once to, text and spans are set
}

// span is when a word was spoken.
type span struct{ from, to time.Time }

// spans returns when the words of a text were spoken, each word as command.Repetitions counts them; nil if that is not known of all.
func spans(text string, words []inference.Word, zero time.Time) (out []span) {
	for _, w := range words {
		for range strings.Fields(settings.Fold(w.Text)) {
			out = append(out, span{zero.Add(w.Start), zero.Add(w.End)})
		}
	}
	if len(out) != len(strings.Fields(settings.Fold(text))) {
		return nil
	}
	return out
}

// outsiders are the speech of people that may not instruct, oldest first.
type outsiders struct {
	mu   sync.Mutex
	list []*outside
}

func (s *outsiders) begin(o outside) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.known = make(chan struct{})
	s.list = append(s.list, &o)
}

// forget deletes old speech.
func (s *outsiders) forget(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = slices.DeleteFunc(s.list, func(o *outside) bool { return now.Sub(o.from) > remembered })
}

// end sets the text of a microphone's utterance; of all that have none if the number is 0.
func (s *outsiders) end(m *microphone, number int, text string, spans []span, to time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.list {
		if o.mic != m || number != 0 && o.number != number {
			continue
		}
		select {
		case <-o.known:
		default:
			if o.to = to; !o.deleted {
				o.text, o.spans = text, spans
			}
			close(o.known)
		}
	}
}

// ForgetHeard implements agent.HeardForgetter: texts of an identity, or all if it is "", are no longer compared with orders. What is being
// said gets no text.
func (e *Ears) ForgetHeard(by string) {
	e.outsiders.mu.Lock()
	defer e.outsiders.mu.Unlock()
	e.outsiders.list = slices.DeleteFunc(e.outsiders.list, func(o *outside) bool {
		if by != "" && o.mic.identity != by {
			return false
		}
		o.deleted = true
		return o.text != ""
	})
}

// cut ends an utterance, so that its text is known soon.
func (m *microphone) cut(number int, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inside && m.utterance == number {
		m.ends = now
		m.wake.Set()
	}
}

// elsewhere returns an error if the words of an order came from another microphone or the camera: they had them earlier, and their
// owners may not instruct. text ends with the order; it was spoken from one time to another, its words as in own if that is known.
func (e *Ears) elsewhere(text, order string, own []span, from, to time.Time) error {
	e.outsiders.mu.Lock()
	others := slices.Clone(e.outsiders.list)
	e.outsiders.mu.Unlock()
	words := strings.Fields(settings.Fold(text))
	before := max(0, len(words)-len(strings.Fields(settings.Fold(order)))-wakeLength)
	said := strings.Join(words[before:], " ")
	delay := time.Duration(e.bot.Snapshot().Delay * float64(time.Second))
	reach := func(o *outside) time.Duration {
		if o.watched {
			return replayed + delay
		}
		return replayed
	}
	others = slices.DeleteFunc(others, func(o *outside) bool {
		return !o.from.Before(to) || before == 0 && from.Sub(o.from) <= together || to.Sub(o.from) > longest+reach(o)
	})
	for _, o := range others {
		o.mic.cut(o.number, time.Now())
	}
	wait := time.NewTimer(othersWait)
	defer wait.Stop()
	unlike := map[*microphone]*outside{} // the last speech of each microphone, if it has not the words
	for _, o := range others {
		select {
		case <-o.known:
		case <-wait.C:
			return errUnknown
		case <-e.ctx.Done():
			return errUnknown
		}
		found := command.Repetitions(said, o.text)
		starts, theirs := o.from, o.spans
		if last := unlike[o.mic]; len(found) == 0 && last != nil { // the words may be cut in two
			found, starts, theirs = command.Repetitions(said, last.text+" "+o.text), last.from, nil
			if last.spans != nil && o.spans != nil {
				theirs = slices.Concat(last.spans, o.spans)
			}
		}
		delete(unlike, o.mic)
		if len(found) == 0 {
			unlike[o.mic] = o
		}
		for _, r := range found {
			exact := time.Duration(math.MaxInt64)
			if own != nil && theirs != nil {
				first := own[before].from.Sub(theirs[r.Before].from)
				last := own[len(own)-1].to.Sub(theirs[len(theirs)-1-r.After].to)
				exact = max(first, last) // a recognizer may take one of the words for another
			}
			if least, most := lead(r, before, from.Sub(starts), to.Sub(o.to), exact); most > together && least <= reach(o) {
				return errElsewhere
			}
		}
	}
	return nil
}

// lead bounds how much earlier another microphone had the words of an order. before are the words before the order in its own text, and
// starts and ends how much earlier the other text starts and ends. Sound without words makes starts greater and ends less. exact is by the
// times of the words, if these are known: it counts where the bounds are not enough.
func lead(r command.Repetition, before int, starts, ends, exact time.Duration) (least, most time.Duration) {
	most = exact
	switch {
	case r.Before == before:
		most = starts
	case r.After == 0:
		most = ends
	}
	if before == 0 {
		most = min(most, starts)
	}
	return ends, most
}
