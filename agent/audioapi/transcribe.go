package audioapi

import (
	"bytes"
	"cmp"
	"compress/zlib"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"touchline/inference"
	"touchline/inference/vad"
)

const (
	// maxPrompt bounds the context of a request, in bytes.
	maxPrompt = 16 << 10
	// hearTime bounds the recognition of one recording.
	hearTime = 10 * time.Minute
	// surelySilent is a recording whose loudest frame has less than this probability of speech.
	surelySilent = 0.2
)

// TranscriberOptions make a Transcriber.
type TranscriberOptions struct {
	Config     Config
	Recognizer inference.Recognizer
	// Hold keeps the recognizer loaded until release; nil if it always is.
	Hold func() (release func())
	// Run loads and unloads the recognizer until ctx ends; nil for nothing to do.
	Run func(ctx context.Context) error
	// Gate finds speech. The Transcriber closes it.
	Gate *vad.Gate
	// Text returns a model that answers texts, for translations; nil without one. It may be nil.
	Text func() inference.Model
	// Decode decodes files that are not WAV; nil refuses them.
	Decode Decoder
	// Metrics of the recognizer; nil for none.
	Metrics prometheus.Collector
	Log     zerolog.Logger
}

// Transcriber is transcription as a service. Safe for concurrent use.
type Transcriber struct {
	opts     TranscriberOptions
	slots    chan struct{} // recordings that are heard
	waiting  atomic.Int64  // and those that wait
	uploads  atomic.Int64  // bytes of forms that were received, up to the end of their requests
	sessions atomic.Int64
	kept     kept
	counts   *transcriptionMetrics
	log      zerolog.Logger
}

// NewTranscriber returns a Transcriber.
func NewTranscriber(o TranscriberOptions) *Transcriber {
	t := &Transcriber{
		opts: o, slots: make(chan struct{}, o.Config.Parallel), log: o.Log.With().Str("component", "transcription").Logger(),
	}
	t.counts = newTranscriptionMetrics(t)
	return t
}

// Run serves until ctx ends.
func (t *Transcriber) Run(ctx context.Context) error {
	var err error
	if t.opts.Run != nil {
		err = t.opts.Run(ctx)
	}
	<-ctx.Done()
	return err
}

// hold keeps the recognizer loaded.
func (t *Transcriber) hold() (release func()) {
	if t.opts.Hold == nil {
		return func() {}
	}
	return t.opts.Hold()
}

// TranscriptionForm are the fields of POST /v1/audio/transcriptions, a form.
type TranscriptionForm struct {
	File        []byte   `json:"file" doc:"Sound of any usual format."`
	Model       string   `json:"model" doc:"As listed by GET /v1/models, or a usual name such as whisper-1."`
	Language    string   `json:"language,omitempty" doc:"BCP 47 tag or English name; found if left out."`
	Prompt      string   `json:"prompt,omitempty" doc:"Names, terms and what was said before."`
	Keywords    []string `json:"keywords[],omitempty" doc:"Words that may be said."`
	Format      string   `json:"response_format,omitempty" enum:"json,text,srt,verbose_json,vtt,diarized_json"`
	Temperature float64  `json:"temperature,omitempty" minimum:"0" maximum:"1"`
	Times       []string `json:"timestamp_granularities[],omitempty" enum:"word,segment"`
	Stream      bool     `json:"stream,omitempty" doc:"Events with the text as it comes; json, text and diarized_json only."`
	Chunking    string   `json:"chunking_strategy,omitempty" doc:"auto, or an object of type server_vad as JSON."`
}

// order is a checked request.
type order struct {
	hearing   inference.Hearing
	format    string
	words     bool // timestamp_granularities
	segments  bool
	stream    bool
	split     *vad.Config     // by speech; nil for none
	translate string          // into a language; "" does not
	text      inference.Model // translates; nil for the recognizer
	plain     bool            // events in the form of /v1/audio/transcriptions/stream
}

// usualModel says that clients send a name by default: OpenAI's models that transcribe, with and without a date.
func usualModel(name string) bool {
	return name == "default" || name == "whisper-1" ||
		strings.HasPrefix(name, "gpt-") && (strings.Contains(name, "transcribe") || strings.HasPrefix(name, "gpt-realtime"))
}

// model returns the error of a model that is not here.
func (t *Transcriber) model(name string) error {
	if own := t.opts.Recognizer.Recognizes().Model; name != own && !usualModel(name) {
		return &Error{
			Status: http.StatusNotFound, Param: "model", Code: "model_not_found",
			Message: fmt.Sprintf("model: %.80q is not here; GET /v1/models lists what is", name),
		}
	}
	return nil
}

