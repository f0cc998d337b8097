package remote

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Parts of a request that servers refuse, in the order in which a refusal without a name gives them up.
const (
	partSchema = iota
	partTemplate
	partEffort
	partPenalty
	partTopK
	partTokens
	partPictures
	partSystem
	partTopP
	partTemperature
	partStream
	numParts
)

const (
	// maxTries bounds the requests for one answer that differ in the parts a server may refuse.
	maxTries = 6
	// learntFor is the time after which a refused part is tried again.
	learntFor = 24 * time.Hour
)

// choice is a part of requests with its alternatives.
type choice struct {
	name *regexp.Regexp // in a refusal
	sent func(r *request) bool
	// forms are the alternatives after the first form, in order.
	forms []form
}

// form is an alternative of a part.
type form struct {
	note  string // for the page
	value string // taken only if the refusal lists it; "" for any refusal
	apply func(r *request)
}

// choices returns the parts by their number.
func choices() [numParts]choice {
	left := func(what string, apply func(r *request)) []form { return []form{{note: "no " + what, apply: apply}} }
	effort := func(value string) form {
		return form{"reasoning_effort " + value, value, func(r *request) { r.Effort = value }}
	}
	field := func(name string) *regexp.Regexp { return regexp.MustCompile(`(?i)\b` + name + `\b`) }
	return [numParts]choice{
		partSchema: {
			regexp.MustCompile(`(?i)response_format|json_schema|structured.output|grammar|guided`),
			func(r *request) bool { return r.Format != nil }, left("JSON schema", func(r *request) { r.Format = nil }),
		},
		partTemplate: {
			regexp.MustCompile(`(?i)chat_template|enable_thinking`),
			func(r *request) bool { return r.Template != nil }, left("chat_template_kwargs", func(r *request) { r.Template = nil }),
		},
		partEffort: {
			regexp.MustCompile(`(?i)reasoning[_. ]?effort|\bthink(ing)?\b`), func(r *request) bool { return r.Effort != "" },
			append([]form{effort("minimal"), effort("low")}, left("reasoning_effort", func(r *request) { r.Effort = "" })...),
		},
		partPenalty: {
			field("repetition_penalty"), func(r *request) bool { return r.RepetitionPenalty != nil },
			left("repetition_penalty", func(r *request) { r.RepetitionPenalty = nil }),
		},
		partTopK: {
			field("top_k"), func(r *request) bool { return r.TopK != nil }, left("top_k", func(r *request) { r.TopK = nil }),
		},
		partTokens: {
			regexp.MustCompile(`(?i)\bmax_(completion_)?tokens\b`), func(r *request) bool { return r.MaxTokens+r.MaxCompletionTokens > 0 },
			[]form{
				{"max_completion_tokens", "", func(r *request) { r.MaxTokens, r.MaxCompletionTokens = 0, r.MaxTokens }},
				{"no max_tokens", "", func(r *request) { r.MaxTokens, r.MaxCompletionTokens = 0, 0 }},
			},
		},
		partPictures: {
			regexp.MustCompile(`(?i)\bimages?\b|image\(s\)|image_url|picture|multi-?modal`), func(r *request) bool { return r.several },
			[]form{{note: "one picture a request", apply: func(r *request) { r.several, r.single = false, true }}},
		},
		partSystem: {
			regexp.MustCompile(`(?i)\bsystem\b|roles? must alternate|developer instruction`), func(r *request) bool { return !r.folded },
			left("system role", func(r *request) { r.folded = true }),
		},
		partTopP: {
			field("top_p"), func(r *request) bool { return r.TopP != nil }, left("top_p", func(r *request) { r.TopP = nil }),
		},
		partTemperature: {
			field("temperature"), func(r *request) bool { return r.Temperature != nil },
			left("temperature", func(r *request) { r.Temperature = nil }),
		},
		partStream: {
			regexp.MustCompile(`(?i)\bstream(ing)?\b`), func(r *request) bool { return r.Stream },
			left("streaming", func(r *request) { r.Stream = false }),
		},
	}
}

// fit is what is known about a server with one model.
type fit struct {
	model string
	parts [numParts]struct {
		form   int       // number of the accepted form
		again  time.Time // when the first form is tried again
		proven bool      // an answer to a request with this form came
	}
	thoughts unopened
	silent   int // answers in a row without words
}

