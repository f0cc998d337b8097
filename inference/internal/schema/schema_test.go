package schema_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/schema"
	"touchline/inference/tokenizer"
)

// alert is the schema of a look with rules.
const alert = `{"type": "object", "properties": {"fired": {"type": "array", "maxItems": 4, "items": {
	"type": "object", "properties": {"rule": {"enum": [1, 2, 3, 12]}, "reason": {"type": "string", "maxLength": 80}},
	"required": ["rule", "reason"], "additionalProperties": false}}}, "required": ["fired"], "additionalProperties": false}`

// singles returns the vocabulary of single bytes, each with its value as id.
func singles(tb testing.TB) *schema.Vocabulary {
	tb.Helper()
	pieces := make([][]byte, 256)
	for i := range pieces {
		pieces[i] = []byte{byte(i)}
	}
	v, err := schema.NewVocabulary(pieces)
	require.NoError(tb, err)
	return v
}

// open reads a tokenizer.
func open(tb testing.TB, file string) [][]byte {
	tb.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(tb, err)
	t, err := tokenizer.Parse(raw)
	require.NoError(tb, err)
	pieces := make([][]byte, t.Size())
	for id := range pieces {
		if !t.Special(int32(id)) {
			pieces[id] = t.Piece(int32(id))
		}
	}
	return pieces
}

func parse(tb testing.TB, text string) *schema.Schema {
	tb.Helper()
	s, err := schema.Parse([]byte(text))
	require.NoError(tb, err, text)
	return s
}

// accepts reports whether a text is a whole answer.
func accepts(tb testing.TB, v *schema.Vocabulary, s *schema.Schema, text string) bool {
	tb.Helper()
	c, err := v.Constrain(s, s.Longest())
	require.NoError(tb, err)
	for i := range len(text) {
		if !c.Allows(int32(text[i])) {
			return false
		}
		c.Accept(int32(text[i]))
	}
	return c.Ends()
}

func TestAnswers(t *testing.T) {
	v := singles(t)
	tests := []struct {
		schema   string
		good     []string
		bad      []string
		shortest int
		longest  int
	}{
		{`{"type": "boolean"}`, []string{"true", "false"}, []string{"", "t", "True", "true ", "1"}, 4, 5},
		{
			`{"enum": ["a", "ab", 1, 12, null, true, "\u2028<"]}`,
			[]string{`"a"`, `"ab"`, "1", "12", "null", "true", `"\u2028<"`},
			[]string{`"`, `""`, `"abc"`, "2", "123"},
			1, 9,
		},
		{`{"enum": [7]}`, []string{"7"}, []string{"", "77"}, 1, 1},
		{
			`{"type": "integer", "minimum": -12, "maximum": 105}`,
			[]string{"0", "-1", "-12", "105", "99"},
			[]string{"", "-", "-0", "00", "01", "-13", "106", "1050", "1.0", "+1", "1e1"},
			1, 3,
		},
		{`{"type": "integer", "minimum": 20, "maximum": 300}`, []string{"20", "199", "300"}, []string{"0", "1", "19", "301"}, 2, 3},
		{
			`{"type": "string", "maxLength": 2}`,
			[]string{`""`, `"a"`, `"⚽🥅"`, `"\"\\"`, `"\n "`},
			[]string{`"`, `"abc"`, "\"\n\"", `"\t"`, `"\u0041"`, "\"\xff\"", "\"\xed\xa0\x80\"", "\"\xc0\x80\"", "\"\xe2\x9a\"", `"\"`},
			2, 10,
		},
		{
			`{"type": "array", "maxItems": 2, "items": {"type": "boolean"}}`,
			[]string{"[]", "[true]", "[true,false]"},
			[]string{"", "[", "[,true]", "[true,]", "[true true]", "[true,true,true]", "[]]"},
			2, 13,
		},
		{`{"type": "array", "maxItems": 0, "items": {"type": "boolean"}}`, []string{"[]"}, []string{"[true]"}, 2, 2},
		{`{"type": "object", "properties": {}}`, []string{"{}"}, []string{"", "{", "{ }"}, 2, 2},
		{
			`{"type": "object", "properties": {"b": {"type": "boolean"}, "a\"%d": {"enum": [1, 12]}}}`,
			[]string{`{"b":true,"a\"%d":12}`},
			[]string{`{"a\"%d":1,"b":true}`, `{"b":true}`, `{"b": true,"a\"%d":1}`},
			20, 22,
		},
		{
			alert,
			[]string{`{"fired":[]}`, `{"fired":[{"rule":12,"reason":"a goal"},{"rule":1,"reason":""}]}`},
			[]string{`{}`, `{"fired":[{"rule":12}]}`, `{"fired":[{"rule":13,"reason":""}]}`},
			12, 1387,
		},
	}
	for _, tt := range tests {
		s := parse(t, tt.schema)
		require.Equal(t, tt.shortest, s.Shortest(), tt.schema)
		require.Equal(t, tt.longest, s.Longest(), tt.schema)
		for _, text := range tt.good {
			require.True(t, accepts(t, v, s, text), "%s: %s", tt.schema, text)
		}
		for _, text := range tt.bad {
			require.False(t, accepts(t, v, s, text), "%s: %q", tt.schema, text)
		}
	}
}

