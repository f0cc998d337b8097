package voice

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"touchline/inference"
)

const (
	flite  = "flite"
	espeak = "espeak-ng"
	remote = inference.VoiceServer
)

// program is the code of a local speech program; inference.VoicePrograms describes it.
type program struct {
	name string
	// speak speaks words in a language.
	speak func(s *Synthesizer, ctx context.Context, tokens []token, lang string) (Speech, error)
	// list is the argument that lists the voices; voices parses the list.
	list   string
	voices func(list string) []Voice
}

func programs() []program {
	return []program{
		{flite, (*Synthesizer).speakFlite, "-lv", fliteVoices},
		{espeak, (*Synthesizer).speakEspeak, "--voices", espeakVoices},
	}
}

// programFor returns the configured program if it is local, else the one for a language.
func (s *Synthesizer) programFor(lang string) program {
	lang = inference.Primary(strings.ReplaceAll(lang, "_", "-"))
	names := []string{s.cfg.Program}
	for _, p := range inference.VoicePrograms() {
		if slices.Contains(p.Languages, lang) || slices.Contains(p.Languages, inference.AnyLanguage) {
			names = append(names, p.Name)
		}
	}
	for _, name := range names {
		if i := slices.IndexFunc(programs(), func(p program) bool { return p.name == name }); i >= 0 {
			return programs()[i]
		}
	}
	return program{}
}

// counts are the values of Stats.
type counts struct {
	spoken    map[string]*atomic.Uint64
	failovers atomic.Uint64
}

func newCounts() *counts {
	c := &counts{spoken: map[string]*atomic.Uint64{}}
	for _, p := range inference.VoicePrograms() {
		c.spoken[p.Name] = new(atomic.Uint64)
	}
	return c
}

// Stats counts sentences.
type Stats struct {
	// Spoken counts the sentences of each program, by its name.
	Spoken map[string]uint64
	// Failovers counts sentences that a local program spoke or completed because the speech server failed.
	Failovers uint64
}

// Stats returns the counts since New.
func (s *Synthesizer) Stats() Stats {
	out := Stats{Spoken: map[string]uint64{}, Failovers: s.counts.failovers.Load()}
	for name, n := range s.counts.spoken {
		out.Spoken[name] = n.Load()
	}
	return out
}