// forms are the numbers of the forms of a request's parts.
type forms [numParts]int

// forms returns the forms to use now.
func (f *fit) forms(now time.Time) (use forms) {
	for i, p := range f.parts {
		if now.Before(p.again) {
			use[i] = p.form
		}
	}
	return use
}

// accepted records the forms of a request that was answered, and returns the parts whose form is new.
func (f *fit) accepted(sent [numParts]bool, use forms, now time.Time) (changed []int) {
	for i := range f.parts {
		p := &f.parts[i]
		if !sent[i] {
			continue
		}
		p.proven = true
		if use[i] != p.form {
			changed = append(changed, i)
		}
		if use[i] != p.form || !now.Before(p.again) {
			p.form, p.again = use[i], now.Add(learntFor)
		}
	}
	return changed
}

// Notes describes what was learnt about the server and its model, such as "no temperature, one picture a request"; "" for nothing.
func (m *Model) Notes() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var notes []string
	for i, p := range m.fit.parts {
		if p.form > 0 {
			notes = append(notes, m.choices[i].forms[p.form-1].note)
		}
	}
	if m.fit.thoughts.state == unopenedCloses {
		notes = append(notes, "thoughts without an opening mark")
	}
	return strings.Join(notes, ", ")
}

// Recall takes over what an earlier Model learnt about the same server.
func (m *Model) Recall(earlier *Model) {
	earlier.mu.Lock()
	known := earlier.fit
	earlier.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fit = known
}

// apply gives a request its forms, and returns the parts that it had before.
func (m *Model) apply(r *request, use forms) (sent [numParts]bool) {
	for i, c := range m.choices {
		if sent[i] = c.sent(r); sent[i] && use[i] > 0 {
			c.forms[use[i]-1].apply(r)
		}
	}
	return sent
}

// tooLong matches refusals of a prompt's length, which often name max_tokens.
var tooLong = regexp.MustCompile(`(?i)too (long|large)|context (length|size|window)|maximum context|exceeds the`)

// adapt changes the forms after a refusal of a request. It reports whether another try can help, and whether the refusal names a part.
func (m *Model) adapt(use *forms, r *request, refusal *statusError) (again, named bool) {
	if slices.Contains([]int{
		http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge,
		http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	}, refusal.code) || tooLong.MatchString(refusal.whole) {
		return false, true
	}
	for i, c := range m.choices {
		if !c.name.MatchString(refusal.whole) {
			continue
		}
		named = true
		if c.sent(r) && use[i] < len(c.forms) {
			use[i] = next(c.forms, use[i], refusal.whole)
			return true, true
		}
	}
	if named || refusal.code != http.StatusBadRequest && refusal.code != http.StatusUnprocessableEntity {
		return false, named
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, c := range m.choices {
		p := m.fit.parts[i]
		if c.sent(r) && use[i] == 0 && (!p.proven || p.form > 0 || i == partSchema) {
			use[i] = next(c.forms, use[i], refusal.whole)
			return true, false
		}
	}
	return false, false
}

// next returns the number of the next form after a refusal, without values that the refusal does not list.
func next(forms []form, now int, refusal string) int {
	for now++; now < len(forms); now++ {
		if v := forms[now-1].value; v == "" || regexp.MustCompile(`\b`+v+`\b`).MatchString(refusal) {
			break
		}
	}
	return now
}

// unopened is what is known about thoughts that a model ends with a mark, without one at their beginning.
type unopened struct {
	state unopenedState
	plain int // answers in a row without such a mark
}

type unopenedState uint8

const (
	unopenedUnknown unopenedState = iota
	unopenedNever
	unopenedCloses
)

// plainAnswers is the number of answers without a closing mark after which a model's text is no longer held.
const plainAnswers = 3

// learn takes the marks of an answer. One that ran out of tokens, whole being false, decides little.
func (u *unopened) learn(closed, whole bool) {
	switch {
	case closed:
		*u = unopened{state: unopenedCloses}
	case u.state == unopenedCloses && !whole: // cut off inside its thoughts
	default:
		if u.plain++; u.plain >= plainAnswers || whole && u.state == unopenedUnknown {
			u.state = unopenedNever
		}
	}
}
