// Package remote is the engine of a model server with the OpenAI
// chat/completions protocol, such as vLLM, SGLang, llama-server, Ollama or
// LM Studio.
//
// It owns the conversation with the configured server: requests, pictures as
// JPEG, the stream of words, timeouts and retries. It sends pictures to no other
// server, follows no redirect, reads no environment variable and starts no
// goroutine: all work happens inside the calls of Generate, Warm and Probe.
package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"touchline/inference"
	"touchline/inference/internal/fault"
	"touchline/internal/redact"
)

// Errors of an answer, wrapped with the server's address and message; test with
// errors.Is.
var (
	// ErrUnreachable is returned when the connection to the server failed.
	ErrUnreachable = errors.New("the model server cannot be reached")
	// ErrRefused is returned when the server answered with an error.
	ErrRefused = errors.New("the model server refused")
	// ErrTimeout is returned when a word or the whole answer took too long.
	ErrTimeout = errors.New("the model server is too slow")
	// ErrCut is returned when the answer is incomplete or unreadable. The text
	// before was delivered.
	ErrCut = errors.New("the answer was cut off")
	// ErrNoAnswer is returned when the answer has no words: it is empty or has only
	// thoughts, the model refused or called a tool, a filter stopped it, or, asked
	// twice, it did not follow the schema.
	ErrNoAnswer = errors.New("the model gave no answer")
)

const (
	// maxBody and maxEvent are the largest size of a server's answer, and of one event of it, in bytes.
	maxBody  = 8 << 20
	maxEvent = maxBody / 2
	// bytesPerToken bounds the text of an answer if the server ignores max_tokens; real tokens have 3 to 6 bytes.
	bytesPerToken = 32
	// dialTimeout bounds one connection attempt.
	dialTimeout = 5 * time.Second
	// listTimeout bounds listing the models.
	listTimeout = 10 * time.Second
	// warmTokens and thinkTokens bound the answers to the warm-up, the second after a first one that may be unfinished thoughts.
	warmTokens  = 8
	thinkTokens = 512
	// mute is the number of answers without words in a row after which the status says so.
	mute = 3
)

// Model is one model on one server. Safe for concurrent use.
type Model struct {
	cfg       Config
	maxTokens int
	server    string // URL for messages
	log       zerolog.Logger

	client *http.Client
	limit  *limit

	now     func() time.Time // for refused parts
	choices [numParts]choice

	mu       sync.Mutex
	name     string // the model's name once known
	resolved bool
	status   inference.Status
	fit      fit
}

// New checks the address and returns the model behind it. It sends nothing; Warm
// or the first prompt does. maxTokens limits answers to prompts without a limit.
func New(cfg Config, maxTokens int, log zerolog.Logger) (*Model, error) {
	u, err := parseURL(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("open remote engine: inference.remote.url: %w", err)
	}
	if maxTokens < 1 {
		return nil, fmt.Errorf("open remote engine: %d tokens for an answer: must be at least 1", maxTokens)
	}
	defaults := DefaultConfig()
	cfg.URL, cfg.APIKey = u.String(), trimmed(cfg.APIKey)
	cfg.FirstTokenTimeout = cmp.Or(cfg.FirstTokenTimeout, defaults.FirstTokenTimeout)
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, defaults.IdleTimeout)
	cfg.OnePicture = cmp.Or(cfg.OnePicture, defaults.OnePicture)
	cfg.JPEGQuality = cmp.Or(cfg.JPEGQuality, defaults.JPEGQuality)
	cfg.Parallel = cmp.Or(max(cfg.Parallel, 0), defaults.Parallel)
	return &Model{
		cfg: cfg, maxTokens: maxTokens, server: cfg.URL, name: cfg.Model,
		log:    log.With().Str("component", "remote").Str("server", cfg.URL).Logger(),
		client: newClient(), limit: newLimit(cfg.Parallel), now: time.Now, choices: choices(),
		status: inference.Status{Phase: inference.PhaseUnloaded, Detail: "no request yet: " + cfg.URL},
	}, nil
}

// trimmed returns a key without the line end of the file that it comes from.
func trimmed(key redact.Secret) redact.Secret { return redact.Secret(strings.TrimSpace(string(key))) }

