package audioapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	bcp47 "golang.org/x/text/language"

	"touchline/inference"
	"touchline/inference/vad"
)

// TranscriptionForm are the fields of POST /v1/audio/transcriptions, a form.
type TranscriptionForm struct {
	File        []byte   `json:"file" doc:"Sound of any usual format."`
	Model       string   `json:"model,omitempty" doc:"Any name; with agent.console.transcription.any_model off, as GET /v1/models lists it."`
	Language    string   `json:"language,omitempty" doc:"BCP 47 tag or English name; found if left out."`
	Prompt      string   `json:"prompt,omitempty" doc:"Names, terms and what was said before."`
	Keywords    []string `json:"keywords[],omitempty" doc:"Words that may be said."`
	Format      string   `json:"response_format,omitempty" enum:"json,text,srt,verbose_json,vtt,diarized_json"`
	Temperature float64  `json:"temperature,omitempty" minimum:"0" maximum:"1"`
	Times       []string `json:"timestamp_granularities[],omitempty" enum:"word,segment"`
	Timestamps  bool     `json:"return_timestamps,omitempty" doc:"With json: times of words, or of utterances without them."`
	Stream      bool     `json:"stream,omitempty" doc:"Events with the text as it comes; json, text and diarized_json only."`
	Chunking    string   `json:"chunking_strategy,omitempty" doc:"auto, or an object of type server_vad as JSON."`
}

// request is a checked request.
type request struct {
	hearing   inference.Hearing
	format    string
	words     bool // timestamp_granularities
	segments  bool
	stamps    bool // return_timestamps
	stream    bool
	split     *vad.Config     // by speech; nil for none
	translate string          // into a language; "" does not
	text      inference.Model // translates; nil for the recognizer
	plain     bool            // events in the form of /v1/audio/transcriptions/stream
}

// usualModel reports whether a name is one that clients send by default: OpenAI's transcription models, with and without a date.
func usualModel(name string) bool {
	return name == "default" || name == "whisper-1" ||
		strings.HasPrefix(name, "gpt-") && (strings.Contains(name, "transcribe") || strings.HasPrefix(name, "gpt-realtime"))
}

// model returns an error for a model that is not served.
func (t *Transcriber) model(name string) error {
	if own := t.opts.Recognizer.Recognizes().Model; !t.opts.Config.AnyModel && name != own && !usualModel(name) {
		return &Error{
			Status: http.StatusNotFound, Param: "model", Code: "model_not_found",
			Message: fmt.Sprintf("model %.80q not found; GET /v1/models lists the models", name),
		}
	}
	return nil
}

// language returns the tag of a language in a request; "" finds it.
func (t *Transcriber) language(name string) (string, error) {
	tag, ok := tagOf(name)
	known := t.opts.Recognizer.Recognizes().Languages
	same := func(k string) bool { return inference.Primary(k) == inference.Primary(tag) }
	if !ok || tag != "" && len(known) > 0 && !slices.ContainsFunc(known, same) {
		return "", bad("language", "expected a language of the model, such as en, got %.40q", name)
	}
	return tag, nil
}

// tagOf returns the tag of a language as clients name it: a tag, a locale (en_US.UTF-8), a code of three letters, or an English name.
// It is "" where the client leaves the language open.
func tagOf(name string) (tag string, ok bool) {
	name, _, _ = strings.Cut(strings.TrimSpace(name), ".")
	switch strings.ToLower(name) {
	case "", "auto", "detect", "multi", "und", "null", "none", "undefined":
		return "", true
	}
	if tag = inference.LanguageTag(name); tag == "" {
		if parsed, err := bcp47.All.Parse(name); err == nil {
			base, _ := parsed.Base()
			tag = inference.LanguageTag(base.String())
		}
	}
	return tag, tag != ""
}

// listening holds a client's transcription options: fields of a form, or "transcription" of a session.
type listening struct {
	Model     string   `json:"model"`
	Language  string   `json:"language"`
	Prompt    string   `json:"prompt"`
	Languages []string `json:"languages,omitempty"`
	Keywords  []string `json:"keywords,omitempty"`
}

// hearingOf checks a listening. With several languages, the model detects which of them is spoken.
func (t *Transcriber) hearingOf(l listening) (h inference.Hearing, err error) {
	for _, name := range l.Languages {
		if h.Language, err = t.language(name); err != nil {
			return h, err
		}
	}
	if len(l.Languages) > 1 {
		h.Language = ""
	}
	if l.Language != "" {
		h.Language, err = t.language(l.Language)
	}
	h.Context = strings.TrimSpace(l.Prompt)
	if len(l.Keywords) > 0 {
		h.Context = strings.TrimSpace(h.Context + "\n" + strings.Join(l.Keywords, ", "))
	}
	if err == nil && len(h.Context) > maxPrompt {
		err = bad("prompt", "at most %d bytes", maxPrompt)
	}
	return h, err
}

// requestOf checks the fields of a form.
func (t *Transcriber) requestOf(f *form) (o request, err error) {
	for _, name := range []string{"known_speaker_names", "known_speaker_references"} {
		if len(f.list(name)) > 0 {
			return o, bad(name, "speakers are not told apart here, everybody is speaker A; leave it out")
		}
	}
	if slices.Contains(f.list("include"), "logprobs") {
		return o, bad("include", "there are no logprobs here; leave it out")
	}
	if err := t.model(cmp.Or(f.first("model"), "default")); err != nil {
		return o, err
	}
	o.hearing, err = t.hearingOf(listening{
		Language: f.first("language"), Prompt: f.first("prompt"), Languages: f.list("languages"), Keywords: f.list("keywords"),
	})
	if err != nil {
		return o, err
	}
	if v := firstOf(f.list("temperature")); v != "" {
		o.hearing.Temperature, err = strconv.ParseFloat(v, 64)
		if err != nil || !(o.hearing.Temperature >= 0 && o.hearing.Temperature <= 1) {
			return o, bad("temperature", "expected 0 to 1, got %.40q", v)
		}
	}
	if o.split, err = strategy(f.chunking()); err != nil {
		return o, err
	}
	if o.stream, err = f.flag("stream"); err != nil {
		return o, err
	}
	if o.stamps, err = f.flag("return_timestamps"); err != nil {
		return o, err
	}
	o.translate, o.text = f.translate, f.translator
	return o, t.formatOf(&o, f)
}

