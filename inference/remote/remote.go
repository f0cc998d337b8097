// Package remote is the engine that asks a model server: any that speaks the
// OpenAI chat/completions protocol, such as vLLM, SGLang, llama-server, Ollama
// or LM Studio.
//
// It owns the conversation with one server that its user chose: requests,
// pictures as JPEG, the stream of words, time limits and new attempts. It never
// sends a picture anywhere else, follows no redirect, reads no environment
// variable, and starts no goroutine of its own: all work happens inside the
// calls of Generate, Warm and Probe.
package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/rs/zerolog"

	"touchline/inference"
)

// Errors that an answer can end with. They come wrapped with the server's
// address and what it said; test with errors.Is.
var (
	// ErrUnreachable is returned when no connection to the server came about.
	ErrUnreachable = errors.New("the model server cannot be reached")
	// ErrRefused is returned when the server answered with an error.
	ErrRefused = errors.New("the model server refused")
	// ErrTimeout is returned when the server took longer than allowed for its
	// first word or between two words.
	ErrTimeout = errors.New("the model server is too slow")
	// ErrCut is returned when the answer ended before its end, or became
	// unreadable. The text up to there was delivered.
	ErrCut = errors.New("the answer was cut off")
	// ErrNoAnswer is returned when the model spent all its tokens on thinking.
	ErrNoAnswer = errors.New("the model gave no answer")
)

const (
	// maxBody bounds one answer of a server in bytes, however long it talks.
	maxBody = 8 << 20
	// bytesPerToken bounds the text of an answer where the server ignores max_tokens: real tokens have 3 to 6 bytes.
	bytesPerToken = 32
	// dialTimeout bounds one connection attempt.
	dialTimeout = 5 * time.Second
	// listTimeout bounds listing the models.
	listTimeout = 10 * time.Second
)

// Model is one model on one server. Safe for concurrent use.
type Model struct {
	cfg       Config
	maxTokens int
	server    string // address for people and messages
	log       zerolog.Logger

	client *http.Client
	chat   openai.ChatCompletionService
	models openai.ModelService

	mu       sync.Mutex
	name     string // the model's name once known
	resolved bool
	// noTemplate: the server does not take chat_template_kwargs.
	noTemplate bool
	status     inference.Status
	firstWord  time.Duration // of the last answer
}

// New checks the address and returns the model behind it. Nothing is sent yet:
// Warm does that, or the first prompt. maxTokens caps an answer whose prompt
// sets no cap of its own.
func New(cfg Config, maxTokens int, log zerolog.Logger) (*Model, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
		return nil, errors.New("open remote engine: expected an address such as http://127.0.0.1:8000/v1 " +
			"in inference.remote.url, without name and password")
	}
	if maxTokens < 1 {
		return nil, fmt.Errorf("open remote engine: expected at least 1 token for an answer, got %d", maxTokens)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	if u.Path == "" {
		u.Path = "/v1"
	}
	cfg.URL = u.String()
	if cfg.FirstTokenTimeout <= 0 {
		cfg.FirstTokenTimeout = 20 * time.Second
	}
	if cfg.IdleTimeout <= 0 {
		cfg.IdleTimeout = 10 * time.Second
	}
	if cfg.JPEGQuality < 1 || cfg.JPEGQuality > 100 {
		cfg.JPEGQuality = 85
	}
	m := &Model{
		cfg: cfg, maxTokens: maxTokens, server: cfg.URL, name: cfg.Model,
		log:    log.With().Str("component", "remote").Str("server", cfg.URL).Logger(),
		client: newClient(),
		status: inference.Status{Phase: inference.PhaseUnloaded, Detail: "not asked yet: " + cfg.URL},
	}
	// The services are made by themselves because the library's client reads
	// keys and addresses from the environment.
	opts := []option.RequestOption{
		option.WithBaseURL(cfg.URL + "/"), option.WithHTTPClient(m.client), option.WithMaxRetries(0),
	}
	if cfg.APIKey != "" {
		opts = append(opts, option.WithAPIKey(string(cfg.APIKey)))
	}
	m.chat = openai.NewChatCompletionService(opts...)
	m.models = openai.NewModelService(opts...)
	return m, nil
}

// newClient returns an HTTP client that stays with the server it is given: a
// redirect would carry pictures to one that nobody chose.
func newClient() *http.Client {
	return &http.Client{
		Transport: &boundedTransport{&http.Transport{
			// No proxy: pictures go to the address that was chosen and nowhere else.
			DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
			TLSHandshakeTimeout: dialTimeout,
			MaxIdleConnsPerHost: 32,
			IdleConnTimeout:     90 * time.Second,
			ForceAttemptHTTP2:   true,
		}},
		CheckRedirect: func(req *http.Request, _ []*http.Request) error {
			return fmt.Errorf("the server points to %s, expected its own answer: set that address if you trust it",
				req.URL.Redacted())
		},
	}
}

// Name is "remote: " and the model's name.
func (m *Model) Name() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.name == "" {
		return "remote"
	}
	return "remote: " + m.name
}

