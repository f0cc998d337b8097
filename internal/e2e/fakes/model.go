// Package fakes has servers with the faults of real ones, one fault a path. It is for tests and touchline-bench only.
package fakes

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// Answer is what a model of Model says.
const Answer = "A red player shoots."

// clockStep is the time between the words of the fault clock.
const clockStep = 50 * time.Millisecond

// Model is a model server for /FAULT/v1: each path behaves as reports of a server or a model describe. An unknown fault is a 404.
func Model() http.Handler {
	mux := http.NewServeMux()
	faults := modelFaults()
	mux.HandleFunc("GET /{fault}/v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"object":"list","data":[{"id":"m","object":"model","owned_by":"fake"}]}`)
	})
	mux.HandleFunc("POST /{fault}/v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if answer := faults[r.PathValue("fault")]; answer != nil {
			answer(w, body)
			return
		}
		http.NotFound(w, r)
	})
	return mux
}

// chat answers a request.
type chat func(w http.ResponseWriter, body map[string]any)

// modelFaults returns the faults by their paths.
func modelFaults() map[string]chat {
	out := refusals()
	maps.Copy(out, answers())
	maps.Copy(out, bodies())
	return out
}

func good(w http.ResponseWriter, _ map[string]any) { say(w, "stop", Answer) }

// refusals are those of a part of the request.
func refusals() map[string]chat {
	refuses := func(text string, is func(body map[string]any) bool) chat {
		return func(w http.ResponseWriter, body map[string]any) {
			if is(body) {
				refuse(w, http.StatusBadRequest, text)
				return
			}
			good(w, body)
		}
	}
	has := func(name string) func(map[string]any) bool {
		return func(body map[string]any) bool { return body[name] != nil }
	}
	return map[string]chat{
		"good": good,
		"max-tokens": refuses("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
			has("max_tokens")),
		"extra-inputs": refuses("Extra inputs are not permitted", has("chat_template_kwargs")),
		"one-picture": refuses("At most 1 image(s) may be provided in one request.", func(body map[string]any) bool {
			return strings.Count(fmt.Sprint(body["messages"]), "data:image") > 1
		}),
		"no-system": refuses("System role not supported", func(body map[string]any) bool {
			return strings.Contains(fmt.Sprint(body["messages"]), "role:system")
		}),
		"retry-after-date": once(func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", time.Now().Add(2*time.Second).UTC().Format(http.TimeFormat))
			refuse(w, http.StatusTooManyRequests, "busy")
		}),
		"first-event-error": once(func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, `data: {"error":{"message":"EngineCore died"}}`+"\n\n")
		}),
	}
}

// answers have thoughts, marks, or no words.
func answers() map[string]chat {
	said := func(pieces ...string) chat {
		return func(w http.ResponseWriter, _ map[string]any) { say(w, "stop", pieces...) }
	}
	return map[string]chat{
		"thinks-unless-none": func(w http.ResponseWriter, body map[string]any) {
			if body["reasoning_effort"] == "none" {
				good(w, body)
				return
			}
			think(w, "length", "Okay, the user wants one sentence")
		},
		"thoughts-unopened": func(w http.ResponseWriter, body map[string]any) {
			if n, ok := body["max_tokens"].(float64); ok && n < 16 {
				say(w, "length", "Okay, the user", " wants one")
				return
			}
			say(w, "stop", "Okay, the user wants", " one sentence.", "\n</thi", "nk>\n\n", Answer)
		},
		"medgemma": said("<unused", "94>thought\nhm<unused95>", Answer),
		"glm-box":  said("<|begin_of_", "box|>", Answer, "<|end_of_box|>"),
		"kimi":     said("◁think▷hm", "◁/think▷", Answer),
		"harmony": said("<|channel|>analysis<|message|>hm<|end|>", "<|start|>assistant<|channel|>final<|message|>", Answer,
			"<|return|>"),
		"answer-reasoning": func(w http.ResponseWriter, _ map[string]any) { think(w, "stop", Answer) },
		"clock": func(w http.ResponseWriter, _ map[string]any) { // the times of its words, as Unix time in ns
			w.Header().Set("Content-Type", "text/event-stream")
			for range 3 {
				fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":\"%d \"}}]}\n\n", time.Now().UnixNano())
				_ = http.NewResponseController(w).Flush() // the client may have left
				<-time.After(clockStep)
			}
			say(w, "stop")
		},
		"empty":  func(w http.ResponseWriter, _ map[string]any) { say(w, "stop") },
		"filter": func(w http.ResponseWriter, _ map[string]any) { say(w, "content_filter") },
	}
}

