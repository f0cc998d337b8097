package voice

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"touchline/inference"
	"touchline/inference/internal/fault"
	"touchline/internal/wav"
)

const (
	// serverRate is the rate of raw sound whose content type has none, as from OpenAI.
	serverRate = 24000
	// dialTimeout bounds the connection, soundTimeout the wait for each piece of sound.
	dialTimeout  = 3 * time.Second
	soundTimeout = 6 * time.Second
	// maxSentence bounds the sound of one sentence.
	maxSentence = 2 * time.Minute
	// minRate and maxRate bound the rate of its sound, in Hz.
	minRate, maxRate = 4000, 192000
	// endless is the length of sound that lasts to the end of its stream.
	endless = math.MaxInt64
	// readStep is the size of the pieces in which sound is read: 85 ms at 24 kHz.
	readStep = 4096
	// maxAnswer bounds the body of an error, in bytes.
	maxAnswer = 4 << 10
	// firstRest and longestRest bound the time without requests after a failure.
	firstRest, longestRest = 2 * time.Second, time.Minute

	// defaultModel and defaultVoice are names that every such server accepts.
	defaultModel = "tts-1"
	defaultVoice = "alloy"
)

// errResting is returned for a sentence without a request because the server failed before.
var errResting = errors.New("it failed and rests; it is asked again within a minute")

// server is a speech server with OpenAI's API. Safe for concurrent use.
type server struct {
	url, model, key string
	client          *http.Client
	now             func() time.Time
	patience        time.Duration // soundTimeout

	mu      sync.Mutex
	pace    time.Duration // speech for one unit of weight, averaged over the last sentences
	restsTo time.Time
	rest    time.Duration
	failure error // the reason of the rest
	wav     bool  // it refused raw sound
}

func newServer(cfg inference.VoiceConfig) *server {
	return &server{
		url: strings.TrimSuffix(cfg.URL, "/"), model: cmp.Or(cfg.Model, defaultModel), key: string(cfg.APIKey),
		now: time.Now, patience: soundTimeout, pace: usualPace,
		client: &http.Client{
			Transport: &http.Transport{
				DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
				TLSHandshakeTimeout: dialTimeout,
				MaxIdleConnsPerHost: 8,
				IdleConnTimeout:     30 * time.Second,
				ForceAttemptHTTP2:   true,
			},
			CheckRedirect: func(r *http.Request, _ []*http.Request) error {
				return fmt.Errorf("it redirects to %s: set that address as inference.voice.url if you trust it", r.URL.Redacted())
			},
		},
	}
}

// speak emits the sound of words as it arrives. After a failure it returns the words without sound.
func (s *server) speak(ctx context.Context, name string, tokens []token, after time.Duration, emit func(inference.Chunk) bool,
) (rest []token, err error) {
	if err := s.resting(); err != nil {
		return tokens, s.fault(err)
	}
	p := newStream(tokens, after, s.usual(), emit)
	err = s.receive(ctx, name, script(tokens), p)
	if errors.Is(err, errGone) {
		return nil, nil
	}
	if err == nil && !p.sounds {
		err = errors.New("it sent no sound: check inference.voice.name and the server's log")
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s.settle(p, err)
	if err != nil {
		return tokens[p.next:], s.fault(err)
	}
	return nil, nil
}

// fault names the server in an error.
func (s *server) fault(err error) error { return fmt.Errorf("the speech server %s: %w", s.url, err) }

// resting returns an error during the time without requests.
func (s *server) resting() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now().Before(s.restsTo) {
		return fmt.Errorf("%w: %w", errResting, s.failure)
	}
	return nil
}

func (s *server) usual() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pace
}

// settle updates the state after a sentence.
func (s *server) settle(p *stream, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.rest = min(max(2*s.rest, firstRest), longestRest)
		s.restsTo, s.failure = s.now().Add(s.rest), err
		return
	}
	s.rest, s.restsTo, s.failure = 0, time.Time{}, nil
	if own := p.measured(); own > 0 {
		s.pace += (own - s.pace) / 4
	}
}

