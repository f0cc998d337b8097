// Package audioapi is speech and transcription as a service: OpenAI's API for texts to speak, recordings and live sound.
//
// It owns the requests, the formats of sound and text, and their streams. It does not speak, recognize or check access: an
// inference.Speaker speaks, an inference.Recognizer transcribes, and package console serves both behind its access checks.
package audioapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"touchline/inference"
	"touchline/internal/limit"
	"touchline/internal/ticks"
)

const (
	// maxInput is the longest text, in characters, as at OpenAI.
	maxInput = 4096
	// maxBody bounds the body of a request, in bytes.
	maxBody = 64 << 10
	// maxTime bounds one answer, and writeTime the writing of one piece of it.
	maxTime   = 5 * time.Minute
	writeTime = 20 * time.Second
	// soundTime bounds the wait for the first sound, which is long only while live rooms use the voice fully.
	soundTime = 10 * time.Second
	// usualSlots is the default of Options.Slots, retryAfter the advice to a refused client in seconds.
	usualSlots = 2
	retryAfter = 2
)

// Voice is a voice to choose.
type Voice struct {
	ID       string `json:"id"`
	Language string `json:"language,omitempty"` // BCP 47; "" for several
}

// Options of a Handler.
type Options struct {
	// Speaker speaks. Comments of rooms that use the same program go first.
	Speaker inference.Speaker
	// Voice is the configured voice, as in inference.Prompt; "" is chosen by the language.
	Voice string
	// Voices lists the voices. Check returns an error for a voice that cannot speak a language.
	Voices func() []Voice
	Check  func(id, language string) error
	// Language of a text without one.
	Language string
	// Codec is the path of touchline-codec; "" searches for it.
	Codec string
	// Paced reports whether a voice has several speeds; nil for none that has.
	Paced func(id string) bool
	// Lenient ignores unknown voices and instructions, which the header Touchline-Ignored then names. Otherwise they are refused.
	Lenient bool
	// Slots is how many texts are spoken at once; 0 is 2.
	Slots int
	Log   zerolog.Logger
}

// Handler answers requests. Safe for concurrent use.
type Handler struct {
	opts      Options
	slots     *limit.Seats
	soundTime time.Duration
	log       zerolog.Logger
}

// New returns a Handler.
func New(o Options) *Handler {
	o.Slots = cmp.Or(o.Slots, usualSlots)
	half := max(1, int64(o.Slots)/2)
	return &Handler{
		opts: o, slots: limit.NewSeats("voices", limit.Bounds{All: int64(o.Slots), Token: half, Network: half}), soundTime: soundTime,
		log: o.Log.With().Str("component", "audioapi").Logger(),
	}
}

// Metrics returns the number of texts that are being spoken, and of refused ones.
func (h *Handler) Metrics() prometheus.Collector { return h.slots }

// Error is an error in OpenAI's form.
type Error struct {
	Status  int    `json:"-"`
	Message string `json:"message"`
	Type    string `json:"type"`
	Param   string `json:"param,omitempty"`
	Code    string `json:"code,omitempty"`
}

// Error is the message.
func (e *Error) Error() string { return e.Message }

// Write answers with the error.
func (e *Error) Write(w http.ResponseWriter) {
	if e.Type == "" {
		e.Type = "invalid_request_error"
		if e.Status >= http.StatusInternalServerError {
			e.Type = "server_error"
		}
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(e.Status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": e}) // a failed write means that the client has disconnected
}

// bad refuses a parameter.
func bad(param, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Param: param, Code: "invalid_value", Message: param + ": " + fmt.Sprintf(format, args...)}
}

// SpeechBody is the body of POST /v1/audio/speech.
type SpeechBody struct {
	Model  string    `json:"model"`
	Input  string    `json:"input"`
	Voice  voiceName `json:"voice"`
	Format string    `json:"response_format,omitempty" enum:"mp3,opus,aac,wav,pcm"`
	Speed  *float64  `json:"speed,omitempty"`
	Stream string    `json:"stream_format,omitempty" enum:"audio,sse"`
	// Instructions have no effect on these voices.
	Instructions string `json:"instructions,omitempty"`
	// Language of the input, BCP 47; not of OpenAI's API.
	Language string `json:"language,omitempty"`
}

// voiceName is a name, or {"id": "name"}.
type voiceName string

// UnmarshalJSON implements json.Unmarshaler.
func (v *voiceName) UnmarshalJSON(b []byte) error {
	var named struct {
		ID string `json:"id"`
	}
	if len(b) > 0 && b[0] == '{' {
		err := json.Unmarshal(b, &named)
		*v = voiceName(named.ID)
		return err
	}
	return json.Unmarshal(b, (*string)(v))
}

// builtIn are OpenAI's voices, which clients name by default; each is the configured one.
var builtIn = []string{ //nolint:gochecknoglobals // a table
	"alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse", "default",
}

// parse reads a body. Fields that other servers have are ignored.
func parse(body []byte) (SpeechBody, error) {
	var r SpeechBody
	if !utf8.Valid(body) { // older PowerShell sends Latin-1
		return r, &Error{Status: http.StatusBadRequest, Code: "invalid_json", Message: "read the body: it is not UTF-8"}
	}
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(body, []byte("\uFEFF"))))
	if err := d.Decode(&r); err != nil {
		return r, &Error{Status: http.StatusBadRequest, Code: "invalid_json", Message: "read the body: " + err.Error()}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return r, &Error{Status: http.StatusBadRequest, Code: "invalid_json", Message: "expected one JSON object, got more after it"}
	}
	r.Format, r.Stream = cmp.Or(strings.ToLower(r.Format), "mp3"), cmp.Or(strings.ToLower(r.Stream), "audio")
	if tag, ok := tagOf(r.Language); ok {
		r.Language = tag
	}
	switch n := utf8.RuneCountInString(r.Input); {
	case n > maxInput:
		return r, bad("input", "at most %d characters, got %d; send it in parts", maxInput, n)
	case inference.ClassifyAnswer(r.Input, true) != inference.HasWords:
		return r, bad("input", "there is no word to say")
	case r.Format == "flac":
		return r, bad("response_format", "flac is not made here; choose wav, which is lossless too")
	case formats()[r.Format] == nil:
		return r, bad("response_format", "expected mp3, opus, aac, wav or pcm, got %.40q", r.Format)
	case r.Speed != nil && !(*r.Speed >= 0.25 && *r.Speed <= 4):
		return r, bad("speed", "expected 0.25 to 4, got %v", *r.Speed)
	case r.Stream != "audio" && r.Stream != "sse":
		return r, bad("stream_format", "expected audio or sse, got %.40q", r.Stream)
	}
	if slices.Contains(builtIn, strings.ToLower(string(r.Voice))) {
		r.Voice = ""
	}
	return r, nil
}

