package hearing

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"touchline/agent"
	"touchline/agent/command"
	"touchline/agent/look"
	"touchline/agent/phrases"
	"touchline/agent/prompt"
	"touchline/agent/settings"
	"touchline/agent/speech"
	"touchline/inference"
	"touchline/inference/live"
)

// final handles the text of an utterance.
func (m *microphone) final(v live.Event) {
	m.mu.Lock()
	u := m.unfinished[v.Utterance]
	delete(m.unfinished, v.Utterance)
	h := m.heard(v, u)
	h.Final, h.Ended = true, m.zero.Add(v.End)
	addressed, instructs, shown := u.addressed, m.info.Instructs, !u.shown.IsZero()
	m.openTill = time.Time{}
	m.mu.Unlock()
	m.renew()

	text := strings.TrimSpace(v.Text)
	times := spans(text, v.Words, h.Ended.Add(-v.End))
	m.ears.outsiders.end(m, v.Utterance, text, times, h.Ended)
	c := m.ears.bot.Hearing()
	h.Caption = m.captions()
	order, woken := command.Addressed(text, c.WakeWords)
	if addressed && !woken {
		order, woken = text, true
	}
	switch {
	case v.Refused:
		m.countEcho()
	case inference.ClassifyAnswer(text, true) != inference.HasWords:
		text = "" // nothing was said
	case m.ears.still.Stale(h.Began, time.Now()):
		text = "" // it was said before the process stood still
	case !addressed && !woken && m.ears.spoken.echoes(text, h.Began, h.Ended):
		m.countEcho()
		text = ""
	}
	m.judge(text != "")
	if text == "" {
		if h.Caption && shown {
			h.Text = "" // removes the shown caption
			m.send(h)
		}
		return
	}
	m.ears.counts.utterances.Add(1)
	m.ears.lagged(time.Since(h.Ended))
	if woken && c.Orders() {
		err := errNoRight
		if instructs {
			err = m.ears.elsewhere(text, order, times, h.Began, h.Ended)
		}
		switch {
		case order == "" && err == nil:
			m.openLine(h.Ended)
		case order == "":
		case err == nil:
			h.Order = m.ears.act(order, h.Identity, c)
		default:
			m.ears.counts.refused.Add(1)
			h.Order = &agent.SpokenOrder{Text: order, Refused: err.Error()}
		}
	}
	if h.Caption || h.Order != nil && instructs { // without captions, what others say is compared with orders only
		m.send(h)
	}
}

// openLine lets an order follow a wake word without the wake word.
func (m *microphone) openLine(from time.Time) {
	m.mu.Lock()
	m.openTill = from.Add(openFor)
	m.mu.Unlock()
	m.renew()
}

var (
	errNoRight = errors.New("speaker is not allowed to give instructions")
	// errDoesNotRead refuses an instruction for an engine without instructions.
	errDoesNotRead = errors.New("this engine cannot follow instructions")
)

// act carries out an order and confirms it.
func (e *Ears) act(text, identity string, c settings.Hearing) *agent.SpokenOrder {
	out := &agent.SpokenOrder{Text: text}
	by := prompt.InRoom + identity
	done, err := e.order(text, by)
	snap := e.bot.Snapshot()
	language := *cmp.Or(snap.Settings.Language, new("en"))
	say := ""
	switch {
	case err != nil:
		e.counts.refused.Add(1)
		out.Refused = err.Error()
		if !errors.Is(err, command.ErrNothingTo) { // otherwise nothing had to change
			say, language = refusal(language, err)
		}
	case done != nil:
		e.counts.orders.Add(1)
		out.Command, out.Effect = done.Command, done.Effect
	default:
		e.counts.orders.Add(1)
		becomes := "acts"
		if slices.ContainsFunc(snap.Waiting, func(w command.WaitingOrder) bool { return w.By == by }) {
			becomes = "waits"
		}
		out.Effect, _ = phrases.Say(language, "order."+becomes)
		say, language = phrases.Say(language, "reply."+becomes, text)
	}
	if !c.Confirm {
		say = ""
	}
	e.log.Info().Str("by", by).Str("command", string(out.Command)).Str("refused", out.Refused).Msg("spoken order")
	if say == "" {
		return out
	}
	if r := []rune(say); len(r) > speech.MaxSaid {
		say = string(r[:speech.MaxSaid])
	}
	if err := e.bot.Say(speech.Notice{Text: say, Reason: speech.ReasonOrder, Interrupt: true, Language: language}, by); err != nil {
		e.log.Debug().Err(err).Msg("order not confirmed")
	}
	return out
}

// refusal returns the spoken reply to a refused order, and its language. In English the reply is the error itself.
func refusal(tag string, err error) (text, language string) {
	key := "reply.refused"
	if errors.Is(err, errDoesNotRead) {
		key = "reply.does_not_read"
	}
	if text, language = phrases.Say(tag, key); text != "" {
		return text, language
	}
	text = err.Error()
	first, n := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[n:] + ".", language
}

// order passes an order to the commentator.
func (e *Ears) order(text, by string) (*command.Done, error) {
	if _, command := command.Parse(text); !command && !e.bot.Snapshot().Capabilities.Instructions {
		return nil, errDoesNotRead
	}
	return command.Handle(e.bot, strings.TrimRight(text, ".!"), by)
}

// echoMemory is how long a text of the voice may return as an echo.
const echoMemory = 10 * time.Second

// echoTexts are the latest texts of the voice.
type echoTexts struct {
	mu    sync.Mutex
	texts []echoText // oldest first
}

type echoText struct {
	segment, text string
	from, to      time.Time
}

// add records a step of a caption.
func (s *echoTexts) add(c agent.Caption, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts = slices.DeleteFunc(s.texts, func(t echoText) bool { return now.Sub(t.to) > echoMemory })
	for i := range s.texts {
		if s.texts[i].segment == c.Segment {
			s.texts[i].text, s.texts[i].to = c.Text, now
			return
		}
	}
	s.texts = append(s.texts, echoText{c.Segment, c.Text, now, now})
}

// echoes reports whether a text recognized in a period repeats a text of the voice in that period.
func (s *echoTexts) echoes(text string, from, to time.Time) bool {
	const reach = 2 * time.Second // of delays in the network and the loudspeaker
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, t := range s.texts {
		if t.from.Before(to.Add(reach)) && from.Before(t.to.Add(reach)) {
			fmt.Fprintln(&b, t.text)
		}
	}
	return command.Repeated(text, b.String())
}

// Caption implements agent.TextOutput. It records the texts of the voice.
func (e *Ears) Caption(c agent.Caption) {
	if c.Spoken {
		e.spoken.add(c, time.Now())
	}
}

// Record implements agent.TextOutput.
func (*Ears) Record(look.Record) {}

// State implements agent.TextOutput.
func (*Ears) State(agent.Status) {}
