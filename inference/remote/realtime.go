package remote

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"touchline/inference"
	"touchline/inference/internal/fault"
	"touchline/internal/resample"
)

const (
	// realtimeRate is the sample rate that every such server accepts, Hz.
	realtimeRate = 24000
	// realtimePiece is the sound of one message, in samples.
	realtimePiece = realtimeRate
	// openTime is for the opening of a session, sendTime for one message.
	openTime = 10 * time.Second
	sendTime = 10 * time.Second
	// maxItems bounds the texts of one utterance.
	maxItems = 1000
	// transcriptionEvent begins the names of events with texts.
	transcriptionEvent = "conversation.item.input_audio_transcription."
)

// realtimeURL returns the address of sessions at a server. OpenAI's own refuses a model in it, gateways need one.
func realtimeURL(server *url.URL, model string) string {
	u := *server
	u.Scheme = strings.Replace(u.Scheme, "http", "ws", 1)
	u.Path += "/realtime"
	q := url.Values{"intent": {"transcription"}}
	if u.Hostname() != "api.openai.com" {
		q.Set("model", model)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// spoken is an utterance with a session of its own at the server's /realtime. Sound is sent as it arrives; after a loss a new session
// gets all of it.
type spoken struct {
	utterance

	session *channel // nil before the first sound, and after a loss
	filter  *resample.Resampler[float32]
}

// Hear implements inference.Utterance. It does not wait for the text of the sound, which a later call returns.
func (u *spoken) Hear(ctx context.Context, sound []float32) (inference.Transcript, error) {
	u.sound = append(u.sound, sound...)
	ctx, cancel := u.until(ctx, openTime+sendTime)
	defer cancel()
	if err := u.send(ctx); err != nil {
		u.lose()
		if fatal(err) || ctx.Err() != nil {
			return inference.Transcript{}, cmp.Or(context.Cause(ctx), err)
		}
		if err = u.send(ctx); err != nil { // a new session, with all the sound
			u.lose()
			return inference.Transcript{}, cmp.Or(context.Cause(ctx), err)
		}
	}
	t, err := u.session.text()
	if fatal(err) {
		return inference.Transcript{}, err
	}
	if t.Text != "" {
		u.last = t
	}
	t = u.last
	t.Language = cmp.Or(t.Language, u.h.Language)
	t.End, t.Audio, t.Tokens = duration(len(u.sound)), 0, 0
	return t, nil
}

// Finish implements inference.Utterance.
func (u *spoken) Finish(ctx context.Context, sound []float32) (inference.Transcript, error) {
	if u.sound = append(u.sound, sound...); len(u.sound) == 0 {
		return inference.Transcript{Language: u.h.Language, Final: true}, nil
	}
	ctx, cancel := u.until(ctx, partTime+duration(len(u.sound)))
	defer cancel()
	began := u.r.now()
	for attempt := 0; ; attempt++ {
		t, err := u.finish(ctx)
		if err == nil {
			t.Language, t.End, t.Final = cmp.Or(t.Language, u.h.Language), duration(len(u.sound)), true
			u.r.report(fmt.Sprintf("%s on %s, %.1f s of live sound, its text %.2f s after it",
				u.r.model, u.r.server, t.End.Seconds(), u.r.now().Sub(began).Seconds()))
			return t, nil
		}
		u.lose()
		if !u.r.again(ctx, err, attempt) {
			err = cmp.Or(context.Cause(ctx), err)
			u.r.report(err.Error())
			return inference.Transcript{}, err
		}
	}
}

// until bounds a call by a time and by Close.
func (u *spoken) until(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(ctx, d, fmt.Errorf("%s: %w: no text within %v", u.r.server, ErrTimeout, d))
	stop := context.AfterFunc(u.open, cancel)
	return ctx, func() { stop(); cancel() }
}

// fatal reports whether another session would fail too.
func fatal(err error) bool {
	again, _ := retry(err, 0)
	return err != nil && !again
}

// lose closes the session after a failure.
func (u *spoken) lose() {
	if u.session != nil {
		u.session.close()
	}
	u.session, u.sent = nil, 0
}

// send sends the new sound. It opens the session if there is none.
func (u *spoken) send(ctx context.Context) error {
	if u.session == nil {
		s, err := u.r.openSession(ctx, u.open, u.h)
		if err != nil {
			return err
		}
		filter, err := resample.NewFilter(inference.RecognizerRate, realtimeRate)
		if err != nil {
			s.close()
			return err
		}
		u.session, u.filter = s, resample.New[float32](filter)
	}
	out := u.filter.Append(nil, u.sound[u.sent:])
	u.sent = len(u.sound)
	return u.session.append(ctx, out)
}

// finish sends the rest and waits for the text.
func (u *spoken) finish(ctx context.Context) (inference.Transcript, error) {
	if err := u.send(ctx); err != nil {
		return inference.Transcript{}, err
	}
	rest := u.filter.Flush(nil)
	if missing := minPart - len(u.sound); missing > 0 {
		rest = append(rest, make([]float32, missing*realtimeRate/inference.RecognizerRate)...)
	}
	if err := u.session.append(ctx, rest); err != nil {
		return inference.Transcript{}, err
	}
	return u.session.commit(ctx)
}

// channel is one session, a WebSocket.
type channel struct {
	server string
	long   *atomic.Uint64 // counts sessions that end by too much text
	conn   *websocket.Conn
	stop   func() bool
	ended  chan struct{} // closed at the end of read

	mu      sync.Mutex
	items   []*item // in the order of their commits, or of their first text
	asked   bool    // the end was requested
	done    bool    // the last item is committed
	err     error
	changed chan struct{}
}

// item is a part of the sound with one text.
type item struct {
	id, text, language string
	audio, tokens      int
	committed, ended   bool
}

// openSession opens a session until open ends; ctx bounds the opening alone.
func (r *Recognizer) openSession(ctx, open context.Context, h inference.Hearing) (*channel, error) {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	header := http.Header{}
	if r.key != "" {
		header.Set("Authorization", "Bearer "+r.key)
	}
	dialer := websocket.Dialer{HandshakeTimeout: openTime} // without a proxy, as newClient
	conn, res, err := dialer.DialContext(ctx, r.realtime, header)
	if err != nil {
		if res != nil && errors.Is(err, websocket.ErrBadHandshake) {
			defer res.Body.Close()
			return nil, fmt.Errorf("%s: %w: %w%s", r.server, ErrRefused, refusalOf(res, r.now()), r.hint(res.StatusCode))
		}
		return nil, fmt.Errorf("%s: %w: %w", r.server, ErrUnreachable, err)
	}
	_ = res.Body.Close() // has none
	conn.SetReadLimit(maxBody)
	s := &channel{server: r.server, long: &r.long, conn: conn, ended: make(chan struct{}), changed: make(chan struct{}, 1)}
	s.stop = context.AfterFunc(open, func() {
		// The result of the session is not needed any more.
		_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
		_ = conn.Close()
	})
	go s.read()
	transcription := map[string]string{"model": r.model}
	if h.Language != "" {
		transcription["language"] = inference.Primary(h.Language)
	}
	if h.Context != "" {
		transcription["prompt"] = strings.ToValidUTF8(h.Context, "\uFFFD")
	}
	err = s.write(ctx, map[string]any{"type": "session.update", "session": map[string]any{
		"type": "transcription", "audio": map[string]any{"input": map[string]any{
			"format": map[string]any{"type": "audio/pcm", "rate": realtimeRate}, "transcription": transcription, "turn_detection": nil,
		}},
	}})
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// close ends the session, and waits for read.
func (s *channel) close() {
	s.stop()
	_ = s.conn.Close()
	<-s.ended
}

// write sends an event.
func (s *channel) write(ctx context.Context, event map[string]any) error {
	s.mu.Lock()
	err := s.err
	s.mu.Unlock()
	if err != nil {
		return err
	}
	until := time.Now().Add(sendTime)
	if d, ok := ctx.Deadline(); ok && d.Before(until) {
		until = d
	}
	_ = s.conn.SetWriteDeadline(until) // of an open connection
	if err := s.conn.WriteJSON(event); err != nil {
		return s.failure(fmt.Errorf("%s: %w: %w", s.server, ErrCut, err))
	}
	return nil
}

// failure returns the server's reason if there is one, else err.
func (s *channel) failure(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil || errors.Is(s.err, ErrCut) {
		return err
	}
	return s.err
}

// append sends sound.
func (s *channel) append(ctx context.Context, sound []float32) error {
	for piece := range slices.Chunk(sound, realtimePiece) {
		b := make([]byte, 0, 2*len(piece))
		for _, v := range piece {
			b = binary.LittleEndian.AppendUint16(b, uint16(int16(max(-1, min(1, v))*32767))) // the same bits
		}
		event := map[string]any{"type": "input_audio_buffer.append", "audio": base64.StdEncoding.EncodeToString(b)}
		if err := s.write(ctx, event); err != nil {
			return err
		}
	}
	return nil
}

// commit ends the sound and waits for its text.
func (s *channel) commit(ctx context.Context) (inference.Transcript, error) {
	s.mu.Lock()
	s.asked = true
	s.mu.Unlock()
	if err := s.write(ctx, map[string]any{"type": "input_audio_buffer.commit"}); err != nil {
		return inference.Transcript{}, err
	}
	for {
		t, err := s.text()
		if err != nil || t.Final {
			return t, err
		}
		select {
		case <-s.changed:
		case <-ctx.Done():
			return t, ctx.Err()
		}
	}
}

// text returns the text of all items so far, final if the last one is complete.
func (s *channel) text() (t inference.Transcript, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Final = s.done
	var texts []string
	for _, it := range s.items {
		texts = append(texts, it.text)
		t.Language = cmp.Or(t.Language, it.language)
		t.Audio, t.Tokens = t.Audio+it.audio, t.Tokens+it.tokens
		t.Final = t.Final && it.ended
	}
	t.Text = inference.JoinTranscripts(texts...)
	if t.Final {
		return t, nil // a later failure does not matter
	}
	return t, s.err
}

// serverEvent is an event of the server, with the fields that are read.
type serverEvent struct {
	Type       string `json:"type"`
	Item       string `json:"item_id"`
	Delta      string `json:"delta"`
	Transcript string `json:"transcript"`
	Languages  []struct {
		Code string `json:"code"`
	} `json:"languages"`
	Usage struct {
		Output int `json:"output_tokens"`
		Input  struct {
			Audio int `json:"audio_tokens"`
		} `json:"input_token_details"`
	} `json:"usage"`
	Error *struct {
		Type    string `json:"type"`
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// read handles events until the connection ends.
func (s *channel) read() {
	defer close(s.ended)
	for {
		_, body, err := s.conn.ReadMessage()
		var e serverEvent
		if err == nil {
			if err = json.Unmarshal(body, &e); err != nil {
				err = fmt.Errorf("expected an event, got %q", fault.Shorten(string(body)))
			}
		}
		s.mu.Lock()
		if err != nil {
			s.err = fmt.Errorf("%s: %w: %w", s.server, ErrCut, err)
		} else {
			s.handleLocked(&e)
		}
		ended := s.err != nil
		s.mu.Unlock()
		select {
		case s.changed <- struct{}{}:
		default:
		}
		if ended {
			_ = s.conn.Close() // ends a write
			return
		}
	}
}

// handleLocked updates the items with an event.
func (s *channel) handleLocked(e *serverEvent) {
	switch e.Type {
	case "input_audio_buffer.committed":
		s.itemLocked(e.Item).committed = true
		s.done = s.asked
	case transcriptionEvent + "delta":
		s.itemLocked(e.Item).text += e.Delta
	case transcriptionEvent + "completed":
		it := s.itemLocked(e.Item)
		it.text, it.ended = strings.TrimSpace(e.Transcript), true
		it.audio, it.tokens = e.Usage.Input.Audio, e.Usage.Output
		if len(e.Languages) > 0 {
			it.language = inference.LanguageTag(e.Languages[0].Code)
		}
	case transcriptionEvent + "failed", "error":
		text, code := "no reason", http.StatusBadRequest
		if e.Error != nil {
			text = cmp.Or(fault.Shorten(e.Error.Message), e.Error.Code, e.Error.Type, text)
			switch e.Error.Type {
			case "server_error":
				code = http.StatusInternalServerError
			case "rate_limit_error":
				code = http.StatusTooManyRequests
			}
		}
		s.err = fmt.Errorf("%s: %w: %w", s.server, ErrRefused, &statusError{code: code, text: text})
	}
	size := 0
	for _, it := range s.items {
		size += len(it.id) + len(it.text)
	}
	if size > maxEvent {
		s.long.Add(1)
		s.err = fmt.Errorf("%s: %w: more than %d bytes of text", s.server, ErrCut, maxEvent)
	}
}

// itemLocked returns the item of an id.
func (s *channel) itemLocked(id string) *item {
	for _, it := range s.items {
		if it.id == id {
			return it
		}
	}
	if len(s.items) == maxItems {
		s.long.Add(1)
		s.err = fmt.Errorf("%s: %w: more than %d texts", s.server, ErrCut, maxItems)
		return &item{}
	}
	s.items = append(s.items, &item{id: id})
	return s.items[len(s.items)-1]
}