// Status tells what is known of the server from the last exchange with it. The
// phase is unloaded until one succeeded, and ready from then on: whether a
// server that is gone is back shows only by asking it.
func (m *Model) Status() inference.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.status
}

// Capabilities are those of a vision-language model.
func (m *Model) Capabilities() inference.Capabilities {
	return inference.Capabilities{Instructions: true}
}

// NewSession opens a conversation. It keeps nothing but encoded pictures.
func (m *Model) NewSession() (inference.Session, error) {
	return &session{m: m, pictures: pictures{quality: m.cfg.JPEGQuality}}, nil
}

// Close closes the connections that are kept for the next prompt.
func (m *Model) Close() error {
	m.client.CloseIdleConnections()
	return nil
}

// Health is what Probe found.
type Health struct {
	// Reachable: the server listed its models.
	Reachable bool
	// Model is the one that prompts go to, "" when that is not clear.
	Model string
	// Models are all that the server lists.
	Models []string
	// Latency of the listing.
	Latency time.Duration
}

// Probe asks the server for its models, without sending a picture. The error is
// ErrUnreachable, ErrRefused or *inference.ModelMissingError, wrapped.
func (m *Model) Probe(ctx context.Context) (Health, error) {
	start := time.Now()
	models, err := m.list(ctx)
	if err != nil {
		m.say(false, err.Error())
		return Health{}, err
	}
	h := Health{Reachable: true, Models: models, Latency: time.Since(start)}
	name, err := m.choose(models)
	if err != nil {
		m.say(false, err.Error())
		return h, err
	}
	h.Model = name
	m.settle(name)
	m.say(true, fmt.Sprintf("%s on %s, answers in %d ms", name, m.server, h.Latency.Milliseconds()))
	return h, nil
}

// Warm makes the model ready: it checks that the server has it and lets it
// answer one word to one small made-up picture, so that the server loads it, and
// a model that cannot see is found out now. progress may be nil.
func (m *Model) Warm(ctx context.Context, progress func(percent int, detail string)) error {
	if progress == nil {
		progress = func(int, string) {}
	}
	progress(0, "looking for the model on "+m.server)
	h, err := m.Probe(ctx)
	if err != nil {
		if !errors.Is(err, errNoList) || m.cfg.Model == "" {
			return err
		}
		h.Model = m.cfg.Model // The server does not list models; the prompt below will tell.
		m.settle(h.Model)
	}
	progress(40, "waking "+h.Model+" on "+m.server)
	s := &session{m: m, pictures: pictures{quality: m.cfg.JPEGQuality}}
	grey := inference.Frame{Width: 112, Height: 112, Pix: slices.Repeat([]byte{128}, 112*112*3)}
	prompt := inference.Prompt{
		Text: "Which colour is this? One word.", Frames: []inference.Frame{grey}, MaxTokens: 8,
	}
	for _, err := range s.Generate(ctx, prompt) {
		if err != nil && !errors.Is(err, ErrNoAnswer) {
			return fmt.Errorf("warm up: %w", err)
		}
	}
	progress(100, h.Model+" on "+m.server+" is ready")
	return nil
}

// say sets what Status tells.
func (m *Model) say(ok bool, detail string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ok {
		m.status.Phase, m.status.Percent = inference.PhaseReady, 100
	}
	m.status.Detail = detail
}

func (m *Model) settle(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.name, m.resolved = name, true
}

// forget makes the next prompt look for the model again: the server was changed.
func (m *Model) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resolved = false
}

// modelName returns the model to ask for, and looks for it when the settings leave it open.
func (m *Model) modelName(ctx context.Context) (string, error) {
	m.mu.Lock()
	name, resolved := m.name, m.resolved
	m.mu.Unlock()
	if resolved || m.cfg.Model != "" {
		return name, nil
	}
	models, err := m.list(ctx)
	if err != nil {
		return "", err
	}
	if name, err = m.choose(models); err == nil {
		m.settle(name)
	}
	return name, err
}

// errNoList is returned when a server answers but has no list of models.
var errNoList = errors.New("it does not list its models")

// list returns the names of the server's models.
func (m *Model) list(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	page, err := m.models.List(ctx)
	if err != nil {
		var api *openai.Error
		if errors.As(err, &api) && (api.StatusCode == http.StatusNotFound || api.StatusCode == http.StatusMethodNotAllowed) {
			return nil, fmt.Errorf("%s: %w: %w", m.server, ErrRefused, errNoList)
		}
		return nil, fmt.Errorf("list models: %w", m.explain(ctx, err))
	}
	names := make([]string, 0, len(page.Data))
	for _, d := range page.Data {
		if d.ID != "" {
			names = append(names, d.ID)
		}
	}
	return names, nil
}

// choose picks the model that was asked for, or the only one there is.
func (m *Model) choose(models []string) (string, error) {
	if m.cfg.Model == "" && len(models) == 1 {
		return models[0], nil
	}
	for _, name := range models {
		// Ollama adds the tag itself.
		if m.cfg.Model != "" && (name == m.cfg.Model || name == m.cfg.Model+":latest") {
			return name, nil
		}
	}
	return "", &inference.ModelMissingError{Server: m.server, Model: m.cfg.Model, Available: models}
}
