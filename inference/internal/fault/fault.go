// Package fault reads the errors of model, transcription and speech servers.
package fault

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html"
	"regexp"
	"strings"
	"unicode"
)

// Text returns the messages of an error in JSON, the title of a page, or else the text.
func Text(raw []byte) string {
	var value any
	if json.Unmarshal(raw, &value) == nil {
		if text := Messages(value); text != "" {
			return Shorten(text)
		}
	}
	if title := pageTitle.FindSubmatch(raw); title != nil {
		return Shorten(html.UnescapeString(string(title[1])))
	}
	return Shorten(string(raw))
}

var pageTitle = regexp.MustCompile(`(?is)^\s*<.*?<title[^>]*>([^<]+)`)

// Messages returns the messages of an error: a text, a list of errors, or an object with one of the usual fields. FastAPI adds the
// place of the fault, OpenRouter the error of the server behind it.
func Messages(value any) string {
	switch v := value.(type) {
	case string:
		return strings.TrimSpace(v)
	case []any:
		var texts []string
		for _, e := range v {
			if text := Messages(e); text != "" {
				texts = append(texts, text)
			}
		}
		return strings.Join(texts, "; ")
	case map[string]any:
		text := ""
		for _, name := range []string{"error", "errors", "message", "Message", "detail", "msg"} {
			text = cmp.Or(text, Messages(v[name]))
		}
		if place, ok := v["loc"].([]any); ok && text != "" {
			text = strings.Trim(fmt.Sprint(place), "[]") + ": " + text
		}
		if inner, ok := v["metadata"].(map[string]any); ok {
			if raw, ok := inner["raw"].(string); ok && raw != "" {
				text += ": " + Text([]byte(raw))
			}
		}
		return text
	}
	return ""
}

// Shorten makes a server's text printable, of at most 300 characters.
func Shorten(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.TrimSpace(s))
	if r := []rune(s); len(r) > 300 {
		s = string(r[:300]) + "…"
	}
	return s
}
