package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

const (
	maxBytes = 64 << 10
	maxDepth = 16
	// maxCount is the largest maxLength and maxItems.
	maxCount = 100_000
	// maxInteger is the largest integer that all JSON readers keep (RFC 8259, 6).
	maxInteger = 1<<53 - 1
	// maxLongest bounds the length of an answer, so that sums do not overflow.
	maxLongest = 1 << 30
)

// Parse reads a JSON schema of this subset:
//
//	{"type": "object", "properties": {...}, "required": [...], "additionalProperties": false}
//	{"type": "array", "items": {...}, "maxItems": n}
//	{"type": "string", "maxLength": n}                   n characters
//	{"type": "integer", "minimum": n, "maximum": n}      at most 2^53-1 either way
//	{"type": "boolean"}
//	{"enum": [...]}                                      strings, integers, booleans, null
//
// An answer has all properties, also those that required does not list. title,
// description and $schema are ignored; the error names any other keyword and its
// place as a JSON pointer.
func Parse(raw []byte) (*Schema, error) {
	if len(raw) > maxBytes {
		return nil, fmt.Errorf("schema: has %d bytes; use at most %d", len(raw), maxBytes)
	}
	if !json.Valid(raw) {
		return nil, errors.New("schema: is not JSON")
	}
	var c compiler
	longest, err := c.value(place{}, raw)
	if err != nil {
		return nil, err
	}
	if longest >= maxLongest {
		return nil, fmt.Errorf("schema: an answer may be longer than %d bytes; lower maxLength or maxItems", maxLongest)
	}
	c.ops = append(c.ops, op{kind: opEnd})
	for i := len(c.ops) - 2; i >= 0; i-- {
		c.ops[i].rest = c.rest(i)
	}
	return &Schema{ops: c.ops, longest: longest}, nil
}

// rest returns the shortest way from the start of an op, with those of later ops known.
func (c *compiler) rest(i int) int {
	o, after := &c.ops[i], c.ops[i+1].rest
	switch o.kind {
	case opLiteral:
		return len(o.text) + after
	case opChoice:
		return o.branches[0].rest + after
	case opInteger:
		return o.missing(&state{}) + after
	case opText:
		return 2 + after
	case opArray:
		return 2 + c.ops[o.jump].rest
	case opItemEnd:
		return 1 + after
	case opEnd:
	}
	return 0
}

// place is the position of a schema in the document.
type place struct {
	pointer       string
	depth, arrays int
}

func (p place) in(names ...string) place {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	for _, n := range names {
		p.pointer += "/" + escape.Replace(n)
	}
	p.depth++
	return p
}

func (p place) errorf(format string, args ...any) error {
	at := p.pointer
	if at == "" {
		at = "the root"
	}
	return fmt.Errorf("schema: at %s: %w", at, fmt.Errorf(format, args...))
}

// member is one entry of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// members returns the entries of an object in order.
func (p place) members(raw []byte) ([]member, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, p.errorf("expected a JSON object, got %.40q", raw)
	}
	var out []member
	for d.More() {
		name, err := d.Token()
		m := member{}
		if err == nil {
			m.name, _ = name.(string)
			err = d.Decode(&m.value)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, p.errorf("%w", err)
		}
		if slices.ContainsFunc(out, func(o member) bool { return o.name == m.name }) {
			return nil, p.errorf("%q occurs twice; remove one", m.name)
		}
		out = append(out, m)
	}
	return out, nil
}

// keywords maps the keywords of a schema to their values.
type keywords map[string]json.RawMessage

// compiler collects the ops of a schema.
type compiler struct{ ops []op }

// literal adds fixed bytes.
func (c *compiler) literal(text string) int {
	if n := len(c.ops); n > 0 && c.ops[n-1].kind == opLiteral {
		c.ops[n-1].text = append(c.ops[n-1].text, text...)
	} else {
		c.ops = append(c.ops, op{kind: opLiteral, text: []byte(text)})
	}
	return len(text)
}