// receive requests the sound of a text and pushes it to p.
func (s *server) receive(ctx context.Context, name, text string, p *stream) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := fmt.Errorf("no sound within %v: it is overloaded, or too slow for live speech", s.patience)
	timer := time.AfterFunc(s.patience, func() { cancel(late) })
	defer timer.Stop()
	res, err := s.request(ctx, name, text)
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	defer res.Body.Close()
	in := bufio.NewReaderSize(res.Body, readStep)
	f, size, err := soundOf(res.Header.Get("Content-Type"), in)
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	sound := io.LimitReader(in, size)
	p.rate = f.Rate
	buf := make([]byte, readStep-readStep%f.Frame())
	for have := 0; ; {
		timer.Reset(s.patience)
		n, err := sound.Read(buf[have:])
		timer.Stop() // push waits for the listener, which is no failure of the server
		have += n
		whole := have - have%f.Frame()
		if !p.push(wav.PCM(f.Mono(nil, buf[:whole]))) {
			return errGone
		}
		have = copy(buf, buf[whole:have]) // bytes of an incomplete sample
		switch {
		case errors.Is(err, io.EOF):
			p.finish()
			return nil
		case err != nil:
			return cmp.Or(context.Cause(ctx), fmt.Errorf("the sound ended early: %w", err))
		case p.length() > maxSentence:
			return fmt.Errorf("more than %v of sound for one sentence: is it endless?", maxSentence)
		}
	}
}

// errGone is returned when emit ends the sound.
var errGone = errors.New("the listener has gone")

// request requests the sound of a text: raw, or as WAV from a server that refuses raw sound.
func (s *server) request(ctx context.Context, name, text string) (*http.Response, error) {
	s.mu.Lock()
	wav := s.wav
	s.mu.Unlock()
	res, err := s.post(ctx, name, text, wav)
	if refused, ok := errors.AsType[*statusError](err); ok && !wav && refused.ofFormat() {
		if res, err = s.post(ctx, name, text, true); err == nil {
			s.mu.Lock()
			s.wav = true
			s.mu.Unlock()
		}
	}
	return res, err
}

// statusError is the error of an answer with another status than 200.
type statusError struct {
	status int
	text   string
}

func (r *statusError) Error() string {
	hint := ""
	switch r.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		hint = "; set its key in TOUCHLINE_INFERENCE_VOICE_API_KEY"
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		hint = "; check inference.voice.url, which ends in /v1, and inference.voice.model"
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		hint = "; check inference.voice.name and inference.voice.model"
	}
	return fmt.Sprintf("it answered %d: %s%s", r.status, cmp.Or(r.text, http.StatusText(r.status)), hint)
}

// ofFormat reports whether raw sound was refused.
func (r *statusError) ofFormat() bool {
	switch r.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests:
		return false
	}
	return soundFormat.MatchString(r.text)
}

var soundFormat = regexp.MustCompile(`(?i)\bpcm\b|response[_ ]format|\b(?:audio|output|unsupported)[_ ]format`)

func (s *server) post(ctx context.Context, name, text string, wav bool) (*http.Response, error) {
	format := "pcm"
	if wav {
		format = "wav"
	}
	request := map[string]any{"model": s.model, "input": text, "voice": cmp.Or(name, defaultVoice), "response_format": format}
	if speed := inference.Speed(ctx); speed != 1 {
		request["speed"] = speed
	}
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	res, err := s.ask(ctx, http.MethodPost, "/audio/speech", body)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			err = fmt.Errorf("%w: start it, or correct inference.voice.url", op)
		}
		return nil, err
	}
	if res.StatusCode/100 == 2 {
		return res, nil
	}
	defer res.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	return nil, &statusError{res.StatusCode, answerText(answer)}
}

// ask sends a request to a path at the server.
func (s *server) ask(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	if s.key != "" {
		req.Header.Set("Authorization", "Bearer "+s.key)
	}
	return s.client.Do(req)
}

// answerText returns the message of an error, quoted.
func answerText(body []byte) string {
	switch text := fault.Text(body); {
	case text == "":
		return ""
	case text[0] == '<':
		return "an HTML page"
	default:
		return strconv.Quote(text)
	}
}

