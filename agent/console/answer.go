package console

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"touchline/agent/audioapi"
	"touchline/internal/check"
	"touchline/internal/limit"
)

// maxBody bounds every request's body, in bytes.
const maxBody = 64 << 10

// problem is an error answer.
type problem struct {
	status  int
	retry   int    // seconds after which the client may try again; 0 for no advice
	late    bool   // of a client beyond a limit, which waits for this answer
	Code    string `json:"code"`
	Message string `json:"message"`
	Request string `json:"request_id"`
}

// Error is the message.
func (p *problem) Error() string { return p.Message }

// after advises the client to try again after some seconds.
func (p *problem) after(seconds int) *problem {
	p.retry = seconds
	return p
}

// GetStatus implements huma.StatusError.
func (p *problem) GetStatus() int { return p.status }

func refuse(status int, code, format string, args ...any) *problem {
	return &problem{status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// apiFunc answers a request or returns an error. An error other than *problem becomes a 500.
type apiFunc func(w http.ResponseWriter, r *http.Request) error

// methods are the handlers of one path by method. GET also answers HEAD.
type methods map[string]apiFunc

// serve calls the handler of the method; an unknown method is a 405 with Allow.
func (m methods) serve(w http.ResponseWriter, r *http.Request) error {
	h, ok := m[r.Method]
	if !ok && r.Method == http.MethodHead {
		h, ok = m[http.MethodGet]
	}
	if ok {
		return h(w, r)
	}
	allow := []string{http.MethodOptions}
	for name := range m {
		allow = append(allow, name)
		if name == http.MethodGet {
			allow = append(allow, http.MethodHead)
		}
	}
	slices.Sort(allow)
	w.Header().Set("Allow", strings.Join(allow, ", "))
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return refuse(http.StatusMethodNotAllowed, "method_not_allowed",
		"%s is not allowed for %s; use %s", r.Method, r.URL.Path, strings.Join(allow, ", "))
}

// writeJSON answers with a value.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return writeBody(w, status, "application/json; charset=utf-8", append(b, '\n'))
}

// writeBody answers with a body. It always returns nil: a failed write means that the client disconnected.
func writeBody(w http.ResponseWriter, status int, kind string, body []byte) error {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
	return nil
}

// readJSON reads a body strictly into v: no unknown fields, one object, at most maxBody. If mayBeEmpty is set, an empty body leaves v
// unchanged.
func readJSON(w http.ResponseWriter, r *http.Request, v any, mayBeEmpty bool) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		if p, ok := errors.AsType[*problem](err); ok {
			return p
		}
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return refuse(http.StatusRequestEntityTooLarge, "body_too_large", "the body is larger than %d bytes", maxBody)
		}
		return refuse(http.StatusBadRequest, "bad_body", "read the body: %v", err)
	}
	return parseJSON(body, v, mayBeEmpty)
}

// parseJSON decodes a body strictly.
func parseJSON(body []byte, v any, mayBeEmpty bool) error {
	switch text := bytes.TrimSpace(body); {
	case len(text) == 0 && mayBeEmpty:
		return nil
	case len(text) == 0:
		return refuse(http.StatusBadRequest, "bad_json", "expected a JSON object, got an empty body")
	case text[0] != '{':
		return refuse(http.StatusBadRequest, "bad_json", "expected a JSON object")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return jsonProblem(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return refuse(http.StatusBadRequest, "bad_json", "expected one JSON object, got more after it")
	}
	return nil
}

func jsonProblem(err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return refuse(http.StatusBadRequest, "bad_json", "field %q: expected %s, got %s", e.Field, check.JSONKind(e), e.Value)
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return refuse(http.StatusBadRequest, "bad_json", "bad JSON at byte %d: %v", e.Offset, e)
	}
	// The decoder has no type for this error: json: unknown field "x".
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return refuse(http.StatusBadRequest, "unknown_field", "unknown field %s", field)
	}
	return refuse(http.StatusBadRequest, "bad_json", "bad JSON: %v", err)
}

// requestID returns the client's id if it is safe to repeat, otherwise a new id.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-ID")
	bad := func(c rune) bool { return c < 0x20 || c > 0x7e }
	if id == "" || len(id) > 64 || strings.ContainsFunc(id, bad) {
		return rand.Text()[:16]
	}
	return id
}

// answered records the sent status, for metrics and after panics.
type answered struct {
	http.ResponseWriter
	status int
}

// WriteHeader records the first final status.
func (a *answered) WriteHeader(status int) {
	if a.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write records that the answer has begun.
func (a *answered) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the real writer.
func (a *answered) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// internal returns the answer to an internal error.
func internal() *problem {
	return refuse(http.StatusInternalServerError, "internal", "internal error; see the log for this request id")
}

// fail writes an error as JSON unless an answer has begun.
func fail(w *answered, r *http.Request, id string, err error, log zerolog.Logger) {
	p, ok := errors.AsType[*problem](err)
	if !ok {
		log.Error().Err(err).Str("request_id", id).Msg("request failed")
		p = internal()
	}
	if w.status != 0 {
		return
	}
	w.Header().Del("Content-Length")
	if p.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.retry))
	}
	if strings.HasPrefix(r.URL.Path, inOpenAI) {
		(&audioapi.Error{Status: p.status, Code: p.Code, Message: p.Message}).Write(w)
		return
	}
	out := *p
	out.Request = id
	_ = writeJSON(w, out.status, out) // three strings always marshal
}

// changes reports whether a request may change something.
func changes(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions
}

// stoodStill refuses a request that may have waited while the process stood still: its sender gave up long ago.
func stoodStill() *problem {
	const text = "the server was paused, and this request may be from before; it was not carried out; try again in %v"
	return refuse(http.StatusServiceUnavailable, "stood_still", text, limit.DrainTime).after(int(limit.DrainTime / time.Second))
}

// checkedBody is a body that cannot be read any further once check returns an error.
type checkedBody struct {
	io.ReadCloser

	check func() error
}

// Read implements io.Reader.
func (b checkedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if refused := b.check(); refused != nil {
		return 0, refused
	}
	return n, err
}

// wrap returns a handler that answers errors as JSON and recovers from panics.
func (s *Server) wrap(h apiFunc) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		id := requestID(r)
		w := &answered{ResponseWriter: rw}
		w.Header().Set("X-Request-ID", id)
		defer func() {
			if v := recover(); v != nil {
				if v == http.ErrAbortHandler { //nolint:errorlint // a panic's value, compared as net/http does
					panic(v)
				}
				s.log.Error().Str("request_id", id).Str("path", r.URL.Path).
					Interface("panic", v).Str("stack", string(debug.Stack())).Msg("handler panicked")
				fail(w, r, id, internal(), s.log)
			}
			s.requests.WithLabelValues(r.Pattern, strconv.Itoa(cmp.Or(w.status, http.StatusOK))).Inc()
		}()
		serve := h
		if now := time.Now(); changes(r) && s.still.Stale(now, now) {
			serve = func(http.ResponseWriter, *http.Request) error { return stoodStill() }
		}
		r.Body = checkedBody{r.Body, func() error { // the process may stand still meanwhile
			if now := time.Now(); s.still.Stale(now, now) {
				return stoodStill()
			}
			return nil
		}}
		if err := serve(w, r); err != nil {
			if p, ok := errors.AsType[*problem](err); ok && p.late {
				s.detention.Wait(r.Context())
			}
			fail(w, r, id, err, s.log)
		}
	}
}