// bodies have another form than the one that was asked for or is declared.
func bodies() map[string]chat {
	raw := func(kind, text string) chat {
		return func(w http.ResponseWriter, _ map[string]any) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, text)
		}
	}
	failing := func(status int, text string) chat {
		return func(w http.ResponseWriter, _ map[string]any) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, text)
		}
	}
	whole := `{"choices":[{"message":{"content":"` + Answer + `"},"finish_reason":"stop"}]}`
	event := func(choice string) string { return "data: {\"choices\":[{" + choice + "}]}\n\n" }
	return map[string]chat{
		"message-and-delta": raw("text/event-stream", event(`"message":{"content":"A red "},"delta":{"content":"A red "}`)+
			event(`"message":{"content":"`+Answer+`"},"delta":{"content":"player shoots."},"finish_reason":"stop"`)),
		"stop-each": raw("text/event-stream", event(`"delta":{"content":"A red "},"finish_reason":"stop"`)+
			event(`"delta":{"content":"player shoots."},"finish_reason":"stop"`)+"data: [DONE]\n\n"),
		"null-reason": raw("text/event-stream", event(`"delta":{"content":"A red "},"finish_reason":"null"`)+
			event(`"delta":{"content":"player shoots."},"finish_reason":"stop"`)),
		"status-200": raw("application/json", `{"base_resp":{"status_code":1004,"status_msg":"login fail"}}`),
		"other-server": failing(http.StatusForbidden,
			`{"error":{"message":"Provider returned error","metadata":{"raw":"{\"message\":\"no quota\"}"}}}`),
		"page-524":       failing(524, "<!DOCTYPE html><head><title>a.example | 524: A timeout occurred</title></head>"),
		"html":           raw("text/html; charset=utf-8", "<!DOCTYPE html><title>Log in</title>"),
		"json-as-events": raw("text/event-stream", whole),
		"events-as-json": raw("application/json", "data: "+whole+"\n\ndata: [DONE]\n\n"),
		"ndjson":         raw("application/x-ndjson", `{"message":{"content":"`+Answer+`"},"done":false}`+"\n"+`{"done":true}`+"\n"),
		"parts":          raw("application/json", `{"choices":[{"message":{"content":[{"type":"text","text":"`+Answer+`"}]}}]}`),
		"bare-cr":        raw("text/event-stream", "data: "+whole+"\r\rdata: [DONE]\r\r"),
	}
}

// once fails every other request, the first one too.
func once(bad func(http.ResponseWriter)) chat {
	var calls atomic.Int64
	return func(w http.ResponseWriter, body map[string]any) {
		if calls.Add(1)%2 == 1 {
			bad(w)
			return
		}
		good(w, body)
	}
}

// say streams an answer.
func say(w http.ResponseWriter, finish string, pieces ...string) {
	stream(w, "content", finish, pieces)
}

// think streams an answer of reasoning alone.
func think(w http.ResponseWriter, finish string, pieces ...string) {
	stream(w, "reasoning", finish, pieces)
}

func stream(w http.ResponseWriter, field, finish string, pieces []string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, p := range pieces {
		text, _ := json.Marshal(p) // a string
		fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{%q:%s}}]}\n\n", field, text)
	}
	fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{},\"finish_reason\":%q}]}\n\ndata: [DONE]\n\n", finish)
}

// refuse answers with an error in OpenAI's form.
func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"message":%q}}`, text)
}