// soundOf reads the head of an answer, up to its samples, and returns their format and length in bytes.
func soundOf(contentType string, in *bufio.Reader) (f wav.Format, size int64, err error) {
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		kind = ""
	}
	head, err := in.Peek(8)
	if err != nil && !errors.Is(err, io.EOF) {
		return f, 0, fmt.Errorf("read the sound: %w", err)
	}
	companded := slices.Contains([]string{"audio/basic", "audio/pcmu", "audio/pcma", "audio/x-mulaw", "audio/x-alaw"}, kind)
	switch other := foreign(head); {
	case bytes.HasPrefix(head, []byte("RIFF")):
		return wavHead(in)
	case other == "JSON":
		answer, _ := io.ReadAll(io.LimitReader(in, maxAnswer))
		return f, 0, fmt.Errorf("it sent JSON, asked for pcm: %s", answerText(answer))
	case other != "", companded:
		return f, 0, fmt.Errorf("it sent %s, asked for pcm: choose a server that sends response_format pcm or wav", cmp.Or(other, kind))
	case len(head) > 0 && kind != "" && !strings.HasPrefix(kind, "audio/") && !strings.HasSuffix(kind, "/octet-stream"):
		return f, 0, fmt.Errorf("expected sound, got %.60q: check inference.voice.url, which ends in /v1", contentType)
	}
	f = wav.Format{Rate: serverRate, Channels: 1, Bits: 16}
	if v, ok := params["rate"]; ok {
		if f.Rate, err = strconv.Atoi(v); err != nil || f.Rate < minRate || f.Rate > maxRate {
			return f, 0, fmt.Errorf("expected a rate from %d to %d Hz, got %.60q", minRate, maxRate, contentType)
		}
	}
	if v, ok := params["channels"]; ok && v != "1" {
		if v != "2" {
			return f, 0, fmt.Errorf("expected 1 or 2 channels, got %.60q", contentType)
		}
		f.Channels = 2
	}
	return f, endless, nil
}

// wavHead reads a WAV stream up to its samples. Without a length in the head they last to the end of the stream.
func wavHead(in io.Reader) (wav.Format, int64, error) {
	f, size, err := wav.ReadHead(in)
	if err != nil {
		return f, 0, err
	}
	if f.Channels > 2 || f.Rate < minRate || f.Rate > maxRate {
		return f, 0, fmt.Errorf("%w with 1 or 2 channels, 4 to 192 kHz, got %d channels, %d Hz", wav.ErrFormat, f.Channels, f.Rate)
	}
	const unknown = 0x7ff00000 // and above
	if size == 0 || size >= unknown {
		size = endless
	}
	return f, size, nil
}

// foreign names a compressed format or a page by its first eight bytes; "" for possible raw sound.
func foreign(head []byte) string {
	for begin, name := range map[string]string{
		"ID3": "MP3", "OggS": "Ogg", "fLaC": "FLAC", "<!DO": "an HTML page", "<htm": "an HTML page", `{"`: "JSON", "\x1aE\xdf\xa3": "WebM",
		"RF64": "RF64", "FORM": "AIFF", ".snd": "AU", "caff": "CAF", "\xff\xf1": "AAC", "\xff\xf9": "AAC",
	} {
		if bytes.HasPrefix(head, []byte(begin)) {
			return name
		}
	}
	switch {
	case len(head) == 8 && string(head[4:]) == "ftyp":
		return "MP4"
	case len(head) >= 4 && head[0] == 0xff && head[1]&0xe6 == 0xe2 && head[1]&0x18 != 8 && // layer III (ISO 11172-3 section 2.4.1.3)
		head[2]>>4 != 0 && head[2]>>4 != 15 && head[2]&12 != 12: // at a valid rate
		return "MP3"
	}
	return ""
}

// voices returns the server's list of voices; nil without one.
func (s *server) voices(ctx context.Context) []string {
	res, err := s.ask(ctx, http.MethodGet, "/audio/voices", nil)
	if err != nil {
		return nil
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxList))
	if err != nil || res.StatusCode != http.StatusOK {
		return nil
	}
	return parseVoices(body)
}

// maxList bounds a list of voices, in bytes, and maxVoices their number.
const (
	maxList   = 256 << 10
	maxVoices = 500
)

// parseVoices reads {"voices": ["af_heart", ...]} or {"voices": [{"id": "af_heart"}, ...]}.
func parseVoices(body []byte) (out []string) {
	var list struct {
		Voices []json.RawMessage `json:"voices"`
	}
	if json.Unmarshal(body, &list) != nil {
		return nil
	}
	for _, raw := range list.Voices {
		var name string
		var named struct{ ID, Name string }
		if json.Unmarshal(raw, &name) != nil && json.Unmarshal(raw, &named) == nil {
			name = cmp.Or(named.ID, named.Name)
		}
		if serverVoice(name) && name != "" && len(out) < maxVoices {
			out = append(out, name)
		}
	}
	return out
}

// serverVoice reports whether a name is valid for a voice of a server, such as "af_bella(2)+af_sky(1)" or "en_US-lessac-medium".
func serverVoice(name string) bool {
	return len(name) <= 64 && !strings.ContainsFunc(name, func(r rune) bool { return r < 0x21 || r > 0x7e || r == '"' || r == '\\' })
}