// firstOf returns the first of several temperatures, which servers of Whisper try in turn: "0.2", "0,0.2" or "[0, 0.2]", as one value or
// several.
func firstOf(values []string) string {
	if len(values) == 0 {
		return ""
	}
	first, _, _ := strings.Cut(strings.Trim(values[0], "[] "), ",")
	return strings.TrimSpace(first)
}

// formatOf checks the form of the answer.
func (t *Transcriber) formatOf(o *request, f *form) error {
	o.format = cmp.Or(f.first("response_format"), "json")
	switch o.format {
	case "json", "text", "srt", "vtt", "verbose_json", diarized:
	default:
		return bad("response_format", "expected json, text, srt, verbose_json, vtt or diarized_json, got %.40q", o.format)
	}
	if o.stream && o.format != "json" && o.format != "text" && o.format != diarized {
		return bad("stream", "a stream has text only; choose response_format json, text or diarized_json")
	}
	notLetter := func(r rune) bool { return !unicode.IsLetter(r) }
	list := strings.FieldsFunc(strings.ToLower(strings.Join(f.list("timestamp_granularities"), ",")), notLetter) // also as a JSON list
	if len(list) > 0 && o.format != "verbose_json" {
		return bad("timestamp_granularities", "only with response_format verbose_json")
	}
	for _, v := range list {
		switch v {
		case "word":
			o.words = true
		case "segment":
			o.segments = true
		default:
			return bad("timestamp_granularities", "expected word or segment, got %.40q", v)
		}
	}
	o.segments = o.segments || !o.words
	can := t.opts.Recognizer.Recognizes().WordTimes
	if o.words && !can {
		return bad("timestamp_granularities", "%v", inference.ErrNoWordTimes)
	}
	o.stamps = o.stamps && o.format == "json" && !o.stream
	times := o.stamps || o.format == "srt" || o.format == "vtt" || o.format == "verbose_json" || o.format == diarized
	o.hearing.WordTimes = can && o.text == nil && (o.words || o.stamps || o.format == "srt" || o.format == "vtt")
	if (times || o.text != nil) && !o.hearing.WordTimes && o.split == nil {
		c := speechConfig() // pauses give times at least
		o.split = &c
	}
	return nil
}

// turns is a chunking_strategy, or a turn_detection of a session.
type turns struct {
	Type      string   `json:"type"`
	Threshold *float64 `json:"threshold"`
	Prefix    *int     `json:"prefix_padding_ms"`
	Silence   *int     `json:"silence_duration_ms"`
}

// speechConfig is how utterances are detected: coughs and laughs are too short or too irregular.
func speechConfig() vad.Config {
	return vad.Config{Least: 250 * time.Millisecond, Steady: vad.SteadySpeech}
}

// config checks the settings of a field.
func (v turns) config(field string) (vad.Config, error) {
	c := speechConfig()
	switch {
	case v.Type != "server_vad":
		return c, bad(field, "expected the type server_vad, got %.40q", v.Type)
	case v.Threshold != nil && !(*v.Threshold > 0 && *v.Threshold <= 1):
		return c, bad(field, "threshold: expected above 0 to 1, got %v", *v.Threshold)
	case v.Prefix != nil && (*v.Prefix < 0 || *v.Prefix > 5000):
		return c, bad(field, "prefix_padding_ms: expected 0 to 5000, got %d", *v.Prefix)
	case v.Silence != nil && (*v.Silence < 50 || *v.Silence > 10000):
		return c, bad(field, "silence_duration_ms: expected 50 to 10000, got %d", *v.Silence)
	}
	if v.Threshold != nil {
		c.Threshold = *v.Threshold
	}
	if v.Prefix != nil {
		if c.Before = time.Duration(*v.Prefix) * time.Millisecond; c.Before == 0 {
			c.Before = -1
		}
	}
	if v.Silence != nil {
		c.Pause = time.Duration(*v.Silence) * time.Millisecond
	}
	return c, nil
}

// chunking returns chunking_strategy. OpenAI's clients send the members of an object as fields of their own.
func (f *form) chunking() string {
	members := map[string]json.RawMessage{}
	for field, values := range f.fields {
		if name, ok := strings.CutPrefix(field, "chunking_strategy["); ok {
			value := json.RawMessage(values[0])
			if !json.Valid(value) {
				value, _ = json.Marshal(values[0]) // a string
			}
			members[strings.TrimSuffix(name, "]")] = value
		}
	}
	if len(members) == 0 {
		return f.first("chunking_strategy")
	}
	object, _ := json.Marshal(members) // valid values
	return string(object)
}

// strategy reads chunking_strategy.
func strategy(text string) (*vad.Config, error) {
	v := turns{Type: strings.Trim(text, `"`)}
	if strings.HasPrefix(text, "{") {
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			return nil, bad("chunking_strategy", `expected "auto" or an object: %v`, err)
		}
	}
	switch v.Type {
	case "", "null":
		return nil, nil //nolint:nilnil // none
	case "auto":
		v = turns{Type: "server_vad"}
	}
	c, err := v.config("chunking_strategy")
	return &c, err
}