// language returns the tag of a language in a request; "" and "auto" are "".
func (t *Transcriber) language(name string) (string, error) {
	if name == "" || name == "auto" {
		return "", nil
	}
	tag := inference.LanguageTag(name)
	known := t.opts.Recognizer.Recognizes().Languages
	same := func(k string) bool { return inference.Primary(k) == inference.Primary(tag) }
	if tag == "" || len(known) > 0 && !slices.ContainsFunc(known, same) {
		return "", bad("language", "expected a language of the model, such as en, got %.40q", name)
	}
	return tag, nil
}

// listening is how a client wants to be heard: the fields of a form, or the transcription of a session.
type listening struct {
	Model     string   `json:"model"`
	Language  string   `json:"language"`
	Prompt    string   `json:"prompt"`
	Languages []string `json:"languages,omitempty"`
	Keywords  []string `json:"keywords,omitempty"`
}

// hearingOf checks how a client wants to be heard. Of several languages the model finds the one.
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

// orderOf checks the fields of a form.
func (t *Transcriber) orderOf(f *form) (o order, err error) {
	for _, name := range []string{"known_speaker_names", "known_speaker_references"} {
		if len(f.list(name)) > 0 {
			return o, bad(name, "speakers are not told apart here, everybody is speaker A; leave it out")
		}
	}
	if slices.Contains(f.list("include"), "logprobs") {
		return o, bad("include", "there are no logprobs here; leave it out")
	}
	if f.first("model") == "" {
		return o, bad("model", "a model is needed; GET /v1/models lists them")
	}
	if err := t.model(f.first("model")); err != nil {
		return o, err
	}
	o.hearing, err = t.hearingOf(listening{
		Language: f.first("language"), Prompt: f.first("prompt"), Languages: f.list("languages"), Keywords: f.list("keywords"),
	})
	if err != nil {
		return o, err
	}
	if v := f.first("temperature"); v != "" {
		o.hearing.Temperature, err = strconv.ParseFloat(v, 64)
		if err != nil || !(o.hearing.Temperature >= 0 && o.hearing.Temperature <= 1) {
			return o, bad("temperature", "expected 0 to 1, got %.40q", v)
		}
	}
	if o.split, err = strategy(f.first("chunking_strategy")); err != nil {
		return o, err
	}
	if v := f.first("stream"); v != "" {
		if o.stream, err = strconv.ParseBool(v); err != nil {
			return o, bad("stream", "expected true or false, got %.40q", v)
		}
	}
	o.translate, o.text = f.translate, f.translator
	return o, t.formatOf(&o, f)
}

// formatOf checks the form of the answer.
func (t *Transcriber) formatOf(o *order, f *form) error {
	o.format = cmp.Or(f.first("response_format"), "json")
	switch o.format {
	case "json", "text", "srt", "vtt", "verbose_json", diarized:
	default:
		return bad("response_format", "expected json, text, srt, verbose_json, vtt or diarized_json, got %.40q", o.format)
	}
	if o.stream && o.format != "json" && o.format != "text" && o.format != diarized {
		return bad("stream", "a stream has text only; choose response_format json, text or diarized_json")
	}
	list := f.list("timestamp_granularities")
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
	times := o.format == "srt" || o.format == "vtt" || o.format == "verbose_json" || o.format == diarized
	o.hearing.WordTimes = can && o.text == nil && (o.words || o.format == "srt" || o.format == "vtt")
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

// speechConfig is how utterances are found: a cough or a laugh is none.
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

// strategy reads chunking_strategy.
func strategy(text string) (*vad.Config, error) {
	switch text {
	case "":
		return nil, nil //nolint:nilnil // none
	case "auto":
		c := speechConfig()
		return &c, nil
	}
	var v turns
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return nil, bad("chunking_strategy", `expected "auto" or an object: %v`, err)
	}
	c, err := v.config("chunking_strategy")
	return &c, err
}

// ServeTranscriptions answers POST /v1/audio/transcriptions.
func (t *Transcriber) ServeTranscriptions(w http.ResponseWriter, r *http.Request) {
	t.answer(w, r, func(*form) error { return nil })
}

