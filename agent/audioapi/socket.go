package audioapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"touchline/inference"
	"touchline/inference/live"
	"touchline/inference/vad"
	"touchline/internal/limit"
	"touchline/internal/rescue"
	"touchline/internal/ticks"
)

const (
	// maxMessage bounds a message of a client: 16 s of 24 kHz in base64. Clients send 20 to 200 ms.
	maxMessage = 1 << 20
	// pingEvery is the time between two pings, idleTime the time after which a silent client is disconnected.
	pingEvery = 20 * time.Second
	idleTime  = 60 * time.Second
	// lastTime bounds the wait for a disconnected client's final texts; keepTime is how long they are kept for its return.
	lastTime  = 30 * time.Second
	keepTime  = 2 * time.Minute
	maxFinals = 256
	// maxOwnFinals is the number for one link, and maxRequestID the longest id, in bytes.
	maxOwnFinals = 64
	maxRequestID = 64
	// A message takes messageTime and byteTime a byte of a client's time, one that is no sound eventTime, and sound a soundPart of its own
	// length. A client that is more than paceBurst ahead is read more slowly. A detector hears 180 s a second on one core of an AMD EPYC: a
	// link with all its 16 places has less than one. Sockets that its client opens again and again begin without that advance: it has
	// burstsOpen at once, and then one in paceBurst.
	messageTime = time.Millisecond
	byteTime    = 10 * time.Nanosecond
	eventTime   = 100 * time.Millisecond
	soundPart   = 10
	paceBurst   = 16 * time.Second
	burstsOpen  = 16
)

// socket is a WebSocket of a client with its live session.
type socket struct {
	t       *Transcriber
	seat    *limit.Seat
	conn    *websocket.Conn
	session *live.Session
	in      *intake
	done    chan error // of the session
	paced   bool       // all but the operator's
	due     time.Time  // the end of what was read, see pace

	mu   sync.Mutex // of writes
	gone bool
}

// open upgrades a request and returns its socket, whose seat the caller leaves, with the request that ends if the socket has to; nil after
// a refusal, which was written.
func (t *Transcriber) open(w http.ResponseWriter, r *http.Request, protocols ...string) (*socket, *http.Request) {
	ctx, seat, err := t.sessions.Take(r.Context(), "", 1)
	if err != nil {
		t.detention.Wait(r.Context())
		busy(w, limit.Why(err, fmt.Sprintf(
			"there are %d live sessions already (agent.console.transcription.sessions)", t.opts.Config.Sessions))).Write(w)
		return nil, nil
	}
	// The origin was checked before.
	up := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }, Subprotocols: protocols, WriteBufferPool: &sync.Pool{}}
	conn, err := up.Upgrade(w, r, nil)
	if err != nil { // it was answered
		seat.Leave()
		return nil, nil
	}
	conn.SetReadLimit(maxMessage)
	who := limit.ClientOf(ctx)
	s := &socket{t: t, seat: seat, conn: conn, done: make(chan error, 1), paced: !who.Operator && who != limit.Client{}}
	if now := time.Now(); s.paced {
		if _, ok := t.bursts.Allow(who.Holder(), now); !ok {
			s.due = now
		}
	}
	return s, r.WithContext(ctx)
}

// detector opens a detector of speech, or returns nil without speech.
func (t *Transcriber) detector(on bool) (vad.Detector, error) {
	if !on {
		return nil, nil //nolint:nilnil // none
	}
	return t.opts.VAD.Detector()
}

// serve runs the session and reads messages until the client disconnects. Then the utterance ends and gets its final text.
func (s *socket) serve(r *http.Request, c live.Config, event func(live.Event), message func(kind int, body []byte) error) {
	defer s.conn.Close()
	defer live.Hold(s.t.opts.Recognizer)()
	c.Every = s.t.opts.Step
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	s.session = live.New(s.t.opts.Recognizer, c, func(e live.Event) {
		s.t.counts.live(e)
		event(e)
	})
	go func() { s.done <- rescue.Call(func() error { return s.session.Run(ctx) }) }()
	request := r.Context()
	stop := context.AfterFunc(request, func() { // the server ends, or the client's right or its place
		if why := context.Cause(request); !errors.Is(why, context.Canceled) {
			text := websocket.FormatCloseMessage(websocket.ClosePolicyViolation, why.Error())
			_ = s.conn.WriteControl(websocket.CloseMessage, text, time.Now().Add(time.Second)) // it is closed in any case
		}
		_ = s.conn.Close()
	})
	defer stop()
	pings := time.NewTicker(pingEvery)
	defer pings.Stop()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case <-pings.C:
				_ = s.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeTime)) // its failure ends the reading
			case <-ended:
				return
			}
		}
	}()
	err := s.read(request, message)
	s.leave()
	late := time.AfterFunc(lastTime, cancel)
	defer late.Stop()
	err = errors.Join(err, s.session.Close(), <-s.done)
	if _, crash := rescue.Of(err); crash {
		s.t.log.Error().Err(err).Bytes("stack", rescue.Stack(err)).Msg("live session panicked")
	}
	all, speech := s.session.Share()
	s.t.counts.judged.Add(all.Seconds())
	s.t.counts.speech.Add(speech.Seconds())
	s.t.log.Debug().AnErr("reason", err).Int64("sound_ms", s.session.Now().Milliseconds()).Msg("live session ended")
}

