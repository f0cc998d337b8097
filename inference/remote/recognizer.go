package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"touchline/inference"
	"touchline/internal/ticks"
	"touchline/internal/wav"
)

const (
	// recognizerModel is a name that every transcription server accepts.
	recognizerModel = "whisper-1"
	// recognizerParallel and recognizerRetries are the defaults of a model server.
	recognizerParallel = 4
	recognizerRetries  = 2
	// maxPart is the longest sound of one request, below the usual limit of 25 MB. Sound shorter than minPart is padded with
	// silence, since servers refuse it. In samples.
	maxPart = 600 * inference.RecognizerRate
	minPart = inference.RecognizerRate / 2
	// partTime and the length of its sound bound a request.
	partTime = 30 * time.Second
)

// Recognizer transcribes speech with a server that has OpenAI's POST /v1/audio/transcriptions, and live speech also with its
// /v1/realtime. Safe for concurrent use.
type Recognizer struct {
	setting            string // path of its settings
	server, model, key string
	realtime           string // address of live sessions; with "" live speech is sent as recordings
	client             *http.Client
	limit              *limit
	now                func() time.Time
	log                zerolog.Logger
	long               atomic.Uint64

	mu      sync.Mutex
	status  inference.Status
	noTimes time.Time // until then verbose_json, which has the times, is not asked for: the server refuses it or leaves them out
}

// NewRecognizer checks the address and returns the recognizer behind it. It sends nothing. Live speech goes through /v1/realtime where
// the address begins with ws:// or wss://.
func NewRecognizer(cfg inference.RecognizerConfig, log zerolog.Logger) (*Recognizer, error) {
	address, live := cfg.Address()
	u, err := parseURL(address)
	if err != nil {
		return nil, fmt.Errorf("open transcription server: %s.url: %w", cfg.Setting(), err)
	}
	realtime := ""
	if live {
		realtime = realtimeURL(u, cmp.Or(cfg.Model, recognizerModel))
	}
	return &Recognizer{
		setting: cfg.Setting(), server: u.String(), realtime: realtime, model: cmp.Or(cfg.Model, recognizerModel),
		key:    string(trimmed(cfg.APIKey)),
		client: newClient(), limit: newLimit(recognizerParallel), now: time.Now,
		log:    log.With().Str("component", "recognizer").Str("server", u.String()).Logger(),
		status: inference.Status{Phase: inference.PhaseReady, Percent: 100, Detail: "no request yet: " + u.String()},
	}, nil
}

// TooLong returns the number of live sessions that ended because the server sent more text than a session may have.
func (r *Recognizer) TooLong() uint64 { return r.long.Load() }

// Recognizes implements inference.Recognizer.
func (r *Recognizer) Recognizes() inference.Recognizes {
	return inference.Recognizes{Model: r.model, WordTimes: r.hasTimes(), Partials: true}
}

// hasTimes reports whether the server may return times.
func (r *Recognizer) hasTimes() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.now().Before(r.noTimes)
}

// withoutTimes records that the server returns no times.
func (r *Recognizer) withoutTimes(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noTimes = r.now().Add(learntFor)
	r.log.Warn().Err(err).Int64("retry_in_s", int64(learntFor.Seconds())).Msg("transcription server returns no word timestamps")
}

// Status implements inference.Recognizer.
func (r *Recognizer) Status() inference.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// Close implements inference.Recognizer.
func (r *Recognizer) Close() error {
	r.client.CloseIdleConnections()
	return nil
}

// Align implements inference.Recognizer: the protocol has no alignment.
func (*Recognizer) Align(context.Context, []float32, string, string) ([]inference.Word, error) {
	return nil, inference.ErrNoWordTimes
}

// Transcribe implements inference.Recognizer.
func (r *Recognizer) Transcribe(ctx context.Context, sound []float32, h inference.Hearing) iter.Seq2[inference.Transcript, error] {
	return r.send(ctx, "/audio/transcriptions", sound, h)
}

// Translate implements inference.Translator.
func (r *Recognizer) Translate(ctx context.Context, sound []float32, h inference.Hearing) iter.Seq2[inference.Transcript, error] {
	return r.send(ctx, "/audio/translations", sound, h)
}