// newClient returns an HTTP client without redirects and proxies, so that
// pictures reach the configured server only.
func newClient() *http.Client {
	return &http.Client{
		Transport: &boundedTransport{&http.Transport{
			DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
			TLSHandshakeTimeout: dialTimeout,
			MaxIdleConnsPerHost: 32,
			IdleConnTimeout:     90 * time.Second,
			ForceAttemptHTTP2:   true,
		}},
		CheckRedirect: func(req *http.Request, _ []*http.Request) error {
			return fmt.Errorf("the server redirects to %s: set that address if you trust it", req.URL.Redacted())
		},
	}
}

// Name returns "remote: " and the model's name.
func (m *Model) Name() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.name == "" {
		return "remote"
	}
	return "remote: " + m.name
}

// Status returns the state after the last request. The phase is unloaded until
// one succeeded, and ready from then on.
func (m *Model) Status() inference.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.status
}

// Capabilities returns the capabilities of every Model. The server's defaults for sampling are not known.
func Capabilities() inference.Capabilities {
	return inference.Capabilities{Instructions: true, Structured: true, Sampling: &inference.Sampling{}}
}

// Capabilities implements inference.Model.
func (m *Model) Capabilities() inference.Capabilities {
	return Capabilities()
}

// NewSession opens a conversation.
func (m *Model) NewSession() (inference.Session, error) { return m.newSession(), nil }

func (m *Model) newSession() *session {
	return &session{m: m, pictures: pictures{quality: m.cfg.JPEGQuality}}
}

// Close closes the idle connections.
func (m *Model) Close() error {
	m.client.CloseIdleConnections()
	return nil
}

// Probe requests the server's models, without sending a picture, and returns the
// model of prompts. The error is ErrUnreachable, ErrRefused or
// *inference.ModelMissingError, wrapped.
func (m *Model) Probe(ctx context.Context) (model string, err error) {
	start := time.Now()
	models, _, err := m.list(ctx)
	if err == nil {
		model, err = m.choose(models)
	}
	if err != nil {
		m.report(false, err.Error())
		return "", err
	}
	m.settle(model)
	m.report(true, fmt.Sprintf("%s on %s, answers in %d ms", model, m.server, time.Since(start).Milliseconds()))
	return model, nil
}

// Warm checks that the server has the model, and prompts it with two small grey
// pictures: the server loads the model, a model without vision fails here, and
// the parts of requests that the server refuses are learnt. If the answer may be
// unfinished thoughts, the model is prompted once more, for a longer one.
// progress may be nil.
func (m *Model) Warm(ctx context.Context, progress func(percent int, detail string)) error {
	if progress == nil {
		progress = func(int, string) {}
	}
	progress(0, "looking for the model on "+m.server)
	model, err := m.Probe(ctx)
	if err != nil {
		if !errors.Is(err, errNoList) || m.cfg.Model == "" {
			return err
		}
		model = m.cfg.Model // checked by the prompt below
		m.settle(model)
	}
	progress(40, "warming up "+model+" on "+m.server)
	prompt := inference.Prompt{Text: "Which colour is this? One word.", MaxTokens: warmTokens}
	for i := range 2 {
		prompt.Frames = append(prompt.Frames, inference.Frame{
			PTS: time.Duration(i) * time.Second, Width: 112, Height: 112, Pix: slices.Repeat([]byte{128}, 112*112*3),
		})
	}
	var silent error // of the last answer
	for range 2 {
		silent = nil
		for _, err := range m.newSession().Generate(ctx, prompt) {
			switch {
			case errors.Is(err, ErrNoAnswer):
				silent = err
			case err != nil && prompt.MaxTokens == warmTokens:
				return fmt.Errorf("warm up: %w", err)
			}
		}
		if _, thoughts := m.known(model); thoughts != unopenedUnknown {
			break
		}
		prompt.MaxTokens = min(max(m.maxTokens, 2*warmTokens), thinkTokens)
	}
	ready := model + " on " + m.server + " is ready"
	if silent != nil { // a later answer may have words
		m.log.Warn().Err(silent).Str("model", model).Msg("no words in the warm-up")
		ready += ", but its first answer had no words: " + silent.Error()
		m.report(true, ready)
	}
	progress(100, ready)
	return nil
}

// Load returns the present limit of concurrent requests, and the numbers of running and waiting ones.
func (m *Model) Load() (limit, running, waiting int) { return m.limit.state() }

// report sets the status.
func (m *Model) report(ok bool, detail string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ok {
		m.status.Phase, m.status.Percent = inference.PhaseReady, 100
	}
	m.status.Detail = detail
}