// read handles messages until the client disconnects or is idle for idleTime, or message fails.
func (s *socket) read(ctx context.Context, message func(kind int, body []byte) error) error {
	s.conn.SetPongHandler(func(string) error { return s.conn.SetReadDeadline(time.Now().Add(idleTime)) })
	for {
		if err := s.conn.SetReadDeadline(time.Now().Add(idleTime)); err != nil {
			return err
		}
		kind, body, err := s.conn.ReadMessage()
		if err != nil {
			if errors.Is(err, websocket.ErrReadLimit) { // gorilla has closed it with the code 1009
				s.t.counts.refused.WithLabelValues("message_too_large").Inc()
			}
			return err
		}
		if err := s.pace(ctx, messageTime+time.Duration(len(body))*byteTime); err != nil {
			return err
		}
		if err := message(kind, body); err != nil {
			return err
		}
	}
}

// pace waits before a part of a message is handled that takes so much of the client's time, so that no client has more of the processor
// than people who speak need.
func (s *socket) pace(ctx context.Context, takes time.Duration) error {
	if !s.paced {
		return nil
	}
	now := time.Now()
	if earliest := now.Add(-paceBurst); s.due.Before(earliest) {
		s.due = earliest
	}
	s.due = s.due.Add(takes)
	wait := s.due.Sub(now)
	if wait <= 0 {
		return nil
	}
	select {
	case <-time.After(wait):
		s.t.counts.slowed.Add(wait.Seconds())
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave marks the connection as no longer read.
func (s *socket) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
}

// send writes a message, and reports whether it may arrive.
func (s *socket) send(v any) bool {
	b, err := json.Marshal(v)
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return false
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(writeTime)) // of an open connection
	if err := s.conn.WriteMessage(websocket.TextMessage, b); err != nil {
		s.gone = true
		_ = s.conn.Close() // ends the reading
		return false
	}
	return true
}

// hear passes sound to the session, in pieces of at most a second.
func (s *socket) hear(ctx context.Context, b []byte) error {
	for piece := range slices.Chunk(b, s.in.rate) {
		if err := s.pace(ctx, ticks.Duration(int64(len(piece)/s.in.width()), int64(s.in.rate))/soundPart); err != nil {
			return err
		}
		if err := s.session.Write(ctx, s.in.sound(piece)); err != nil {
			return err
		}
	}
	return nil
}

// plain is a message of /ws/transcribe.
type plain struct {
	Text    string `json:"text"`
	Partial bool   `json:"is_partial"`
	Final   bool   `json:"is_final"`
}

// plainError is an error of /ws/transcribe.
type plainError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Status  int    `json:"statusCode"`
}

// hello is the first message of /ws/transcribe.
type hello struct {
	Status string  `json:"status"`
	Rate   int     `json:"sample_rate"`
	Format string  `json:"format"`
	Buffer int     `json:"buffer_size"`
	Window float64 `json:"window_max_s"`
	VAD    bool    `json:"use_server_vad"`
}

// ServePlain answers GET /ws/transcribe: 16-bit sound in binary messages, texts in JSON.
func (t *Transcriber) ServePlain(w http.ResponseWriter, r *http.Request) {
	s, r := t.open(w, r)
	if s == nil {
		return
	}
	defer s.seat.Leave()
	q := r.URL.Query()
	p := &plainSocket{socket: s, ctx: r.Context()}
	who := limit.ClientOf(p.ctx) //nolint:contextcheck // of the request with its place
	p.back = returning{who.Token, q.Get("request_id"), who.Holder()}
	p.vad = slices.Contains([]string{"", "true", "1", "yes"}, q.Get("use_server_vad"))
	rate := 16000
	if v := q.Get("sample_rate"); v != "" {
		rate, _ = strconv.Atoi(v) // 0 is refused below
	}
	var err error
	if s.in, err = newIntake(pcm16, rate); err != nil {
		p.refuse("UNSUPPORTED_SAMPLE_RATE", http.StatusBadRequest, err.Error())
	}
	if err == nil {
		if p.hearing.Language, err = t.language(q.Get("language")); err != nil {
			p.refuse("INVALID_LANGUAGE", http.StatusBadRequest, err.Error())
		}
	}
	if err == nil && len(p.back.id) > maxRequestID {
		err = fmt.Errorf("request_id: expected at most %d bytes, got %d", maxRequestID, len(p.back.id))
		p.refuse("INVALID_REQUEST_ID", http.StatusBadRequest, err.Error())
	}
	var d vad.Detector
	if err == nil {
		if d, err = t.detector(p.vad); err != nil {
			p.refuse("WORKER_STARTUP_FAILED", http.StatusServiceUnavailable, err.Error())
		}
	}
	if err != nil {
		_ = s.conn.Close() // the error was sent
		return
	}
	// A client may send pieces as short as the interval of interim texts.
	buffer := int(ticks.Count(min(450*time.Millisecond, cmp.Or(t.opts.Step, time.Second)), int64(rate)))
	s.send(hello{"connected", rate, "pcm_s16le", 2 * buffer, 30, p.vad})
	for _, text := range t.finals.take(p.back, time.Now()) {
		s.send(plain{Text: text, Final: true})
	}
	s.serve(r, live.Config{Hearing: p.hearing, Detector: d, Speech: speechConfig()}, p.event, p.message)
}