// ServeSpeech answers POST /v1/audio/speech.
func (h *Handler) ServeSpeech(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		(&Error{Status: http.StatusRequestEntityTooLarge, Code: "body_too_large", Message: fmt.Sprintf(
			"the body was not read; it may have at most %d bytes", maxBody)}).Write(w)
		return
	}
	req, err := parse(body)
	var ignored []string
	if err == nil {
		ignored, err = h.checkVoice(&req)
	}
	if err == nil {
		if len(ignored) > 0 {
			w.Header().Set("Touchline-Ignored", strings.Join(ignored, ", "))
		}
		err = h.serve(w, r, req)
	}
	if e, ok := errors.AsType[*Error](err); ok {
		e.Write(w)
	}
}

// checkVoice checks the voice, and sets the language: if the voice has no sounds for the text's letters, it is one that the letters
// belong to. It returns the fields that are ignored.
func (h *Handler) checkVoice(req *SpeechBody) (ignored []string, err error) {
	if strings.TrimSpace(req.Instructions) != "" {
		if !h.opts.Lenient {
			return nil, bad("instructions", "these voices take none; leave it out")
		}
		ignored = append(ignored, "instructions")
	}
	if speed := cmp.Or(req.Speed, new(1.0)); *speed != 1 && (h.opts.Paced == nil || !h.opts.Paced(string(req.Voice))) {
		return nil, bad("speed", "this voice has one speed; leave it out or send 1, got %v", *speed)
	}
	given := req.Language
	voices := h.opts.Voices()
	id := string(req.Voice)
	for _, v := range voices {
		if v.ID == id {
			req.Language = cmp.Or(given, v.Language)
		}
	}
	req.Language = cmp.Or(req.Language, h.opts.Language)
	err = h.opts.Check(id, req.Language)
	if err != nil && h.opts.Lenient && id != "" {
		ignored = append(ignored, "voice")
		req.Voice, id, req.Language = "", "", cmp.Or(given, h.opts.Language)
		err = h.opts.Check(id, req.Language)
	}
	if err != nil {
		return nil, bad("voice", "%v; GET /v1/audio/voices lists them", err)
	}
	if language := spoken(req.Input, req.Language); language != req.Language {
		if err := h.speakAs(req, voices, language); err != nil {
			return nil, err
		}
	}
	return ignored, nil
}

// speakAs changes the language of a request, and its voice if that has one other language.
func (h *Handler) speakAs(req *SpeechBody, voices []Voice, language string) error {
	req.Language = language
	id := cmp.Or(string(req.Voice), h.opts.Voice)
	chosen := id == "" || id == inference.VoiceAuto // by the language
	speaks := func(v Voice) bool { return h.opts.Check(v.ID, language) == nil }
	own := slices.DeleteFunc(slices.Clone(voices), func(v Voice) bool { return v.ID != id && !strings.HasPrefix(v.ID, id+":") })
	if !chosen && (len(own) == 0 || slices.ContainsFunc(own, speaks)) {
		return nil // a server or a program with such a voice
	}
	i := slices.IndexFunc(voices, speaks)
	if i < 0 {
		return &Error{
			Status: http.StatusUnprocessableEntity, Param: "input", Code: "no_voice",
			Message: fmt.Sprintf("input: no voice has sounds for its letters (language %s); GET /v1/audio/voices lists the voices", language),
		}
	}
	if !chosen {
		req.Voice = voiceName(voices[i].ID)
	}
	return nil
}