// send transcribes a recording part by part.
func (r *Recognizer) send(ctx context.Context, path string, sound []float32, h inference.Hearing) iter.Seq2[inference.Transcript, error] {
	return func(yield func(inference.Transcript, error) bool) {
		at := time.Duration(0)
		for _, part := range inference.SplitSound(sound, maxPart) {
			if len(part) == 0 {
				return
			}
			texts, err := r.part(ctx, path, part, h)
			if err != nil {
				yield(inference.Transcript{}, err)
				return
			}
			for _, t := range texts {
				t.Start, t.End = t.Start+at, t.End+at
				for i := range t.Words {
					t.Words[i].Start += at
					t.Words[i].End += at
				}
				if !yield(t, nil) {
					return
				}
			}
			at += duration(len(part))
		}
	}
}

// duration returns the length of samples.
func duration(samples int) time.Duration {
	return ticks.Duration(int64(samples), inference.RecognizerRate)
}

// part transcribes sound with one request, and retries it as Generate does.
func (r *Recognizer) part(ctx context.Context, path string, sound []float32, h inference.Hearing) ([]inference.Transcript, error) {
	if h.WordTimes && !r.hasTimes() {
		return nil, fmt.Errorf("%s: %w", r.server, inference.ErrNoWordTimes)
	}
	if err := r.limit.acquire(ctx, h.Live); err != nil {
		return nil, err
	}
	var good time.Duration
	defer func() { r.limit.release(good) }()
	wait := partTime + duration(len(sound))
	timed, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for attempt := 0; ; attempt++ {
		began := r.now()
		texts, err := r.ask(timed, path, sound, h)
		if err == nil {
			good = r.now().Sub(began)
			r.report(fmt.Sprintf("%s on %s, %.1f s of sound in %.2f s", r.model, r.server, duration(len(sound)).Seconds(), good.Seconds()))
			return texts, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if timed.Err() != nil {
			err = fmt.Errorf("%s: %w: no text within %v", r.server, ErrTimeout, wait)
		}
		if refused(err, http.StatusTooManyRequests, http.StatusServiceUnavailable) {
			r.limit.cut(r.now())
		}
		if !r.again(timed, err, attempt) {
			r.report(err.Error())
			return nil, err
		}
	}
}

// again waits before the next attempt after an error, and reports whether there is one.
func (r *Recognizer) again(ctx context.Context, err error, attempt int) bool {
	again, pause := retry(err, attempt)
	if !again || attempt >= recognizerRetries || ctx.Err() != nil {
		return false
	}
	r.log.Warn().Err(err).Int("attempt", attempt+1).Int64("retry_in_ms", pause.Milliseconds()).Msg("retrying the transcription server")
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
	return true
}

func (r *Recognizer) report(detail string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Detail = detail
}

// ask sends one request. If the server refuses verbose_json, it sends another one for json.
func (r *Recognizer) ask(ctx context.Context, path string, sound []float32, h inference.Hearing) ([]inference.Transcript, error) {
	verbose := !h.Live && r.hasTimes() || h.WordTimes
	texts, err := r.post(ctx, path, sound, h, verbose)
	refusal, ok := errors.AsType[*statusError](err)
	switch {
	case errors.Is(err, inference.ErrNoWordTimes):
		r.withoutTimes(err)
		return nil, err
	case !verbose || !ok:
		return texts, err
	}
	bad := refusal.code == http.StatusBadRequest || refusal.code == http.StatusUnprocessableEntity
	named := bad && timesRefused.MatchString(refusal.whole)
	if !bad && refusal.code != http.StatusInternalServerError && refusal.code != http.StatusNotImplemented {
		return nil, err
	}
	if !named || !h.WordTimes {
		plain := h
		plain.WordTimes = false
		var second error
		if texts, second = r.post(ctx, path, sound, plain, false); second != nil {
			return nil, err // about something else
		}
	}
	if refusal.code != http.StatusInternalServerError { // which may pass
		r.withoutTimes(err)
	}
	if h.WordTimes {
		return nil, fmt.Errorf("%s: %w", r.server, inference.ErrNoWordTimes)
	}
	return texts, nil
}

// timesRefused matches a refusal of verbose_json or of the times of words.
var timesRefused = regexp.MustCompile(`response_format|verbose_json|timestamp`)

func (r *Recognizer) post(ctx context.Context, path string, sound []float32, h inference.Hearing, verbose bool,
) ([]inference.Transcript, error) {
	length := duration(len(sound))
	body, kind := r.form(path, sound, h, verbose)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.server+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", kind)
	if r.key != "" {
		req.Header.Set("Authorization", "Bearer "+r.key)
	}
	res, err := r.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return nil, fmt.Errorf("%s: %w: %w", r.server, ErrUnreachable, err)
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s: %w: %w%s", r.server, ErrRefused, refusalOf(res, r.now()), r.hint(res.StatusCode))
	}
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", r.server, ErrCut, err)
	}
	texts, err := readTranscription(answer, length, h)
	if errors.Is(err, inference.ErrNoWordTimes) {
		return nil, fmt.Errorf("%s: %w", r.server, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", r.server, ErrCut, err)
	}
	return texts, nil
}