func TestRefused(t *testing.T) {
	in := func(s string) string { return `{"type": "object", "properties": {"a/b%d": ` + s + `}}` }
	tests := []struct{ schema, want string }{
		{`{`, "is not JSON"},
		{`[]`, `at the root: expected a JSON object, got "[]"`},
		{`{}`, "neither type nor enum"},
		{`{"$ref": "#"}`, `keyword "$ref" is not supported`},
		{in(`{"type": "number"}`), `at /properties/a~1b%d: type "number" is not supported`},
		{in(`{"type": "string", "maxLength": 3, "pattern": "x"}`), `at /properties/a~1b%d: keyword "pattern" is not supported`},
		{in(`true`), "at /properties/a~1b%d: expected a JSON object"},
		{`{"type": ["string", "null"]}`, "use a single type"},
		{`{"type": "string"}`, "maxLength is missing"},
		{`{"type": "string", "maxLength": -1}`, "maxLength: must be between 0 and 100000, is -1"},
		{`{"type": "string", "maxLength": 1.5}`, "maxLength: must be an integer"},
		{`{"type": "string", "maxLength": 1, "maxLength": 2}`, `"maxLength" occurs twice`},
		{`{"type": "string", "maxLength": 1, "minLength": 1}`, `keyword "minLength"`},
		{`{"type": "boolean", "minimum": 1}`, `keyword "minimum"`},
		{`{"type": "integer", "minimum": 1}`, "maximum is missing"},
		{`{"type": "integer", "minimum": 2, "maximum": 1}`, "minimum 2 is above maximum 1"},
		{`{"type": "integer", "minimum": 0, "maximum": 9007199254740992}`, "maximum: must be an integer of at most 2^53-1"},
		{`{"type": "integer", "minimum": 0, "exclusiveMaximum": 2}`, `keyword "exclusiveMaximum"`},
		{`{"type": "array", "maxItems": 1}`, "an array needs items"},
		{`{"type": "array", "items": {"type": "boolean"}}`, "maxItems is missing"},
		{`{"type": "array", "maxItems": 1, "items": {"type": "null"}}`, `at /items: type "null"`},
		{`{"type": "object"}`, "an object needs properties"},
		{`{"type": "object", "properties": {"b": {"type": "boolean"}}, "required": ["c"]}`, `required "c": is not one of the properties`},
		{`{"type": "object", "properties": {}, "required": 1}`, "required 1"},
		{`{"type": "object", "properties": {}, "additionalProperties": {}}`, "additionalProperties: must be true or false"},
		{`{"enum": []}`, "at least one value"},
		{`{"enum": [1.5]}`, "enum value 0: must be a string, an integer, a boolean or null, is 1.5"},
		{`{"enum": [{}]}`, "enum value 0"},
		{`{"enum": ["a", 1], "type": "string"}`, "enum value 1: must be of type string, is 1"},
		{strings.Repeat(`{"type":"array","maxItems":1,"items":`, 5) + `{"type":"boolean"}` + strings.Repeat("}", 5), "arrays nested deeper than 4"},
		{strings.Repeat(`{"type":"object","properties":{"a":`, 20) + `{"type":"boolean"}` + strings.Repeat("}}", 20), "nested deeper than 16"},
		{
			strings.Repeat(`{"type":"array","maxItems":100000,"items":`, 4) + `{"type":"boolean"}` + strings.Repeat("}", 4),
			"may be longer than",
		},
		{strings.Repeat(" ", 1<<16) + `{"type":"boolean"}`, "at most 65536"},
	}
	for _, tt := range tests {
		_, err := schema.Parse([]byte(tt.schema))
		require.ErrorContains(t, err, tt.want, tt.schema)
	}
	_, err := singles(t).Constrain(parse(t, alert), 11)
	require.ErrorContains(t, err, "may need 12 tokens, and the limit is 11")
	_, err = schema.NewVocabulary([][]byte{[]byte("a")})
	require.ErrorContains(t, err, "no piece for some byte")
}