// known returns the forms of requests to a model, and what is known about its thoughts.
func (m *Model) known(model string) (forms, unopenedState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fit.model != model {
		m.fit = fit{model: model}
	}
	return m.fit.forms(m.now()), m.fit.thoughts.state
}

// accepted records what an answer shows about the server and its model. reason is the last refusal before it, if there was one.
func (m *Model) accepted(model string, sent [numParts]bool, use forms, reason error, a *answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fit.model != model {
		return
	}
	for _, i := range m.fit.accepted(sent, use, m.now()) {
		if use[i] > 0 {
			m.log.Warn().Err(reason).Str("model", model).Str("learnt", m.choices[i].forms[use[i]-1].note).
				Int64("retry_in_s", int64(learntFor.Seconds())).Msg("part of a request refused by the model server")
		}
	}
	if a.received > 0 && (a.schema == nil || a.filter.closed) {
		m.fit.thoughts.learn(a.filter.closed, !a.outOfTokens() || a.apart || a.filter.reasoned)
	}
}

// answered sets the status after an answer.
func (m *Model) answered(detail string) {
	m.mu.Lock()
	m.fit.silent = 0
	m.mu.Unlock()
	if notes := m.Notes(); notes != "" {
		detail += "; " + notes
	}
	m.report(true, detail)
}

// failed sets the status after an error. A few answers without words are no problem.
func (m *Model) failed(err error) {
	detail := err.Error()
	if errors.Is(err, ErrNoAnswer) {
		m.mu.Lock()
		m.fit.silent++
		n := m.fit.silent
		m.mu.Unlock()
		if n < mute {
			return
		}
		detail = fmt.Sprintf("%d answers in a row without words: %s", n, detail)
	}
	m.report(false, detail)
}

func (m *Model) settle(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.name, m.resolved = name, true
}

// forget clears the list of models, so that the next prompt requests it again from the changed server.
func (m *Model) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resolved = false
}

// modelName returns the model of requests, from the server's list if the settings name none.
func (m *Model) modelName(ctx context.Context) (string, error) {
	m.mu.Lock()
	name, resolved := m.name, m.resolved
	m.mu.Unlock()
	if resolved || m.cfg.Model != "" {
		return name, nil
	}
	models, _, err := m.list(ctx)
	if err != nil {
		return "", err
	}
	if name, err = m.choose(models); err == nil {
		m.settle(name)
	}
	return name, err
}

// errNoList is returned when a server has no list of models.
var errNoList = errors.New("it does not list its models; check the address, which usually ends in /v1")

// list returns the names of the server's models, nil without a list, and the first owner of one.
func (m *Model) list(ctx context.Context) (names []string, owner string, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	res, err := m.send(ctx, http.MethodGet, "/models", nil)
	if refused(err, http.StatusNotFound, http.StatusMethodNotAllowed) {
		return nil, "", fmt.Errorf("%s: %w: %w", m.server, ErrRefused, errNoList)
	}
	if err != nil {
		return nil, "", fmt.Errorf("list models: %w", err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	var found struct {
		Data []struct {
			ID      string `json:"id"`
			OwnedBy string `json:"owned_by"`
		} `json:"data"`
	}
	// Together has the list alone.
	if err == nil && json.Unmarshal(text, &found) != nil && json.Unmarshal(text, &found.Data) != nil {
		err = fmt.Errorf("expected a list of models in JSON, got %q", fault.Shorten(string(text)))
	}
	if err != nil {
		return nil, "", fmt.Errorf("list models: %w", m.fault(ctx, ErrCut, err))
	}
	if found.Data != nil {
		names = []string{}
	}
	for _, d := range found.Data {
		if d.ID != "" {
			names = append(names, d.ID)
			owner = cmp.Or(owner, d.OwnedBy)
		}
	}
	return names, owner, nil
}

// choose returns the model of the settings, or the only one.
func (m *Model) choose(models []string) (string, error) {
	if m.cfg.Model == "" && len(models) == 1 {
		return models[0], nil
	}
	for _, name := range models {
		// Ollama adds the tag, Gemini the kind.
		if m.cfg.Model != "" && slices.Contains([]string{m.cfg.Model, m.cfg.Model + ":latest", "models/" + m.cfg.Model}, name) {
			return name, nil
		}
	}
	return "", &inference.ModelMissingError{Server: m.server, Model: m.cfg.Model, Available: models}
}