func (r *Recognizer) hint(status int) string {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "; set its key in TOUCHLINE_" + strings.ToUpper(strings.ReplaceAll(r.setting, ".", "_")) + "_API_KEY"
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return fmt.Sprintf("; check %[1]s.url, which ends in /v1, and %[1]s.model", r.setting)
	}
	return ""
}

// form returns the body of a request, and its content type.
func (r *Recognizer) form(path string, sound []float32, h inference.Hearing, verbose bool) (body []byte, kind string) {
	if len(sound) < minPart {
		sound = append(slices.Clone(sound), make([]float32, minPart-len(sound))...)
	}
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	file, err := w.CreatePart(textproto.MIMEHeader{
		"Content-Disposition": {`form-data; name="file"; filename="sound.wav"`}, "Content-Type": {"audio/wav"},
	})
	if err == nil {
		_, _ = file.Write(wav.Encode(sound, inference.RecognizerRate)) // a buffer never fails
	}
	field := func(name, value string) {
		if value != "" {
			_ = w.WriteField(name, value)
		}
	}
	field("model", r.model)
	field("prompt", strings.ToValidUTF8(h.Context, "\uFFFD"))
	if h.Language != "" && strings.HasSuffix(path, "/transcriptions") {
		field("language", inference.Primary(h.Language))
	}
	if h.Temperature > 0 {
		field("temperature", strconv.FormatFloat(h.Temperature, 'g', -1, 64))
	}
	if verbose {
		field("response_format", "verbose_json")
		field("timestamp_granularities[]", "segment")
	} else {
		field("response_format", "json")
	}
	if h.WordTimes {
		field("timestamp_granularities[]", "word")
	}
	_ = w.Close()
	return b.Bytes(), w.FormDataContentType()
}

// Listen implements inference.Recognizer. A session gets the sound as it arrives. Without sessions, and for the times of words, the
// whole sound is sent each time it has grown by half, and at the end.
func (r *Recognizer) Listen(ctx context.Context, h inference.Hearing) (inference.Utterance, error) {
	h.Live = true
	ctx, cancel := context.WithCancel(ctx)
	u := utterance{r: r, h: h, open: ctx, cancel: cancel}
	if r.realtime != "" && !h.WordTimes {
		return &spoken{utterance: u}, nil
	}
	return &u, nil
}

// utterance is the sound of one utterance so far.
type utterance struct {
	r      *Recognizer
	h      inference.Hearing
	open   context.Context //nolint:containedctx // ends with Close
	cancel context.CancelFunc
	sound  []float32
	sent   int // samples of sound that the server has
	last   inference.Transcript
}

// Hear implements inference.Utterance.
func (u *utterance) Hear(ctx context.Context, sound []float32) (inference.Transcript, error) {
	u.sound = append(u.sound, sound...)
	if len(u.sound) < minPart || len(u.sound) < u.sent+u.sent/2 {
		u.last.End = duration(len(u.sound))
		return u.last, nil
	}
	h := u.h
	h.WordTimes = false
	t, err := u.ask(ctx, h)
	t.Final = false
	if err == nil {
		u.last, u.sent = t, len(u.sound)
	}
	return t, err
}

// Finish implements inference.Utterance.
func (u *utterance) Finish(ctx context.Context, sound []float32) (inference.Transcript, error) {
	u.sound = append(u.sound, sound...)
	if len(u.sound) == 0 {
		return inference.Transcript{Language: u.h.Language, Final: true}, nil
	}
	return u.ask(ctx, u.h)
}

// ask transcribes all sound so far.
func (u *utterance) ask(ctx context.Context, h inference.Hearing) (inference.Transcript, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	closed := func() { cancel(context.Canceled) }
	defer context.AfterFunc(u.open, closed)() //nolint:contextcheck // ends with Close
	out := inference.Transcript{Language: h.Language, End: duration(len(u.sound)), Final: true}
	for t, err := range u.r.Transcribe(ctx, u.sound, h) {
		if err != nil {
			return inference.Transcript{}, err
		}
		out.Text = inference.JoinTranscripts(out.Text, t.Text)
		out.Language = cmp.Or(t.Language, out.Language)
		out.Words = append(out.Words, t.Words...)
	}
	return out, nil
}

// Close implements inference.Utterance.
func (u *utterance) Close() error {
	u.cancel()
	return nil
}