// Every integer is accepted if and only if it is in the range.
func TestIntegers(t *testing.T) {
	v, rng := singles(t), rand.New(rand.NewPCG(1, 2))
	for range 200 {
		low := rng.IntN(2400) - 1200
		high := low + rng.IntN(1+rng.IntN(1200))
		s := parse(t, fmt.Sprintf(`{"type": "integer", "minimum": %d, "maximum": %d}`, low, high))
		for n := low - 30; n < high+30; n++ {
			require.Equal(t, low <= n && n <= high, accepts(t, v, s, strconv.Itoa(n)), "%d in [%d, %d]", n, low, high)
		}
	}
	const most = 1<<53 - 1
	s := parse(t, fmt.Sprintf(`{"type": "integer", "minimum": %d, "maximum": %d}`, -most, most))
	require.True(t, accepts(t, v, s, strconv.Itoa(most)))
	require.True(t, accepts(t, v, s, strconv.Itoa(-most)))
	require.False(t, accepts(t, v, s, strconv.Itoa(most+1)))
}

// A string of any bytes is accepted if and only if it is UTF-8 without control
// characters, quotation marks and backslashes, and not too long.
func TestStrings(t *testing.T) {
	v, rng := singles(t), rand.New(rand.NewPCG(3, 4))
	s := parse(t, `{"type": "string", "maxLength": 3}`)
	for r := rune(0x20); r <= utf8.MaxRune; r += 1 + r/200 {
		require.Equal(t, utf8.ValidRune(r) && r != '"' && r != '\\', accepts(t, v, s, `"`+string(r)+`"`) && utf8.ValidRune(r), "%U", r)
	}
	good := 0
	for range 60_000 {
		text := make([]byte, 1+rng.IntN(4))
		for i := range text {
			text[i] = byte(rng.IntN(256))
			if i > 0 && rng.IntN(4) > 0 {
				text[i] = byte(0x80 + rng.IntN(64))
			}
		}
		want := utf8.Valid(text) && utf8.RuneCount(text) <= 3 && !bytes.ContainsFunc(text, func(r rune) bool {
			return r < 0x20 || r == '"' || r == '\\'
		})
		require.Equal(t, want, accepts(t, v, s, `"`+string(text)+`"`), "%q", text)
		if want {
			good++
		}
	}
	require.Greater(t, good, 2_000)
}

// randomSchema writes a schema of the subset.
func randomSchema(rng *rand.Rand, depth, arrays int) string {
	words := []string{"a", "goal", "rule", `x\"y`, "ß⚽", "", "truth", "go", "\\u2028", "reason"}
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	switch k := rng.IntN(kinds); {
	case k == 0:
		return `{"type": "boolean", "description": "d"}`
	case k == 1:
		values := make([]string, 1+rng.IntN(5))
		for i := range values {
			values[i] = []string{
				strconv.Itoa(rng.IntN(300) - 100), `"` + words[rng.IntN(len(words))] + `"`, "true", "null", strconv.Itoa(rng.IntN(9)),
			}[rng.IntN(5)]
		}
		return `{"enum": [` + strings.Join(values, ",") + `]}`
	case k == 2:
		low := int(math.Pow(10, rng.Float64()*6)) * (rng.IntN(3) - 1)
		return fmt.Sprintf(`{"type": "integer", "minimum": %d, "maximum": %d}`, low, low+int(math.Pow(10, rng.Float64()*7)))
	case k == 3:
		return fmt.Sprintf(`{"type": "string", "maxLength": %d}`, rng.IntN(25))
	case k == 4 && arrays < 4:
		return fmt.Sprintf(`{"type": "array", "maxItems": %d, "items": %s}`, rng.IntN(5), randomSchema(rng, depth-1, arrays+1))
	}
	var list []string
	for _, i := range rng.Perm(len(words))[:rng.IntN(5)] {
		list = append(list, fmt.Sprintf(`"%s": %s`, words[i], randomSchema(rng, depth-1, arrays)))
	}
	return `{"type": "object", "properties": {` + strings.Join(list, ", ") + `}, "additionalProperties": false}`
}

