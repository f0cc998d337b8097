package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// endpoint is one operation of the API, with its handler and its description in the OpenAPI document.
type endpoint struct {
	method, path string
	level        accessLevel
	call         apiFunc
	inRoom       roomFunc // call, for the operations on a room
	summary      string
	query        []*huma.Param
	inKind       string // the body's content type, when it is not JSON
	in, out      any    // zero values of the body's and the answer's types; nil for none
	status       int    // of success; 200 when 0
	kind         string // the answer's content type, when it is not JSON
}

// document collects the API's description and huma's handlers.
type document struct {
	huma.API
	server *Server
	found  []endpoint
}

// newDocument begins an empty API.
func newDocument(s *Server) *document {
	d := &document{server: s}
	d.API = huma.NewAPI(huma.Config{
		OpenAPI: &huma.OpenAPI{
			Info: &huma.Info{
				Title:   "Touchline",
				Version: "1",
				Description: "Live commentary in LiveKit rooms. The paths of a room are below /api/rooms/{room}; the same paths below /api " +
					"are those of the only room. A token is required from other machines.",
			},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", schemaName),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"token":  {Type: "http", Scheme: "bearer"},
					"cookie": {Type: "apiKey", In: "cookie", Name: tokenCookie},
				},
			},
			Servers: []*huma.Server{{URL: "/"}},
		},
		Formats:       map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
		DefaultFormat: "application/json",
		Transformers:  []huma.Transformer{d.answer},
	}, d)
	return d
}

// Handle implements huma.Adapter: it makes huma's operation an endpoint with the same checks as the others.
func (d *document) Handle(op *huma.Operation, handler func(huma.Context)) {
	d.found = append(d.found, endpoint{
		method: op.Method, path: op.Path, level: restricted,
		call: func(w http.ResponseWriter, r *http.Request) error {
			r = r.WithContext(context.WithValue(r.Context(), callerKey{}, by(r)))
			handler(humago.NewContext(op, r, w))
			return nil
		},
	})
}

// ServeHTTP implements huma.Adapter; the Server's own mux serves.
func (d *document) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "not served here", http.StatusNotFound)
}

// callerKey is the context key of a request's client.
type callerKey struct{}

// caller names the client of a request's context.
func caller(ctx context.Context) string {
	who, _ := ctx.Value(callerKey{}).(string)
	return who
}

// answer converts huma's answers to the format of the other answers.
func (d *document) answer(ctx huma.Context, _ string, v any) (any, error) {
	_, w := humago.Unwrap(ctx)
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	switch e := v.(type) {
	case *problem:
		out := *e
		out.Request = w.Header().Get("X-Request-ID")
		return out, nil
	case *huma.ErrorModel:
		return d.problem(e, w.Header().Get("X-Request-ID")), nil
	default:
		return v, nil
	}
}

// problem converts huma's error.
func (d *document) problem(e *huma.ErrorModel, id string) problem {
	out := problem{status: e.Status, Code: "bad_json", Message: e.Detail, Request: id}
	switch e.Status {
	case http.StatusUnprocessableEntity:
		out.Code = "bad_fields"
	case http.StatusRequestEntityTooLarge:
		out.Code, out.Message = "body_too_large", fmt.Sprintf("the body is larger than %d bytes", maxBody)
	case http.StatusUnsupportedMediaType:
		out.Code = "bad_content_type"
	case http.StatusInternalServerError:
		d.server.log.Error().Str("request_id", id).Any("details", e.Errors).Msg("request failed")
		out.Code, out.Message = "internal", "internal error; see the log for this request id"
		return out
	}
	if len(e.Errors) > 0 {
		var wrong []error
		for _, detail := range e.Errors {
			wrong = append(wrong, detail)
		}
		out.Message = strings.Join(sentences(wrong), "; ")
	}
	return out
}

// sentences describes errors, one for each field.
func sentences(errs []error) []string {
	var out []string
	for _, err := range errs {
		detail, ok := errors.AsType[*huma.ErrorDetail](err)
		if !ok {
			out = append(out, strings.Split(err.Error(), "\n")...)
			continue
		}
		if field := strings.TrimPrefix(strings.TrimPrefix(detail.Location, "body"), "."); field != "" {
			out = append(out, field+": "+detail.Message)
		} else {
			out = append(out, detail.Message)
		}
	}
	return out
}

// schema returns the schema of a value's type, as a reference for a named type.
func (d *document) schema(v any) *huma.Schema {
	t := reflect.TypeOf(v)
	return d.OpenAPI().Components.Schemas.Schema(t, true, "")
}

// schemaName names a type in the document, where some have an older name.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	return cmp.Or(map[string]string{
		"Trace": "RawLook", "TracePicture": "RawPicture", "RuleText": "AlertRule", "RuleStatus": "AlertRuleStatus",
		"Notice": "Announcement",
	}[name], name)
}

// errorAnswer describes the answers with errors.
func (d *document) errorAnswer() *huma.Response {
	return &huma.Response{
		Description: "An error; the log has more under its request id.",
		Content:     map[string]*huma.MediaType{"application/json": {Schema: d.schema(problem{})}},
	}
}

