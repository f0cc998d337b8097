package prompt

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"touchline/internal/check"
)

const (
	// MaxForm bounds a profile or a background as a text, in bytes.
	MaxForm = 8 << 10
	// maxDepth bounds the lists and groups within each other in such a text.
	maxDepth = 6
)

// group is a group of fields, in the order of the text.
type group struct {
	names  []string
	values []any // string, []any or group
}

// readForm reads a text in YAML, of which JSON is a part: a group without anchors, aliases and tags. Numbers
// are returned as written. The time it takes grows with the square of the size: callers bound it. The library's own strict decoding is not
// used, because it ends at the first error, names Go types in it, allows aliases and tags, and writes 1.50 as 1.5.
func readForm(text []byte) (group, error) {
	if !utf8.Valid(text) {
		return group{}, errors.New("expected UTF-8, got another encoding: save the text as UTF-8")
	}
	file, err := parser.ParseBytes([]byte(strings.TrimPrefix(string(text), "\ufeff")), 0)
	if err != nil {
		if at, ok := errors.AsType[yaml.Error](err); ok && at.GetToken() != nil {
			p := at.GetToken().Position
			return group{}, fmt.Errorf("line %d, column %d: expected YAML or JSON: %s", p.Line, p.Column, at.GetMessage())
		}
		return group{}, fmt.Errorf("expected YAML or JSON: %w", err)
	}
	var root ast.Node
	for _, d := range file.Docs {
		if d == nil || d.Body == nil || d.Body.Type() == ast.CommentType {
			continue
		}
		if root != nil {
			return group{}, errors.New("expected one YAML document, got several")
		}
		root = d.Body
	}
	v, err := formValue(root, 0)
	if err != nil {
		return group{}, err
	}
	switch v := v.(type) {
	case group:
		return v, nil
	case string:
		if v == "" {
			return group{}, nil
		}
	}
	return group{}, errors.New("expected a group of fields, such as name: value")
}

// formValue returns the value of a node, depth levels below the root.
func formValue(n ast.Node, depth int) (any, error) {
	if depth > maxDepth {
		return nil, formError(n, "lists and groups go at most %d deep", maxDepth)
	}
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return "", nil
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, nil
	case *ast.SequenceNode:
		list := make([]any, len(n.Values))
		for i, item := range n.Values {
			var err error
			if list[i], err = formValue(item, depth+1); err != nil {
				return nil, err
			}
		}
		return list, nil
	case *ast.MappingNode:
		return formGroup(n.Values, depth)
	case *ast.MappingValueNode:
		return formGroup([]*ast.MappingValueNode{n}, depth)
	}
	return nil, formError(n, "anchors, aliases, tags and merge keys are not allowed")
}

func formGroup(fields []*ast.MappingValueNode, depth int) (group, error) {
	var g group
	for _, f := range fields {
		if _, merge := f.Key.(*ast.MergeKeyNode); merge {
			return g, formError(f, "merge keys are not allowed")
		}
		name, err := formValue(f.Key, maxDepth) // a name is no list or group
		if err != nil {
			return g, err
		}
		text, ok := name.(string)
		if !ok || text == "" {
			return g, formError(f, "expected a name before the colon")
		}
		if slices.Contains(g.names, text) {
			return g, formError(f, "%.40q is there twice", text)
		}
		v, err := formValue(f.Value, depth+1)
		if err != nil {
			return g, err
		}
		g.names, g.values = append(g.names, text), append(g.values, v)
	}
	return g, nil
}

func formError(n ast.Node, format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return errors.New(message)
	}
	at := n.GetToken().Position
	return fmt.Errorf("line %d, column %d: %s", at.Line, at.Column, message)
}

// binder reads the values of a form and collects what is wrong with them.
type binder struct{ bad check.Settings }

// fields returns the values of a group by name; unknown names are wrong.
func (b *binder) fields(path string, v any, known ...string) map[string]any {
	out := map[string]any{}
	g, ok := v.(group)
	if !ok {
		if text, isText := v.(string); isText && text == "" {
			return out
		}
		b.bad.That(false, cmp.Or(path, "it"), "a group of "+strings.Join(known, ", "), kindOf(v))
		return out
	}
	for i, name := range g.names {
		if !slices.Contains(known, name) {
			unknown := fmt.Sprintf("unknown field %.40q; known are %s", name, strings.Join(known, ", "))
			if path != "" {
				unknown = path + ": " + unknown
			}
			b.bad.Add(errors.New(unknown))
			continue
		}
		out[name] = g.values[i]
	}
	return out
}

// list returns the items of a list; an absent one has none.
func (b *binder) list(path string, v any) []any {
	switch v := v.(type) {
	case nil:
		return nil
	case []any:
		return v
	case string:
		if v == "" {
			return nil
		}
	}
	b.bad.That(false, path, "a list", kindOf(v))
	return nil
}

// line returns a text in one line of at most some characters; a required one is not empty.
func (b *binder) line(path string, v any, most int, required bool) string {
	text, ok := v.(string)
	if !ok && v != nil {
		b.bad.That(false, path, "text", kindOf(v))
		return ""
	}
	text = strings.TrimSpace(text)
	bad := utf8.RuneCountInString(text) > most || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
	rule := fmt.Sprintf("at most %d characters in one line", most)
	if required {
		bad = bad || text == ""
		rule = "1 to " + strings.TrimPrefix(rule, "at most ")
	}
	b.bad.That(!bad, path, rule, fmt.Sprintf("%.40q", text))
	return text
}

func kindOf(v any) string {
	switch v := v.(type) {
	case group:
		return "a group"
	case []any:
		return "a list"
	case string:
		return fmt.Sprintf("%.40q", v)
	}
	return "empty"
}

// texts returns a group of texts by name.
func (b *binder) texts(path string, v any) map[string]string {
	g, ok := v.(group)
	if !ok {
		b.bad.That(v == nil || v == "", path, "a group of texts", kindOf(v))
		return nil
	}
	out := make(map[string]string, len(g.names))
	for i, name := range g.names {
		text, ok := g.values[i].(string)
		if !ok {
			b.bad.That(false, path+"."+name, "text", kindOf(g.values[i]))
			continue
		}
		out[name] = strings.TrimSpace(text)
	}
	return out
}