// valid is an independent validator of the subset.
func valid(rule map[string]any, v any) bool {
	if list, ok := rule["enum"].([]any); ok {
		return slices.Contains(list, v)
	}
	number := func(name string) int64 {
		n, _ := rule[name].(json.Number).Int64()
		return n
	}
	switch rule["type"] {
	case "boolean":
		_, ok := v.(bool)
		return ok
	case "integer":
		n, ok := v.(json.Number)
		i, err := n.Int64()
		return ok && err == nil && number("minimum") <= i && i <= number("maximum")
	case "string":
		s, ok := v.(string)
		return ok && int64(utf8.RuneCountInString(s)) <= number("maxLength")
	case "array":
		list, ok := v.([]any)
		return ok && int64(len(list)) <= number("maxItems") && !slices.ContainsFunc(list, func(item any) bool {
			return !valid(rule["items"].(map[string]any), item)
		})
	}
	properties, object := rule["properties"].(map[string]any), v.(map[string]any)
	for name, r := range properties {
		if value, ok := object[name]; !ok || !valid(r.(map[string]any), value) {
			return false
		}
	}
	return len(properties) == len(object)
}

func decode(tb testing.TB, text string) any {
	tb.Helper()
	var v any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	require.NoError(tb, d.Decode(&v), text)
	_, err := d.Token()
	require.ErrorIs(tb, err, io.EOF, text)
	return v
}

// driver answers with random choices among the allowed tokens.
type driver struct {
	rng    *rand.Rand
	pieces [][]byte
	v      *schema.Vocabulary
	row    []float32
}

func newDriver(tb testing.TB, pieces [][]byte) *driver {
	tb.Helper()
	v, err := schema.NewVocabulary(pieces)
	require.NoError(tb, err)
	d := &driver{rng: rand.New(rand.NewPCG(5, 6)), pieces: pieces, v: v, row: make([]float32, len(pieces))}
	for i := range d.row {
		d.row[i] = float32(d.rng.IntN(1000))
	}
	return d
}

// choose returns an allowed token: one of 20 random ones, or the best of a row. ok is false if there is none, as after
// the 1 of 199 with one token left.
func (d *driver) choose(c *schema.Constraint) (id int32, ok bool) {
	for range 20 {
		if id := int32(d.rng.IntN(len(d.pieces))); c.Allows(id) {
			return id, true
		}
	}
	d.rng.Shuffle(64, func(i, j int) { d.row[i], d.row[j] = d.row[j], d.row[i] })
	return c.Best(d.row)
}

// answer returns an answer of at most that many tokens.
func (d *driver) answer(tb testing.TB, s *schema.Schema, tokens int) string {
	tb.Helper()
	c, err := d.v.Constrain(s, tokens)
	require.NoError(tb, err)
	var text []byte
	for range tokens {
		if c.Complete() || c.Ends() && d.rng.IntN(2) == 0 {
			break
		}
		id, ok := c.Only()
		if !ok {
			if id, ok = d.choose(c); !ok {
				break // the check below says whether it may end
			}
		}
		require.True(tb, c.Allows(id), "%s then %s", text, d.pieces[id])
		text = append(text, d.pieces[id]...)
		c.Accept(id)
	}
	require.True(tb, c.Ends(), "%d tokens: %s", tokens, text)
	return string(text)
}

