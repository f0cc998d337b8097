package configs

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// document is one parsed YAML text.
type document struct {
	name    string // the file, or "preset owl"
	lines   []string
	root    ast.Node
	anchors map[string]ast.Node
}

// parse parses YAML. A syntax error is the only problem reported for such a text.
func (l *loader) parse(name string, text []byte) document {
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // Some editors write a byte order mark.
	doc := document{name: name, lines: strings.Split(string(text), "\n"), anchors: map[string]ast.Node{}}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		p := Problem{Message: "expected YAML: " + firstLine(err.Error()), Position: Position{File: name}}
		var at yaml.Error
		if errors.As(err, &at) && at.GetToken() != nil {
			p.Message = "expected YAML: " + at.GetMessage()
			p.Line, p.Column = at.GetToken().Position.Line, at.GetToken().Position.Column
			p.Excerpt = doc.excerpt(p.Line, p.Column)
		}
		l.bad = append(l.bad, p)
		return doc
	}
	var bodies []ast.Node
	for _, d := range file.Docs {
		if d != nil && d.Body != nil && d.Body.Type() != ast.CommentType {
			bodies = append(bodies, d.Body)
		}
	}
	if len(bodies) > 1 {
		l.fail(doc, bodies[1], "", "expected one YAML document, got "+strconv.Itoa(len(bodies)))
		return doc
	}
	if len(bodies) == 1 {
		doc.root = bodies[0]
		ast.Walk(anchorFinder(doc.anchors), doc.root)
	}
	return doc
}

// anchorFinder collects anchors ("&name") for aliases ("*name").
type anchorFinder map[string]ast.Node

// Visit implements ast.Visitor.
func (a anchorFinder) Visit(n ast.Node) ast.Visitor {
	if m, ok := n.(*ast.AnchorNode); ok && m.Name != nil && m.Value != nil {
		a[m.Name.GetToken().Value] = m.Value
	}
	return a
}

// text returns the value of a top-level text setting, or "".
func (d document) text(key string) string {
	value := ""
	d.entries(d.root, func(e *ast.MappingValueNode) {
		if e.Key.GetToken().Value == key {
			if s, ok := d.resolve(e.Value).(*ast.StringNode); ok {
				value = s.Value
			}
		}
	})
	return value
}

// entries calls fn for each entry of a mapping. It returns false if n is none.
func (d document) entries(n ast.Node, fn func(*ast.MappingValueNode)) bool {
	switch n := d.resolve(n).(type) {
	case nil, *ast.NullNode:
	case *ast.MappingNode:
		for _, e := range n.Values {
			fn(e)
		}
	case *ast.MappingValueNode:
		fn(n)
	default:
		return false
	}
	return true
}

// resolve follows anchors, aliases and tags to the value.
func (d document) resolve(n ast.Node) ast.Node {
	for range 16 { // An alias can refer to itself.
		switch m := n.(type) {
		case *ast.AnchorNode:
			n = m.Value
		case *ast.AliasNode:
			if m.Value == nil {
				return nil
			}
			n = d.anchors[m.Value.GetToken().Value]
		case *ast.TagNode:
			n = m.Value
		default:
			return n
		}
	}
	return nil
}

// apply overwrites settings with a document. layer names a preset; it is "" for the user's file.
func (l *loader) apply(doc document, layer string) {
	if doc.root != nil {
		l.applyGroup(doc, doc.root, l.schema, layer)
	}
}

// removed holds, for each setting of an earlier version, what to do about it.
var removed = map[string]string{ //nolint:gochecknoglobals // a table
	"inference.minicpmo.vocoder":           noOwnVoice,
	"inference.minicpmo.vocoder_precision": noOwnVoice,
	"inference.minicpmo.reference_audio":   noOwnVoice,

	"agent.history.rotate_bytes": "files are closed at a sixteenth of max_bytes; delete it",
	"agent.history.rotate_after": "files are closed after max_age, at most a day; delete it",
	"agent.worker.namespace":     "LiveKit servers dispatch by agent_name and deployment; delete it",
}

const noOwnVoice = "the voice is chosen by inference.voice; delete it"

func (l *loader) applyGroup(doc document, n ast.Node, g *group, layer string) {
	ok := doc.entries(n, func(e *ast.MappingValueNode) {
		key := e.Key.GetToken().Value
		path := strings.TrimPrefix(g.path+"."+key, ".")
		if e.Key.IsMergeKey() {
			l.fail(doc, e.Key, g.path, `merge keys ("<<") are not supported: write the settings out`)
			return
		}
		if sub, ok := g.groups[key]; ok {
			l.applyGroup(doc, e.Value, sub, layer)
			return
		}
		if leaf, ok := g.leaves[key]; ok {
			l.applyLeaf(doc, e, leaf, layer)
			return
		}
		if secret := g.secret(key); secret != nil {
			l.fail(doc, e.Key, secret.path, fmt.Sprintf("%q is a secret: set it in the environment (%s)", key, secret.env))
			l.bad[len(l.bad)-1].Excerpt = "" // It would print the secret.
			return
		}
		if why := removed[path]; why != "" {
			l.fail(doc, e.Key, path, "this setting was removed: "+why)
			return
		}
		l.unknown(doc, e, path, g.order)
	})
	if !ok {
		l.fail(doc, n, g.path, "must be a group of settings, is "+describe(n))
	}
}