// ServeStream answers POST /v1/audio/transcriptions/stream: an event for each utterance, in the form of the server whose clients ask
// for it.
func (t *Transcriber) ServeStream(w http.ResponseWriter, r *http.Request) {
	t.answer(w, r, func(f *form) error {
		for name, value := range map[string]string{
			"model": "default", "response_format": "json", "stream": "true", "chunking_strategy": "auto",
		} {
			f.fields[name] = []string{cmp.Or(f.first(name), value)}
		}
		if f.first("response_format") != "json" || f.first("stream") != "true" {
			return bad("response_format", "this stream has one form; leave it out, with stream")
		}
		f.plain = true
		return nil
	})
}

// ServeSubtitles answers POST /v1/audio/subtitles: srt, or vtt.
func (t *Transcriber) ServeSubtitles(w http.ResponseWriter, r *http.Request) {
	t.answer(w, r, func(f *form) error {
		f.fields["response_format"] = []string{cmp.Or(f.first("response_format"), "srt")}
		f.fields["model"] = []string{cmp.Or(f.first("model"), "default")}
		if v := f.first("response_format"); v != "srt" && v != "vtt" {
			return bad("response_format", "expected srt or vtt, got %.40q", v)
		}
		return nil
	})
}

// answer answers a request with a file. change checks and changes its fields.
func (t *Transcriber) answer(w http.ResponseWriter, r *http.Request, change func(*form) error) {
	err := t.serve(w, r, change)
	e, ok := errors.AsType[*Error](err)
	switch {
	case err == nil || r.Context().Err() != nil: // or the client has gone
		return
	case !ok:
		t.log.Warn().Err(err).Msg("recording not transcribed")
		e = problem(err)
	}
	t.counts.refused.WithLabelValues(cmp.Or(e.Code, "error")).Inc()
	e.Write(w)
}

// problem is an error of the recognizer in OpenAI's form.
func problem(err error) *Error {
	switch {
	case errors.Is(err, inference.ErrNoWordTimes):
		return bad("timestamp_granularities", "%v", inference.ErrNoWordTimes)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, errTooSlow):
		return &Error{Status: http.StatusGatewayTimeout, Type: "server_error", Code: "transcription_timeout", Message: err.Error()}
	}
	return &Error{Status: http.StatusServiceUnavailable, Type: "server_error", Code: "transcription_failed", Message: err.Error()}
}

// errTooSlow ends what takes too long.
var errTooSlow = fmt.Errorf("the recording was not transcribed within %v", hearTime)

// serve handles a request up to its answer.
func (t *Transcriber) serve(w http.ResponseWriter, r *http.Request, change func(*form) error) error {
	if t.waiting.Load() >= t.places() { // it need not be sent
		return t.full(w)
	}
	space := &space{t: t}
	defer space.release()
	f, err := readForm(w, r, int64(t.opts.Config.MaxBytes), space.take)
	if errors.Is(err, errNoSpace) {
		return busy(w, err.Error())
	}
	if err != nil {
		return err
	}
	defer f.close()
	if err := change(f); err != nil {
		return err
	}
	o, err := t.orderOf(f)
	if err != nil {
		return err
	}
	o.plain = f.plain
	leave, err := t.enter(r.Context(), w)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeoutCause(r.Context(), hearTime, errTooSlow)
	defer cancel()
	defer t.hold()()
	if err := t.turn(ctx); err != nil {
		return causeOr(ctx, err)
	}
	defer func() { <-t.slots }()
	sound, err := f.sound(ctx, t.opts.Decode, t.opts.Config.MaxDuration)
	if err != nil {
		return causeOr(ctx, err)
	}
	began := time.Now()
	out := &textStream{stream: stream{w: w, control: http.NewResponseController(w), sse: true}, order: o}
	parts, err := t.hear(ctx, sound, o, out.part)
	if err != nil {
		err = causeOr(ctx, err)
		if e, ok := errors.AsType[*Error](err); !ok && out.fail(problem(err)) || ok && out.fail(e) {
			t.log.Warn().Err(err).Msg("recording not transcribed")
			return nil
		}
		return err
	}
	t.counts.done(length(len(sound)), time.Since(began))
	if o.stream {
		out.done(usageOf(parts, length(len(sound))))
		return nil
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime)) // a writer without deadlines has none
	write(w, o, parts, length(len(sound)))
	return nil
}

// enter takes a place in the queue.
func (t *Transcriber) enter(ctx context.Context, w http.ResponseWriter) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if t.waiting.Add(1) > t.places() {
		t.waiting.Add(-1)
		return nil, t.full(w)
	}
	return func() { t.waiting.Add(-1) }, nil
}

