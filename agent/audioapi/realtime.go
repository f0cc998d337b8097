package audioapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"touchline/inference"
	"touchline/inference/live"
	"touchline/inference/vad"
)

// realtimeRate is the default rate of pcm16 in a realtime session, in Hz.
const realtimeRate = 24000

// soundFormat is audio.input.format of a session.
type soundFormat struct {
	Type string `json:"type"`
	Rate int    `json:"rate,omitempty"`
}

// sessionInput is audio.input of a session. A nil pointer or nil message changes nothing. Its noise_reduction is ignored.
type sessionInput struct {
	Format    *soundFormat    `json:"format"`
	Listening json.RawMessage `json:"transcription"`
	Turns     json.RawMessage `json:"turn_detection"`
}

// sessionChange is the session in session.update and, in an older form, in transcription_session.update.
type sessionChange struct {
	Type  string `json:"type"`
	Audio struct {
		Input sessionInput `json:"input"`
	} `json:"audio"`

	OldFormat    string          `json:"input_audio_format"`
	OldListening json.RawMessage `json:"input_audio_transcription"`
	sessionInput                 // the older form has turn_detection at this level
}

// realtimeSettings are the settings of a client.
type realtimeSettings struct {
	format  soundFormat
	listens listening
	hearing inference.Hearing
	turns   *turns // nil without turn detection
	asked   bool   // the client has set turns
}

// realtime is a session of /v1/realtime.
type realtime struct {
	*socket
	ctx  context.Context //nolint:containedctx // of the request
	id   string
	next atomic.Int64

	set realtimeSettings // of the reading goroutine

	mu     sync.Mutex
	old    bool
	manual bool
	item   string            // of the last utterance that was committed
	items  map[int]*realItem // by utterance
}

// realItem is an utterance whose final text is not sent yet.
type realItem struct {
	id, last, sent string
	manual, ended  bool
}

// ServeRealtime answers GET /v1/realtime: transcription sessions of OpenAI's realtime API.
func (t *Transcriber) ServeRealtime(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	model := cmp.Or(q.Get("model"), "default")
	if v := q.Get("intent"); v != "" && v != "transcription" {
		bad("intent", "only transcription is here, got %.40q", v).Write(w)
		return
	}
	if e, ok := errors.AsType[*Error](t.model(model)); ok {
		e.Write(w)
		return
	}
	d, err := t.detector(true)
	if err != nil {
		problem(err).Write(w)
		return
	}
	s, r := t.open(w, r, "realtime")
	if s == nil {
		_ = d.Close() // it was not used
		return
	}
	defer s.seat.Leave()
	s.in, _ = newIntake(pcm16, realtimeRate) // a usual rate
	v := &realtime{
		socket: s, ctx: r.Context(), id: "sess_" + rand.Text(), items: map[int]*realItem{}, set: realtimeSettings{
			listens: listening{Model: model}, format: soundFormat{"audio/pcm", realtimeRate}, turns: usualTurns(),
		},
	}
	v.event("session.created", map[string]any{"session": v.describe()})
	s.serve(r, live.Config{Detector: d, Speech: speechConfig()}, v.heard, v.message)
}

func usualTurns() *turns {
	return &turns{Type: "server_vad", Threshold: new(0.5), Prefix: new(300), Silence: new(500)}
}

// committing reports whether clients of a model commit their turns themselves without saying so, as OpenAI detects no turns for it.
func committing(model string) bool {
	return strings.HasPrefix(model, "gpt-realtime-whisper") || strings.HasPrefix(model, "gpt-live-transcribe")
}

// event sends an event with its fields.
func (v *realtime) event(kind string, fields map[string]any) {
	fields["type"], fields["event_id"] = kind, "event_"+v.id[5:17]+strconv.FormatInt(v.next.Add(1), 10)
	v.send(fields)
}

// describe is the session as the client sees it.
func (v *realtime) describe() map[string]any {
	v.mu.Lock()
	old := v.old
	v.mu.Unlock()
	how := v.set.listens
	if old {
		names := map[string]string{"audio/pcm": pcm16, "audio/pcmu": ulaw, "audio/pcma": alaw}
		return map[string]any{
			"id": v.id, "object": "realtime.transcription_session", "input_audio_format": names[v.set.format.Type],
			"input_audio_transcription": how, "turn_detection": v.set.turns, "input_audio_noise_reduction": nil,
		}
	}
	return map[string]any{
		"id": v.id, "object": "realtime.transcription_session", "type": "transcription", "include": nil,
		"audio": map[string]any{"input": map[string]any{
			"format": v.set.format, "transcription": how, "noise_reduction": nil, "turn_detection": v.set.turns,
		}},
	}
}

// complain sends an error event about a client's event.
func (v *realtime) complain(err error, id string) {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = problem(err)
	}
	v.event("error", map[string]any{"error": map[string]any{
		"type": cmp.Or(e.Type, "invalid_request_error"), "code": e.Code, "message": e.Message, "param": nilOr(e.Param), "event_id": nilOr(id),
	}})
}