// For 10,000 random schemas and random choices, every answer parses, validates and
// ends within its tokens.
func TestEveryAnswerIsValid(t *testing.T) {
	for _, file := range []string{"../../../models/nano/checkpoint/tokenizer.json", "../../../models/testdata/tiny/tokenizer.json"} {
		d := newDriver(t, open(t, file))
		cut := 0
		for range 5000 {
			text := randomSchema(d.rng, 3, 0)
			s := parse(t, text)
			tokens := s.Longest()
			if d.rng.IntN(2) == 0 {
				tokens = s.Shortest() + d.rng.IntN(1+min(s.Longest()-s.Shortest(), 40))
				cut++
			}
			got := d.answer(t, s, tokens)
			require.True(t, utf8.ValidString(got), got)
			require.LessOrEqual(t, len(got), s.Longest())
			require.GreaterOrEqual(t, len(got), s.Shortest())
			require.True(t, valid(decode(t, text).(map[string]any), decode(t, got)), "%s: %s", text, got)
		}
		require.Greater(t, cut, 1000)
	}
}

// Best chooses as a scan of all tokens does.
func TestBest(t *testing.T) {
	d := newDriver(t, open(t, "../../../models/nano/checkpoint/tokenizer.json"))
	low := float32(math.Inf(-1))
	for range 150 {
		s := parse(t, randomSchema(d.rng, 3, 0))
		c, err := d.v.Constrain(s, s.Shortest()+d.rng.IntN(40))
		require.NoError(t, err)
		for !c.Complete() {
			for i := range d.row {
				d.row[i] = float32(d.rng.IntN(60))
				if d.rng.IntN(4) == 0 {
					d.row[i] = low
				}
			}
			want, best, ok := int32(0), low, false
			for id, v := range d.row {
				if v > best && c.Allows(int32(id)) {
					want, best, ok = int32(id), v, true
				}
			}
			got, found := c.Best(d.row)
			require.Equal(t, ok, found)
			if ok {
				require.Equal(t, want, got)
			}
			if id, only := c.Only(); only {
				got = id
			} else if !ok {
				break
			}
			c.Accept(got)
		}
	}
}

// Only takes the longest pieces, and leaves choices to the model.
func TestOnly(t *testing.T) {
	var pieces [][]byte
	for i := range 256 {
		pieces = append(pieces, []byte{byte(i)})
	}
	id := func(text string) int32 {
		at := slices.IndexFunc(pieces, func(p []byte) bool { return string(p) == text })
		require.GreaterOrEqual(t, at, 0, text)
		return int32(at)
	}
	for _, p := range []string{`{"`, `{"f`, "fired", `":`, `":[`, `":[]`, `"rule`, `}]`, "]}", "true", "tr"} {
		pieces = append(pieces, []byte(p))
	}
	v, err := schema.NewVocabulary(pieces)
	require.NoError(t, err)
	c, err := v.Constrain(parse(t, alert), 100)
	require.NoError(t, err)
	for _, want := range []string{`{"f`, "i", "r", "e", "d"} {
		got, ok := c.Only()
		require.True(t, ok)
		require.Equal(t, want, string(pieces[got]))
		c.Accept(got)
	}
	_, ok := c.Only()
	require.False(t, ok, `":[] contains the choice of an empty array`)
	require.True(t, c.Allows(id(`":`)))
	require.True(t, c.Allows(id(`":[`)))
	require.False(t, c.Allows(id(`"`+`rule`)))
	c.Accept(id(`":[]`))
	got, ok := c.Only()
	require.True(t, ok)
	require.Equal(t, "}", string(pieces[got]))
	c.Accept(got)
	require.True(t, c.Complete())
	_, ok = c.Only()
	require.False(t, ok)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(alert))
	rng := rand.New(rand.NewPCG(7, 8))
	for range 20 {
		f.Add([]byte(randomSchema(rng, 3, 0)))
	}
	v := singles(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := schema.Parse(raw)
		if err != nil {
			return
		}
		rule, rng := decode(t, string(raw)).(map[string]any), rand.New(rand.NewPCG(1, uint64(len(raw))))
		tokens := min(s.Shortest()+50, s.Longest())
		if tokens > 5000 {
			return
		}
		c, err := v.Constrain(s, tokens)
		require.NoError(t, err)
		row := make([]float32, 256)
		for i := range row {
			row[i] = float32(rng.IntN(1000))
		}
		var text []byte
		for !c.Complete() {
			id, ok := c.Best(row)
			require.True(t, ok, "%s", text)
			row[id] = float32(rng.IntN(1000))
			text = append(text, byte(id))
			c.Accept(id)
		}
		require.LessOrEqual(t, len(text), tokens)
		require.True(t, valid(rule, decode(t, string(text))), "%s", text)
	})
}