// places is the number of recordings that may be heard or wait.
func (t *Transcriber) places() int64 { return int64(t.opts.Config.Parallel + t.opts.Config.Queue) }

func (t *Transcriber) full(w http.ResponseWriter) error {
	return busy(w, fmt.Sprintf("%d recordings are being transcribed or wait", t.places()))
}

// space is the share of a request in the bytes that all uploads may have: as many as recordings of the largest size in all places. A slow
// upload takes what it has sent, and no place of the recognizer.
type space struct {
	t     *Transcriber
	bytes int64
}

// errNoSpace is the error of an upload beyond the bytes for all of them.
var errNoSpace = errors.New("too much sound is being uploaded")

func (s *space) take(n int64) error {
	if s.t.uploads.Add(n) > s.t.places()*int64(s.t.opts.Config.MaxBytes) {
		s.t.uploads.Add(-n)
		return errNoSpace
	}
	s.bytes += n
	return nil
}

func (s *space) release() { s.t.uploads.Add(-s.bytes) }

// turn waits until one more recording may be heard.
func (t *Transcriber) turn(ctx context.Context) error {
	select {
	case t.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// span is a stretch of a recording.
type span struct{ from, to int }

// spans returns what to hear of a recording: its utterances, or all of it unless it is silent.
func (t *Transcriber) spans(ctx context.Context, sound []float32, o order) (out []span, err error) {
	d, err := t.opts.Gate.Detector()
	if err != nil {
		return nil, err
	}
	defer d.Close()
	speech := false
	watched := detectorFunc(func(frame []float32) (float64, error) {
		p, err := d.Detect(frame)
		speech = speech || p >= surelySilent
		return p, errors.Join(err, ctx.Err())
	})
	var c vad.Config
	if o.split != nil {
		c = *o.split
	}
	s := vad.NewStream(watched, c, func(e vad.Event) {
		switch e.Kind {
		case vad.Began:
			out = append(out, span{int(e.At), 0})
		case vad.Ended:
			out[len(out)-1].to = min(int(e.At), len(sound))
		case vad.Heard:
		}
	})
	if err := errors.Join(s.Write(sound), s.Flush()); err != nil {
		return nil, err
	}
	t.counts.share(s.Share())
	if o.split != nil {
		return out, nil
	}
	if !speech {
		return nil, nil
	}
	return []span{{0, len(sound)}}, nil
}

// detectorFunc is a detector that needs no closing.
type detectorFunc func(frame []float32) (float64, error)

// Detect implements vad.Detector.
func (f detectorFunc) Detect(frame []float32) (float64, error) { return f(frame) }

// Close implements vad.Detector.
func (detectorFunc) Close() error { return nil }

// hear transcribes a recording. each gets the final parts as they come.
func (t *Transcriber) hear(ctx context.Context, sound []float32, o order, each func(inference.Transcript) error,
) (parts []inference.Transcript, err error) {
	spans, err := t.spans(ctx, sound, o)
	if err != nil {
		return nil, err
	}
	do := t.opts.Recognizer.Transcribe
	if translator, ok := t.opts.Recognizer.(inference.Translator); ok && o.translate != "" && o.text == nil {
		do = translator.Translate
	}
	for _, s := range spans {
		from := length(s.from)
		for p, err := range do(ctx, sound[s.from:s.to], o.hearing) {
			if err != nil {
				return parts, err
			}
			if !p.Final {
				continue
			}
			if o.text != nil {
				if p, err = translated(ctx, o.text, p, o.translate); err != nil {
					return parts, err
				}
			}
			p.Start, p.End = p.Start+from, p.End+from
			p.Words = slices.Clone(p.Words)
			for i := range p.Words {
				p.Words[i].Start += from
				p.Words[i].End += from
			}
			parts = append(parts, p)
			t.counts.words.Add(float64(len(strings.Fields(p.Text))))
			if err := each(p); err != nil {
				return parts, err
			}
		}
	}
	return parts, nil
}

// textStream is an answer as events.
type textStream struct {
	stream
	order order
	text  string
	parts int // that had a text
}

// part sends the text that is new.
func (s *textStream) part(p inference.Transcript) error {
	if !s.order.stream {
		return nil
	}
	text := inference.JoinTranscripts(s.text, p.Text)
	delta := text[len(s.text):]
	if s.text = text; delta == "" {
		return nil
	}
	s.parts++
	switch {
	case s.order.plain:
		return s.event(plainPart{p.Text, p.Language, true, s.parts - 1})
	case s.order.format == diarized:
		part := segmentOf(p, s.parts-1)
		err := s.event(map[string]any{"type": "transcript.text.delta", "delta": delta, "segment_id": part.ID})
		return errors.Join(err, s.event(part))
	}
	return s.event(map[string]any{"type": "transcript.text.delta", "delta": delta})
}

// plainPart is an event of /v1/audio/transcriptions/stream.
type plainPart struct {
	Text     string `json:"text"`
	Language string `json:"language"`
	Final    bool   `json:"is_final"`
	Index    int    `json:"chunk_index"`
}

func (s *textStream) done(use usage) {
	if s.order.plain {
		_ = s.event(map[string]bool{"done": true}) // the client may have gone
		return
	}
	_ = s.event(map[string]any{"type": "transcript.text.done", "text": s.text, "usage": use}) // as above
}

// fail ends a stream that has begun; false if it has not.
func (s *textStream) fail(e *Error) bool {
	switch {
	case !s.begun.Load():
		return false
	case s.order.plain:
		_ = s.event(plainError{"SSE_STREAM_ERROR", e.Message, e.Status}) // the client may have gone
		return true
	}
	_ = s.event(map[string]any{"type": "error", "error": e}) // the client may have gone
	return true
}

// usage is what was read and written.
type usage struct {
	Type    string       `json:"type"`
	Seconds *float64     `json:"seconds,omitempty"`
	Input   *int         `json:"input_tokens,omitempty"`
	Output  *int         `json:"output_tokens,omitempty"`
	Total   *int         `json:"total_tokens,omitempty"`
	Detail  *inputTokens `json:"input_token_details,omitempty"`
}

type inputTokens struct {
	Audio int `json:"audio_tokens"`
	Text  int `json:"text_tokens"`
}

func usageOf(parts []inference.Transcript, sound time.Duration) usage {
	var audio, tokens int
	for _, p := range parts {
		audio, tokens = audio+p.Audio, tokens+p.Tokens
	}
	return usageFor(audio, tokens, sound)
}

// usageFor is in tokens where they are known, else in seconds.
func usageFor(audio, tokens int, sound time.Duration) usage {
	if audio == 0 {
		return usage{Type: "duration", Seconds: new(math.Ceil(sound.Seconds()))}
	}
	return usage{
		Type: "tokens", Input: new(audio), Output: new(tokens), Total: new(audio + tokens), Detail: &inputTokens{Audio: audio},
	}
}

// Transcription is the answer of POST /v1/audio/transcriptions as json; verbose_json has more.
type Transcription struct {
	Text      string     `json:"text"`
	Languages []language `json:"languages,omitempty"`
	Usage     usage      `json:"usage"`
}

// language is a language that was heard.
type language struct {
	Code string `json:"code"`
}

// languagesOf returns the languages of parts, in the order of their first words.
func languagesOf(parts ...inference.Transcript) (out []language) {
	for _, p := range parts {
		if l := (language{p.Language}); p.Text != "" && p.Language != "" && !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	return out
}

// diarized is the response_format with speakers. Here everybody is one.
const diarized = "diarized_json"

// diarization is an answer in that form.
type diarization struct {
	Task     string    `json:"task"`
	Duration float64   `json:"duration"`
	Text     string    `json:"text"`
	Segments []segment `json:"segments"`
	Usage    usage     `json:"usage"`
}

// segment is what a speaker said without a pause. It is an event too.
type segment struct {
	Type    string  `json:"type"`
	ID      string  `json:"id"`
	Start   float64 `json:"start"`
	End     float64 `json:"end"`
	Text    string  `json:"text"`
	Speaker string  `json:"speaker"`
}

func segmentOf(p inference.Transcript, n int) segment {
	return segment{"transcript.text.segment", "seg_" + strconv.Itoa(n), seconds(p.Start), seconds(p.End), p.Text, "A"}
}

func diarizationOf(parts []inference.Transcript, sound time.Duration) diarization {
	d := diarization{
		Task: "transcribe", Duration: seconds(sound), Text: whole(parts), Segments: []segment{}, Usage: usageOf(parts, sound),
	}
	for _, p := range parts {
		if p.Text != "" {
			d.Segments = append(d.Segments, segmentOf(p, len(d.Segments)))
		}
	}
	return d
}

// verbose is an answer as verbose_json.
type verbose struct {
	Task     string           `json:"task"`
	Language string           `json:"language"`
	Duration float64          `json:"duration"`
	Text     string           `json:"text"`
	Words    []verboseWord    `json:"words,omitempty"`
	Segments []verboseSegment `json:"segments,omitzero"`
	Usage    usage            `json:"usage"`
}

type verboseWord struct {
	Word  string  `json:"word"`
	Start float64 `json:"start"`
	End   float64 `json:"end"`
}

// verboseSegment has all fields that typed clients require. Those of the draws are not known here.
type verboseSegment struct {
	ID          int     `json:"id"`
	Seek        int     `json:"seek"`
	Start       float64 `json:"start"`
	End         float64 `json:"end"`
	Text        string  `json:"text"`
	Tokens      []int   `json:"tokens"`
	Temperature float64 `json:"temperature"`
	AvgLogprob  float64 `json:"avg_logprob"`
	Compression float64 `json:"compression_ratio"`
	NoSpeech    float64 `json:"no_speech_prob"`
}

// whole is the text of all parts.
func whole(parts []inference.Transcript) string {
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = p.Text
	}
	return inference.JoinTranscripts(texts...)
}

// written returns the parts in the form of the order, with its content type.
func written(o order, parts []inference.Transcript, sound time.Duration) (kind string, body []byte) {
	switch o.format {
	case "text":
		return "text/plain; charset=utf-8", []byte(whole(parts) + "\n")
	case "srt":
		return "application/x-subrip; charset=utf-8", []byte(srt(parts))
	case "vtt":
		return "text/vtt; charset=utf-8", []byte(vtt(parts))
	case "verbose_json":
		body, _ = json.Marshal(verboseOf(o, parts, sound)) // strings and finite numbers always marshal
	case diarized:
		body, _ = json.Marshal(diarizationOf(parts, sound)) // as above
	default:
		body, _ = json.Marshal(Transcription{whole(parts), languagesOf(parts...), usageOf(parts, sound)}) // as above
	}
	return "application/json; charset=utf-8", body
}

// File transcribes a file by the fields of POST /v1/audio/transcriptions, and returns the body of the answer. Run must be running.
// progress receives how much of the sound was heard.
func (t *Transcriber) File(ctx context.Context, file *os.File, fields map[string][]string, progress func(heard, all time.Duration),
) ([]byte, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	f := &form{fields: fields, file: file, size: info.Size()}
	o, err := t.orderOf(f)
	if err != nil {
		return nil, err
	}
	defer t.hold()()
	sound, err := f.sound(ctx, t.opts.Decode, t.opts.Config.MaxDuration)
	if err != nil {
		return nil, err
	}
	all := length(len(sound))
	progress(0, all)
	parts, err := t.hear(ctx, sound, o, func(p inference.Transcript) error {
		progress(min(p.End, all), all)
		return nil
	})
	if err != nil {
		return nil, err
	}
	progress(all, all)
	_, body := written(o, parts, all)
	return body, nil
}

// write answers in the form of the order.
func write(w http.ResponseWriter, o order, parts []inference.Transcript, sound time.Duration) {
	kind, body := written(o, parts, sound)
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(body) // a failed write means that the client has gone
}

// seconds rounds a time for JSON.
func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1000) / 1000 }