func nilOr(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// message handles an event of the client.
func (v *realtime) message(_ int, body []byte) error {
	var m struct {
		Type    string          `json:"type"`
		ID      string          `json:"event_id"`
		Audio   string          `json:"audio"`
		Session json.RawMessage `json:"session"`
	}
	err := json.Unmarshal(body, &m)
	if err != nil || m.Type != "input_audio_buffer.append" {
		if err := v.pace(v.ctx, eventTime); err != nil {
			return err
		}
	}
	if err != nil {
		v.complain(&Error{Status: http.StatusBadRequest, Code: "invalid_json", Message: "read the event: " + err.Error()}, "")
		return nil //nolint:nilerr // the client got the error
	}
	switch m.Type {
	case "input_audio_buffer.append":
		var b []byte
		if b, err = base64.StdEncoding.DecodeString(m.Audio); err == nil {
			return v.hear(v.ctx, b)
		}
		err = bad("audio", "expected base64: %v", err)
	case "input_audio_buffer.commit":
		var open bool
		if open, err = v.session.Flush(); err == nil && !open {
			err = &Error{
				Status: http.StatusBadRequest, Code: "input_audio_buffer_commit_empty", Message: "there is no sound to commit",
			}
		}
	case "input_audio_buffer.clear":
		v.session.Clear()
		v.event("input_audio_buffer.cleared", map[string]any{})
	case "session.update", "transcription_session.update":
		old := m.Type != "session.update"
		if err = v.update(m.Session, old); err == nil {
			v.event(strings.TrimSuffix(m.Type, ".update")+".updated", map[string]any{"session": v.describe()})
		}
	default:
		err = bad("type", "transcription sessions have no event %.60q", m.Type)
	}
	if errors.Is(err, live.ErrClosed) {
		return err
	}
	if err != nil {
		v.complain(err, m.ID)
	}
	return nil
}

// update applies all changes to the session, or none. A request for logprobs, which do not exist here, is an error after the others.
func (v *realtime) update(raw json.RawMessage, old bool) error {
	var c struct {
		Include []string `json:"include"`
	}
	err := v.apply(raw, old)
	if err == nil && json.Unmarshal(raw, &c) == nil && len(c.Include) > 0 {
		err = bad("session.include", "there are no logprobs here; leave it out")
	}
	return err
}

// apply applies the changes.
func (v *realtime) apply(raw json.RawMessage, old bool) error {
	var c sessionChange
	if err := json.Unmarshal(raw, &c); err != nil {
		return bad("session", "%v", err)
	}
	in := c.Audio.Input
	old = old || c.OldFormat != "" || len(c.OldListening)+len(c.Turns) > 0 // also in session.update, before the present form
	if old {
		in = sessionInput{Listening: c.OldListening, Turns: c.Turns}
		if c.OldFormat != "" {
			names := map[string]string{pcm16: "audio/pcm", ulaw: "audio/pcmu", alaw: "audio/pcma"}
			in.Format = &soundFormat{Type: cmp.Or(names[c.OldFormat], c.OldFormat)}
		}
	} else if c.Type != "" && c.Type != "transcription" {
		return bad("session.type", "only transcription is here, got %.40q", c.Type)
	}
	next := v.set
	intake, err := next.reformat(in.Format)
	if err == nil {
		err = next.relisten(v.t, in.Listening)
	}
	if err != nil {
		return err
	}
	if len(in.Turns) == 0 && !next.asked && next.turns != nil && committing(next.listens.Model) {
		in.Turns = json.RawMessage("null")
	}
	detect, how, err := next.detect(in.Turns)
	if err != nil {
		return err
	}
	v.set = next
	if intake != nil {
		v.in = intake
	}
	v.session.Set(next.hearing)
	v.mu.Lock()
	v.old = old
	v.mu.Unlock()
	if !detect {
		return nil
	}
	d, err := v.t.detector(next.turns != nil)
	if err == nil {
		err = v.session.Detect(d, how)
	}
	v.mu.Lock()
	v.manual = next.turns == nil
	v.mu.Unlock()
	return err
}

// reformat changes the format of the sound; a nil intake keeps it.
func (s *realtimeSettings) reformat(f *soundFormat) (*intake, error) {
	if f == nil {
		return nil, nil //nolint:nilnil // it does not change
	}
	kind, rate := "", 8000
	switch f.Type = cmp.Or(f.Type, s.format.Type); f.Type {
	case "audio/pcm":
		kind, rate = pcm16, cmp.Or(f.Rate, realtimeRate)
	case "audio/pcmu":
		kind = ulaw
	case "audio/pcma":
		kind = alaw
	}
	in, err := newIntake(kind, rate)
	if kind == "" || err != nil {
		return nil, bad("session.audio.input.format", "expected audio/pcm (with a usual rate), audio/pcmu or audio/pcma, got %.40q %d",
			f.Type, f.Rate)
	}
	s.format = soundFormat{f.Type, rate}
	return in, nil
}

// relisten changes how utterances are transcribed, in the fields that are given.
func (s *realtimeSettings) relisten(t *Transcriber, raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	next := s.listens
	next.Languages, next.Keywords = slices.Clone(next.Languages), slices.Clone(next.Keywords)
	if err := json.Unmarshal(raw, &next); err != nil {
		return bad("session.audio.input.transcription", "%v", err)
	}
	next.Model = cmp.Or(next.Model, s.listens.Model)
	s.listens = next
	err := t.model(next.Model)
	if err == nil {
		s.hearing, err = t.hearingOf(s.listens)
	}
	return err
}

// detect changes the detection of turns, in the fields that are given.
func (s *realtimeSettings) detect(raw json.RawMessage) (changed bool, how vad.Config, err error) {
	if len(raw) == 0 {
		return false, how, nil
	}
	s.asked = true
	if string(raw) == "null" {
		s.turns = nil
		return true, how, nil
	}
	next := usualTurns()
	if was, err := json.Marshal(s.turns); err == nil && s.turns != nil {
		_ = json.Unmarshal(was, next) // as it was written
	}
	s.turns = next
	if err := json.Unmarshal(raw, next); err != nil {
		return false, how, bad("session.audio.input.turn_detection", "%v", err)
	}
	how, err = s.turns.config("session.audio.input.turn_detection")
	return true, how, err
}

// heard forwards an event of the live session.
func (v *realtime) heard(e live.Event) {
	v.mu.Lock()
	it := v.items[e.Utterance]
	if it == nil {
		it = &realItem{id: "item_" + v.id[5:13] + strconv.Itoa(e.Utterance), manual: v.manual}
		v.items[e.Utterance] = it
	}
	before, old := v.item, v.old
	switch e.Kind {
	case live.StartOfSpeech: // earlier utterances have ended, or were cleared and have no final text
		maps.DeleteFunc(v.items, func(n int, other *realItem) bool { return n < e.Utterance && !other.ended })
	case live.EndOfSpeech:
		v.item, it.ended = it.id, true
	case live.Final, live.Failed:
		delete(v.items, e.Utterance)
	case live.Interim:
	}
	v.mu.Unlock()
	const transcription = "conversation.item.input_audio_transcription."
	switch e.Kind {
	case live.StartOfSpeech:
		if !it.manual {
			v.event("input_audio_buffer.speech_started", map[string]any{"audio_start_ms": e.Begin.Milliseconds(), "item_id": it.id})
		}
	case live.Interim:
		v.delta(it, agreed(it.last, e.Text))
		it.last = e.Text
	case live.EndOfSpeech:
		v.committed(it, e, before, old)
	case live.Final:
		v.delta(it, e.Text)
		v.event(transcription+"completed", map[string]any{
			"item_id": it.id, "content_index": 0, "transcript": e.Text, "usage": usageFor(e.Audio, e.Tokens, e.End-e.Begin),
			"languages": languagesOf(inference.Transcript{Text: e.Text, Language: e.Language}),
		})
	case live.Failed:
		p := problem(e.Err)
		v.event(transcription+"failed", map[string]any{"item_id": it.id, "content_index": 0, "error": map[string]any{
			"type": p.Type, "code": p.Code, "message": p.Message, "param": nil,
		}})
	}
}

// committed sends the events of an utterance whose sound is complete.
func (v *realtime) committed(it *realItem, e live.Event, before string, old bool) {
	if !it.manual {
		v.event("input_audio_buffer.speech_stopped", map[string]any{"audio_end_ms": e.End.Milliseconds(), "item_id": it.id})
	}
	v.event("input_audio_buffer.committed", map[string]any{"item_id": it.id, "previous_item_id": nilOr(before)})
	kind := "conversation.item.added"
	if old {
		kind = "conversation.item.created"
	}
	v.event(kind, map[string]any{"previous_item_id": nilOr(before), "item": map[string]any{
		"id": it.id, "object": "realtime.item", "type": "message", "role": "user", "status": "completed",
		"content": []any{map[string]any{"type": "input_audio", "transcript": nil}},
	}})
}

// delta sends the part of a text beyond the part sent before. It sends nothing if the text before has changed: the last event has it all.
func (v *realtime) delta(it *realItem, text string) {
	if !strings.HasPrefix(text, it.sent) || text == it.sent {
		return
	}
	v.event("conversation.item.input_audio_transcription.delta", map[string]any{
		"item_id": it.id, "content_index": 0, "delta": text[len(it.sent):],
	})
	it.sent = text
}

// agreed returns the common start of two texts, up to the end of a word.
func agreed(a, b string) string {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	ends := func(s string) bool { return n == len(s) || s[n] == ' ' }
	if !ends(a) || !ends(b) {
		n = max(0, strings.LastIndexByte(b[:n], ' '))
	}
	return b[:n]
}
