package voice

import (
	"context"
	"net/http"
	"time"
)

// Split cuts a text that arrives in deltas.
func Split(deltas ...string) []string {
	var s splitter
	var pieces []string
	for _, d := range deltas {
		pieces = append(pieces, s.push(d)...)
	}
	return append(pieces, s.end()...)
}

// Script returns the input of the program for a text.
func Script(text string) string { return script(tokenize(text)) }

// ScriptWith is Script with pronunciations.
func ScriptWith(text string, pronunciations map[string]string) string {
	tokens := tokenize(text)
	pronounce(tokens, pronunciations)
	return script(tokens)
}

// FliteVoices and EspeakVoices read lists of voices.
func FliteVoices(list string) []Voice  { return fliteVoices(list) }
func EspeakVoices(list string) []Voice { return espeakVoices(list) }

// Sentence speaks one sentence.
func (s *Synthesizer) Sentence(ctx context.Context, text, lang string) (sp Speech, err error) {
	tokens, lang, err := s.prepare(text, lang, nil)
	if err != nil {
		return Speech{}, err
	}
	return s.local(ctx, tokens, lang)
}

// Hurry sets how long the server may take for sound, and its clock.
func (s *Synthesizer) Hurry(patience time.Duration, now func() time.Time) {
	s.server.patience, s.server.now = patience, now
}

// ParseVoices reads a server's list of voices.
func ParseVoices(body []byte) []string { return parseVoices(body) }

// Coded returns the names of the programs that have code, with the server.
func Coded() (names []string) {
	for _, p := range programs() {
		names = append(names, p.name)
	}
	return append(names, remote)
}

// Through sets what carries the requests to the server.
func (s *Synthesizer) Through(t http.RoundTripper) { s.server.client.Transport = t }