func (l *loader) applyLeaf(doc document, e *ast.MappingValueNode, leaf *leaf, layer string) {
	field := reflect.ValueOf(&l.cfg).Elem().FieldByIndex(leaf.index)
	l.forgetItems(leaf.path)
	var ok bool
	if list, is := doc.resolve(e.Value).(*ast.SequenceNode); is && leaf.ofGroups() {
		ok = l.applyItems(doc, list, leaf, field)
	} else {
		ok = l.set(doc, e, leaf.path, field)
	}
	switch {
	case ok && layer != "":
		l.origins[leaf.path] = origin{name: layer}
	case ok:
		l.origins[leaf.path] = doc.originAt(e.Key)
	}
}

// unknown reports an entry that names no setting, with the nearest name.
func (l *loader) unknown(doc document, e *ast.MappingValueNode, path string, names []string) {
	key := e.Key.GetToken().Value
	message := fmt.Sprintf("unknown field %q", key)
	if guess := nearest(key, names); guess != "" {
		message += fmt.Sprintf(", did you mean %q?", guess)
	}
	l.fail(doc, e.Key, path, message)
}

// set sets a field to an entry's value. It reports a value of another kind and
// returns false.
func (l *loader) set(doc document, e *ast.MappingValueNode, path string, field reflect.Value) bool {
	value := doc.resolve(e.Value)
	if setNode(doc, field, value) {
		return true
	}
	at := ast.Node(e.Key)
	if value != nil && value.Type() != ast.NullType {
		at = e.Value
	}
	l.fail(doc, at, path, "must be "+kindOf(field.Type())+", is "+describe(value))
	return false
}

func (d document) originAt(n ast.Node) origin {
	at := d.position(n)
	return origin{name: fmt.Sprintf("%s line %d", filepath.Base(d.name), at.Line), Position: at}
}

// applyItems reads a list of groups or texts. If an item is wrong it returns false
// and leaves the setting unchanged.
func (l *loader) applyItems(doc document, n *ast.SequenceNode, leaf *leaf, field reflect.Value) bool {
	list := reflect.MakeSlice(field.Type(), len(n.Values), len(n.Values))
	before := len(l.bad)
	for i, item := range n.Values {
		path := fmt.Sprintf("%s[%d]", leaf.path, i)
		item = doc.resolve(item)
		if text, ok := textOf(item); ok && text != "" {
			if err := list.Index(i).Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text)); err != nil {
				l.fail(doc, item, path, err.Error())
			}
		} else if item == nil || item.Type() == ast.NullType || !l.applyItem(doc, item, path, list.Index(i)) {
			l.fail(doc, n.Values[i], path, "must be text or a group of settings, is "+describe(item))
		}
		l.origins[path] = doc.originAt(begins(n.Values[i]))
	}
	if len(l.bad) > before {
		l.forgetItems(leaf.path)
		return false
	}
	setItems(field, list)
	return true
}

// setItems sets a list; an empty one is nil.
func setItems(field, list reflect.Value) {
	if list.Len() == 0 {
		list = reflect.Zero(field.Type())
	}
	field.Set(list)
}

// begins returns the node at the start of a group: its first key, not the colon after it.
func begins(n ast.Node) ast.Node {
	switch m := n.(type) {
	case *ast.MappingNode:
		if len(m.Values) > 0 {
			return m.Values[0].Key
		}
	case *ast.MappingValueNode:
		return m.Key
	}
	return n
}

// applyItem reads one group of a list. It returns false if n is no group.
func (l *loader) applyItem(doc document, n ast.Node, path string, item reflect.Value) bool {
	fields := map[string]reflect.Value{}
	var names []string
	for _, f := range reflect.VisibleFields(item.Type()) {
		if f.Anonymous {
			continue // its fields follow
		}
		fields[f.Tag.Get("yaml")] = item.FieldByIndex(f.Index)
		names = append(names, f.Tag.Get("yaml"))
	}
	return doc.entries(n, func(e *ast.MappingValueNode) {
		key := e.Key.GetToken().Value
		field, ok := fields[key]
		if !ok {
			l.unknown(doc, e, path+"."+key, names)
			return
		}
		l.set(doc, e, path+"."+key, field)
		l.origins[path+"."+key] = doc.originAt(e.Key)
	})
}