// keywordsOf returns the keywords of a type or of an enum.
func keywordsOf(typ string, enum bool) []string {
	if enum {
		return []string{"enum"}
	}
	switch typ {
	case "object":
		return []string{"properties", "required", "additionalProperties"}
	case "array":
		return []string{"items", "maxItems"}
	case "string":
		return []string{"maxLength"}
	case "integer":
		return []string{"minimum", "maximum"}
	}
	return nil
}

// value adds a schema and returns the length of its longest value.
func (c *compiler) value(at place, raw []byte) (longest int, err error) {
	if at.depth > maxDepth {
		return 0, at.errorf("nested deeper than %d; flatten the schema", maxDepth)
	}
	list, err := at.members(raw)
	if err != nil {
		return 0, err
	}
	k := keywords{}
	for _, m := range list {
		k[m.name] = m.value
	}
	typ := ""
	if t, ok := k["type"]; ok {
		if json.Unmarshal(t, &typ) != nil {
			return 0, at.errorf("type %s: is not one name; use a single type", t)
		}
	}
	values, enum := k["enum"]
	known := append(keywordsOf(typ, enum), "type", "title", "description", "$schema")
	for _, m := range list {
		if !slices.Contains(known, m.name) {
			return 0, at.errorf("keyword %q is not supported here; remove it", m.name)
		}
	}
	if enum {
		return c.enum(at, typ, values)
	}
	switch typ {
	case "object":
		return c.object(at, k)
	case "array":
		return c.array(at, k)
	case "string":
		return c.text(at, k)
	case "integer":
		return c.integer(at, k)
	case "boolean":
		return c.choice([]string{"true", "false"}), nil
	case "":
		return 0, at.errorf("has neither type nor enum; add one")
	}
	return 0, at.errorf("type %q is not supported; use object, array, string, integer, boolean or enum", typ)
}

func (c *compiler) object(at place, k keywords) (longest int, err error) {
	if k["properties"] == nil {
		return 0, at.errorf("an object needs properties")
	}
	list, err := at.in("properties").members(k["properties"])
	if err != nil {
		return 0, err
	}
	var required []string
	if raw, ok := k["required"]; ok && json.Unmarshal(raw, &required) != nil {
		return 0, at.errorf("required %s: is not a list of names", raw)
	}
	for _, name := range required {
		if !slices.ContainsFunc(list, func(m member) bool { return m.name == name }) {
			return 0, at.errorf("required %q: is not one of the properties; add it to them", name)
		}
	}
	var more bool
	if raw, ok := k["additionalProperties"]; ok && json.Unmarshal(raw, &more) != nil {
		return 0, at.errorf("additionalProperties: must be true or false")
	}
	longest = c.literal("{")
	for i, m := range list {
		if i > 0 {
			longest += c.literal(",")
		}
		longest += c.literal(quote(m.name) + ":")
		n, err := c.value(at.in("properties", m.name), m.value)
		if err != nil {
			return 0, err
		}
		longest = min(longest+n, maxLongest)
	}
	return longest + c.literal("}"), nil
}

func (c *compiler) array(at place, k keywords) (longest int, err error) {
	if at.arrays >= maxArrays {
		return 0, at.errorf("arrays nested deeper than %d; flatten the schema", maxArrays)
	}
	if k["items"] == nil {
		return 0, at.errorf("an array needs items")
	}
	most, err := at.count("maxItems", k)
	if err != nil {
		return 0, err
	}
	start := len(c.ops)
	c.ops = append(c.ops, op{kind: opArray, most: most, level: at.arrays})
	inner := at.in("items")
	inner.arrays++
	n, err := c.value(inner, k["items"])
	if err != nil {
		return 0, err
	}
	c.ops = append(c.ops, op{kind: opItemEnd, most: most, level: at.arrays, jump: int32(start + 1)}) //nolint:gosec // bounded by maxBytes
	c.ops[start].jump = int32(len(c.ops))                                                            //nolint:gosec // bounded by maxBytes
	return min(2+max(int(most)*(n+1)-1, 0), maxLongest), nil
}

func (c *compiler) text(at place, k keywords) (longest int, err error) {
	most, err := at.count("maxLength", k)
	if err != nil {
		return 0, err
	}
	c.ops = append(c.ops, op{kind: opText, most: most})
	return 2 + 4*int(most), nil
}