func verboseOf(o order, parts []inference.Transcript, sound time.Duration) verbose {
	v := verbose{Task: "transcribe", Duration: seconds(sound), Text: whole(parts), Usage: usageOf(parts, sound)}
	if o.translate != "" {
		v.Task = "translate"
	}
	tag := o.hearing.Language
	for _, p := range parts {
		tag = cmp.Or(tag, p.Language)
	}
	v.Language = inference.LanguageName(tag)
	if o.segments {
		v.Segments = []verboseSegment{}
	}
	for _, p := range parts {
		if o.words {
			for _, w := range p.Words {
				v.Words = append(v.Words, verboseWord{w.Text, seconds(w.Start), seconds(w.End)})
			}
		}
		if o.segments && p.Text != "" {
			v.Segments = append(v.Segments, verboseSegment{
				ID: len(v.Segments), Seek: int(p.Start / (10 * time.Millisecond)), Start: seconds(p.Start), End: seconds(p.End), Text: p.Text,
				Tokens: []int{}, Temperature: o.hearing.Temperature, Compression: compression(p.Text),
			})
		}
	}
	return v
}

// compression is how much shorter a text gets by zlib, which shows repetitions.
func compression(text string) float64 {
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	_, _ = z.Write([]byte(text)) // a buffer takes all
	_ = z.Close()                // as above
	return math.Round(float64(len(text))/float64(b.Len())*1000) / 1000
}