// forgetItems deletes the origins of a list's items.
func (l *loader) forgetItems(path string) {
	maps.DeleteFunc(l.origins, func(p string, _ origin) bool { return strings.HasPrefix(p, path+"[") })
}

// setNode sets a field to a YAML value. It returns false for a value of another
// kind. Two kinds are converted: a plain number to text, and an empty value to an
// empty text or list.
func setNode(doc document, field reflect.Value, n ast.Node) bool {
	switch field.Kind() { //nolint:exhaustive // the kinds of lists
	case reflect.Slice:
		return setList(doc, field, n)
	case reflect.Array:
		list := reflect.New(reflect.SliceOf(field.Type().Elem())).Elem()
		if !setList(doc, list, n) || list.Len() != field.Len() {
			return false
		}
		reflect.Copy(field, list)
		return true
	}
	v, ok := valueOf(field.Type(), n)
	if ok {
		field.Set(reflect.ValueOf(v).Convert(field.Type()))
	}
	return ok
}

// valueOf returns a YAML value of a type, or one that converts to it.
func valueOf(t reflect.Type, n ast.Node) (v any, ok bool) {
	if t == reflect.TypeFor[time.Duration]() {
		switch n := n.(type) {
		case *ast.StringNode:
			d, err := time.ParseDuration(n.Value)
			return d, err == nil
		case *ast.IntegerNode:
			return 0, n.GetToken().Value == "0" // 0 needs no unit.
		}
		return nil, false
	}
	switch t.Kind() { //nolint:exhaustive // the kinds of settings
	case reflect.Bool:
		if b, ok := n.(*ast.BoolNode); ok {
			return b.Value, true
		}
	case reflect.Int:
		return wholeNumber(n)
	case reflect.Float64:
		if f, ok := n.(*ast.FloatNode); ok && !math.IsNaN(f.Value) && !math.IsInf(f.Value, 0) {
			return f.Value, true
		}
		return wholeNumber(n)
	case reflect.String:
		return textOf(n)
	}
	return nil, false
}

func setList(doc document, field reflect.Value, n ast.Node) bool {
	var items []ast.Node
	switch n := n.(type) {
	case nil, *ast.NullNode:
	case *ast.SequenceNode:
		items = n.Values
	default:
		return false
	}
	list := reflect.MakeSlice(field.Type(), len(items), len(items))
	for i, item := range items {
		if item = doc.resolve(item); item == nil || item.Type() == ast.NullType || !setNode(doc, list.Index(i), item) {
			return false
		}
	}
	setItems(field, list)
	return true
}

func wholeNumber(n ast.Node) (int64, bool) {
	i, ok := n.(*ast.IntegerNode)
	if !ok {
		return 0, false
	}
	switch v := i.Value.(type) {
	case int64:
		return v, true
	case uint64:
		return int64(v), v <= math.MaxInt64
	}
	return 0, false
}

func textOf(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return "", true
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// describe returns a short description of a YAML value for messages.
func describe(n ast.Node) string {
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return "empty"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a group of settings"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode:
		return strconv.Quote(shorten(n.Value, 60))
	case *ast.LiteralNode:
		return "a block of text"
	default:
		return shorten(printable(n.GetToken().Value), 60)
	}
}

// fail reports a problem at a node.
func (l *loader) fail(doc document, n ast.Node, path, message string) {
	l.bad = append(l.bad, Problem{Path: path, Message: message, Position: doc.position(n)})
}

func (d document) position(n ast.Node) Position {
	line, column := 1, 1
	if n != nil && n.GetToken() != nil && n.GetToken().Position != nil {
		line, column = n.GetToken().Position.Line, n.GetToken().Position.Column
	}
	return Position{File: d.name, Line: line, Column: column, Excerpt: d.excerpt(line, column)}
}

// excerpt returns one line of the document with a mark under the column. It omits
// the neighbouring lines and any line that may contain a secret.
func (d document) excerpt(line, column int) string {
	if line < 1 || line > len(d.lines) {
		return ""
	}
	text := printable(strings.TrimRight(d.lines[line-1], "\r"))
	low := strings.ToLower(text)
	for _, word := range []string{"secret", "token", "password", "passwd", "api_key", "apikey", "://"} {
		// max_tokens and the like are no secrets.
		if strings.Contains(strings.ReplaceAll(low, "tokens", ""), word) && (word != "://" || strings.Contains(low, "@")) {
			return ""
		}
	}
	head := fmt.Sprintf("> %2d | ", line)
	out := head + shorten(text, 100)
	if column >= 1 && column <= 100 {
		out += "\n" + strings.Repeat(" ", len(head)+column-1) + "^"
	}
	return out
}

// printable replaces control characters.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

func shorten(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return printable(s)
}