func (c *compiler) integer(at place, k keywords) (longest int, err error) {
	low, err := at.number("minimum", k)
	if err != nil {
		return 0, err
	}
	high, err := at.number("maximum", k)
	if err != nil {
		return 0, err
	}
	if low > high {
		return 0, at.errorf("minimum %d is above maximum %d", low, high)
	}
	c.ops = append(c.ops, op{kind: opInteger, low: low, high: high})
	return max(len(strconv.FormatInt(low, 10)), len(strconv.FormatInt(high, 10))), nil
}

// count returns a required number of characters or items.
func (p place) count(name string, k keywords) (int32, error) {
	n, err := p.number(name, k)
	if err == nil && (n < 0 || n > maxCount) {
		err = p.errorf("%s: must be between 0 and %d, is %d", name, maxCount, n)
	}
	return int32(n), err //nolint:gosec // bounded by maxCount
}

// number returns a required integer.
func (p place) number(name string, k keywords) (int64, error) {
	raw, ok := k[name]
	if !ok {
		return 0, p.errorf("%s is missing; add it", name)
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n > maxInteger || n < -maxInteger {
		return 0, p.errorf("%s: must be an integer of at most 2^53-1 either way, is %.40s", name, raw)
	}
	return n, nil
}

// enum adds the values of an enum.
func (c *compiler) enum(at place, typ string, raw []byte) (longest int, err error) {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || len(list) == 0 {
		return 0, at.errorf("enum: must be a list of at least one value")
	}
	texts := make([]string, 0, len(list))
	for i, v := range list {
		text, of := scalar(v)
		if of == "" {
			return 0, at.errorf("enum value %d: must be a string, an integer, a boolean or null, is %.40s", i, v)
		}
		if typ != "" && typ != of {
			return 0, at.errorf("enum value %d: must be of type %s, is %.40s", i, typ, v)
		}
		texts = append(texts, text)
	}
	return c.choice(texts), nil
}

// scalar returns the text of an enum's value in an answer, and its type; "" for one
// that is not supported.
func scalar(raw []byte) (text, typ string) {
	switch raw[0] {
	case '"':
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return "", ""
		}
		return quote(s), "string"
	case 't', 'f':
		return string(raw), "boolean"
	case 'n':
		return string(raw), "null"
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n > maxInteger || n < -maxInteger {
		return "", ""
	}
	return strconv.FormatInt(n, 10), "integer"
}

// choice adds alternatives.
func (c *compiler) choice(texts []string) (longest int) {
	slices.Sort(texts)
	texts = slices.Compact(texts)
	o := op{kind: opChoice, branches: []branch{{}}}
	o.grow(0, 0, texts)
	c.ops = append(c.ops, o)
	for _, t := range texts {
		longest = max(longest, len(t))
	}
	return longest
}

// grow adds the children of a branch, whose texts are sorted and share their first
// depth bytes.
func (o *op) grow(at int32, depth int, texts []string) {
	if len(texts[0]) == depth {
		o.branches[at].ends = true
		texts = texts[1:]
	}
	var groups [][]string
	for from := 0; from < len(texts); {
		to := from + 1
		for to < len(texts) && texts[to][depth] == texts[from][depth] {
			to++
		}
		groups = append(groups, texts[from:to])
		from = to
	}
	first := int32(len(o.branches)) //nolint:gosec // bounded by maxBytes
	for _, g := range groups {
		o.branches = append(o.branches, branch{label: g[0][depth]})
	}
	o.branches[at].first, o.branches[at].last = first, int32(len(o.branches)) //nolint:gosec // bounded by maxBytes
	least := maxLongest
	if o.branches[at].ends {
		least = 0
	}
	for i, g := range groups {
		child := first + int32(i) //nolint:gosec // bounded by maxBytes
		o.grow(child, depth+1, g)
		least = min(least, 1+o.branches[child].rest)
	}
	o.branches[at].rest = least
}

// quote returns a JSON string.
func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string cannot fail
	return strings.TrimSuffix(b.String(), "\n")
}