// serve speaks a checked request.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, req SpeechBody) error {
	ctx, seat, err := h.slots.Take(r.Context(), "", 1)
	if err != nil {
		return busy(w, limit.Why(err, fmt.Sprintf("%d texts are being spoken", h.opts.Slots)))
	}
	defer seat.Leave()
	ctx, cancel := context.WithTimeoutCause(ctx, maxTime, fmt.Errorf("the text was not spoken within %v", maxTime))
	defer cancel()
	began := time.Now()
	if req.Speed != nil {
		ctx = inference.AtSpeed(ctx, *req.Speed)
	}
	out := &stream{w: w, control: http.NewResponseController(w), kind: formats()[req.Format].kind, sse: req.Stream == "sse"}
	length, err := h.speak(ctx, req, out)
	over := ended(context.Cause(r.Context()))
	full, pushedOut := errors.AsType[*limit.FullError](err)
	switch {
	case err == nil:
		out.end()
		h.log.Debug().Str("format", req.Format).Int64("took_ms", time.Since(began).Milliseconds()).
			Int64("length_ms", length.Milliseconds()).Msg("text spoken")
		return nil
	case r.Context().Err() != nil && over == nil:
		return nil // the client has disconnected
	case over == nil && !pushedOut:
		h.log.Warn().Err(err).Str("format", req.Format).Msg("text not spoken")
	}
	switch {
	case out.fail(err):
		return nil
	case over != nil:
		return over
	case pushedOut:
		return busy(w, full.Error())
	case errors.Is(err, inference.ErrOverloaded):
		return busy(w, "live rooms need the voice")
	}
	return &Error{Status: http.StatusServiceUnavailable, Code: "voice_failed", Message: err.Error()}
}

// ended returns the answer to a request that ended with its link; nil if err, the cause of its context, is none of these.
func ended(err error) *Error {
	over, ok := errors.AsType[interface {
		error
		GetStatus() int
	}](err)
	if !ok {
		return nil
	}
	return &Error{Status: over.GetStatus(), Code: "link_ended", Message: over.Error()}
}

// busy returns beyond for a client that may try again soon.
func busy(w http.ResponseWriter, why string) *Error { return later(w, why, retryAfter) }

// later returns beyond for a client that may try again in some seconds.
func later(w http.ResponseWriter, why string, seconds int) *Error {
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	return beyond(fmt.Sprintf("%s; try again in %d s", why, seconds))
}

// beyond is the error of a request beyond a limit.
func beyond(text string) *Error {
	return &Error{Status: http.StatusTooManyRequests, Type: "rate_limit_error", Code: "rate_limit_exceeded", Message: text}
}

// speak encodes the speech of a request into out, and returns its length.
func (h *Handler) speak(ctx context.Context, req SpeechBody, out *stream) (length time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	enc, err := formats()[req.Format].open(ctx, h.opts.Codec, out)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			cancel(err)
			if p, ok := enc.(*piped); ok {
				_ = p.Close() // its process ends with ctx
			}
		}
	}()
	silent := time.AfterFunc(h.soundTime, func() { cancel(fmt.Errorf("%w: no sound within %v", inference.ErrOverloaded, h.soundTime)) })
	defer silent.Stop()
	var at tuner[int16]
	for c, err := range h.opts.Speaker.Speak(ctx, req.Input, string(req.Voice), req.Language) {
		if err != nil {
			return length, cmp.Or(context.Cause(ctx), err)
		}
		if len(c.Audio) == 0 {
			continue
		}
		silent.Stop()
		length += ticks.Duration(int64(len(c.Audio)), int64(c.AudioRate))
		pcm, err := at.tune(c.Audio, c.AudioRate, enc.Rate())
		if err != nil {
			return length, cmp.Or(context.Cause(ctx), fmt.Errorf("convert the sound: %w", err))
		}
		if err := enc.Encode(pcm); err != nil {
			return length, cmp.Or(context.Cause(ctx), err)
		}
	}
	if length == 0 {
		return 0, errors.New("the voice made no sound")
	}
	if err := enc.Encode(at.end()); err != nil {
		return length, cmp.Or(context.Cause(ctx), err)
	}
	return length, enc.Close()
}

// speechModel is the name under which the voices are listed as a model; any name is accepted.
const speechModel = "tts-1"

// ServeModels answers GET /v1/models where only speech is served.
func (*Handler) ServeModels(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, ModelList{Object: "list", Data: []ModelItem{modelItem(speechModel)}})
}

// ServeModel answers GET /v1/models/ID.
func (*Handler) ServeModel(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, modelItem(r.PathValue("id")))
}

// ServeVoices answers GET /v1/audio/voices.
func (h *Handler) ServeVoices(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, VoiceList{append([]Voice{}, h.opts.Voices()...)})
}

// VoiceList is the answer of GET /v1/audio/voices.
type VoiceList struct {
	Voices []Voice `json:"voices"`
}