// plainSocket is a session of /ws/transcribe.
type plainSocket struct {
	*socket
	back    returning
	ctx     context.Context //nolint:containedctx // of the request
	hearing inference.Hearing
	vad     bool
}

func (p *plainSocket) refuse(code string, status int, text string) {
	p.send(plainError{code, text, status})
}

// event sends the texts. A final text that cannot be sent waits for the next connection with the same request_id.
func (p *plainSocket) event(e live.Event) {
	switch e.Kind {
	case live.Interim:
		p.send(plain{Text: e.Text, Partial: true})
	case live.Final:
		if !p.send(plain{Text: e.Text, Final: true}) && e.Text != "" {
			p.t.finals.put(p.back, e.Text, time.Now())
		}
	case live.Failed:
		p.refuse("TRANSCRIPTION_FAILED", http.StatusServiceUnavailable, e.Err.Error())
	case live.StartOfSpeech, live.EndOfSpeech:
	}
}

// message handles a message of the client.
func (p *plainSocket) message(kind int, body []byte) error {
	if kind == websocket.BinaryMessage {
		return p.hear(p.ctx, body)
	}
	if err := p.pace(p.ctx, eventTime); err != nil {
		return err
	}
	var m struct {
		Action   string  `json:"action"`
		Language *string `json:"language"`
		VAD      *bool   `json:"use_server_vad"`
	}
	if err := json.Unmarshal(body, &m); err != nil {
		p.refuse("INVALID_JSON", http.StatusBadRequest, err.Error())
		return nil
	}
	switch m.Action {
	case "flush":
		open, err := p.session.Flush()
		if err == nil && !open && p.session.Pending() == 0 {
			p.send(plain{Final: true})
		}
		return err
	case "reset":
		p.session.Clear()
		p.send(map[string]string{"status": "buffer_reset"})
	case "config":
		return p.configure(m.Language, m.VAD)
	default:
		p.refuse("UNKNOWN_ACTION", http.StatusBadRequest, fmt.Sprintf("expected flush, reset or config, got %.40q", m.Action))
	}
	return nil
}

func (p *plainSocket) configure(language *string, speech *bool) error {
	if language != nil {
		tag, err := p.t.language(*language)
		if err != nil {
			p.refuse("INVALID_LANGUAGE", http.StatusBadRequest, err.Error())
			return nil
		}
		p.hearing.Language = tag
		p.session.Set(p.hearing)
	}
	if speech != nil && *speech != p.vad {
		d, err := p.t.detector(*speech)
		if err == nil {
			err = p.session.Detect(d, speechConfig())
		}
		if err != nil {
			return err
		}
		p.vad = *speech
	}
	name := p.hearing.Language
	if name == "" {
		name = "auto"
	}
	p.send(map[string]any{"status": "configured", "language": name, "use_server_vad": p.vad})
	return nil
}

// returning identifies a client that reconnects: its name, and the id that it chose. holder has its bound.
type returning struct{ client, id, holder string }

// pendingFinals are final texts whose client has disconnected.
type pendingFinals struct {
	mu   sync.Mutex
	list []pendingFinal
}

type pendingFinal struct {
	returning

	text  string
	until time.Time
}

// put stores a text. A text without an id is dropped, as no client can ask for it. Too many texts of a holder replace its oldest one.
func (k *pendingFinals) put(to returning, text string, now time.Time) {
	if to.id == "" {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = slices.DeleteFunc(k.list, func(t pendingFinal) bool { return now.After(t.until) })
	own, oldest := 0, 0
	for i, t := range slices.Backward(k.list) {
		if t.holder == to.holder {
			own, oldest = own+1, i
		}
	}
	if own >= maxOwnFinals {
		k.list = slices.Delete(k.list, oldest, oldest+1)
	}
	k.list = append(k.list[max(0, len(k.list)+1-maxFinals):], pendingFinal{to, text, now.Add(keepTime)})
}

// take returns the texts for a client, once.
func (k *pendingFinals) take(to returning, now time.Time) (out []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = slices.DeleteFunc(k.list, func(t pendingFinal) bool {
		if t.returning == to && now.Before(t.until) {
			out = append(out, t.text)
		}
		return t.returning == to || now.After(t.until)
	})
	return out
}

func (k *pendingFinals) count() float64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return float64(len(k.list))
}