// secured lists the security schemes of an access level.
func secured(level accessLevel) []map[string][]string {
	if level == public {
		return nil
	}
	return []map[string][]string{{"token": {}}, {"cookie": {}}}
}

// describe adds an endpoint without huma to the document.
func (d *document) describe(e endpoint) {
	op := &huma.Operation{
		Method: e.method, Path: e.path, OperationID: operationID(e.method, e.path), Summary: e.summary,
		Tags: []string{tagOf(e.path)}, Security: secured(e.level), Parameters: slices.Clone(e.query),
	}
	for part := range strings.SplitSeq(e.path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			op.Parameters = append(op.Parameters, &huma.Param{
				Name: strings.TrimSuffix(name, "}"), In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString},
			})
		}
	}
	if e.inKind != "" && e.in == nil {
		op.RequestBody = &huma.RequestBody{
			Required: true, Content: map[string]*huma.MediaType{e.inKind: {Schema: &huma.Schema{Type: huma.TypeString}}},
		}
	}
	if e.in != nil {
		op.RequestBody = &huma.RequestBody{
			Required: true, Content: map[string]*huma.MediaType{cmp.Or(e.inKind, "application/json"): {Schema: d.schema(e.in)}},
		}
	}
	status := cmp.Or(e.status, http.StatusOK)
	done := &huma.Response{Description: http.StatusText(status)}
	switch {
	case e.kind != "":
		done.Content = map[string]*huma.MediaType{e.kind: {Schema: &huma.Schema{Type: huma.TypeString}}}
	case e.out != nil:
		done.Content = map[string]*huma.MediaType{"application/json": {Schema: d.schema(e.out)}}
	}
	op.Responses = map[string]*huma.Response{strconv.Itoa(status): done, "default": d.errorAnswer()}
	d.OpenAPI().AddOperation(op)
}

// operationID names an operation, such as get-rooms-room-status.
func operationID(method, path string) string {
	path = strings.TrimPrefix(path, "/api")
	path = strings.NewReplacer("{", "", "}", "", "/", "-", ".", "-").Replace(path)
	return strings.ToLower(method) + path
}

// tagOf returns the OpenAPI tag that groups a path's operations.
func tagOf(path string) string {
	switch {
	case strings.HasPrefix(path, "/api/rooms/{room}/"):
		return "one room"
	case strings.HasPrefix(path, "/api/rooms"):
		return "rooms"
	case path == "/api/login" || !strings.HasPrefix(path, "/api/"):
		return "the process"
	default:
		return "the only room"
	}
}

// endpoints serve the finished document, as JSON and as YAML.
func (d *document) endpoints() []endpoint {
	list := []endpoint{
		{path: "/openapi.json", kind: "application/openapi+json", summary: "This document as JSON"},
		{path: "/openapi.yaml", kind: "application/openapi+yaml", summary: "This document as YAML"},
	}
	for i, body := range []func() ([]byte, error){d.json, d.OpenAPI().YAML} {
		e := &list[i]
		e.method, e.level, e.call = http.MethodGet, restricted, fixed(e.kind, body)
		d.describe(*e)
	}
	// huma lists its error model, which no answer uses.
	delete(d.OpenAPI().Components.Schemas.Map(), "ErrorModel")
	delete(d.OpenAPI().Components.Schemas.Map(), "ErrorDetail")
	return list
}

func (d *document) json() ([]byte, error) {
	text, err := json.MarshalIndent(d.OpenAPI(), "", "  ")
	return append(text, '\n'), err
}

// fixed returns a handler with a constant answer, made at the first request.
func fixed(kind string, body func() ([]byte, error)) apiFunc {
	once := sync.OnceValues(body)
	return func(w http.ResponseWriter, _ *http.Request) error {
		text, err := once()
		if err != nil {
			return fmt.Errorf("write the OpenAPI document: %w", err)
		}
		return writeBody(w, http.StatusOK, kind, text)
	}
}

// fields reads the body of a PATCH into a value, and returns an error for each field that breaks the schema.
func (d *document) fields(body []byte, schema *huma.Schema, into any) (wrong []error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	var parsed map[string]any
	if err := dec.Decode(&parsed); err != nil || parsed == nil || dec.More() {
		return []error{refuse(http.StatusBadRequest, "bad_json", "expected one JSON object")}
	}
	var res huma.ValidateResult
	huma.Validate(d.OpenAPI().Components.Schemas, schema, huma.NewPathBuffer(nil, 0), huma.ModeWriteToServer, parsed, &res)
	// Field by field, so that one of the wrong type does not hide the others.
	for key, value := range parsed {
		fill(into, key, value)
	}
	return res.Errors
}

// fill sets one field of into, unless the value has another type.
func fill(into any, key string, value any) {
	if inner, ok := value.(map[string]any); ok && len(inner) > 1 {
		for k, v := range inner {
			fill(into, key, map[string]any{k: v})
		}
		return
	}
	text, err := json.Marshal(map[string]any{key: value})
	if err == nil {
		_ = json.Unmarshal(text, into) // the schema has reported it
	}
}
