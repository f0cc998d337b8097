package schema_test

import (
	"bytes"
	"fmt"
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

// rules is the schema of a look with alert rules.
func rules(items, minimum, maximum, length int) string {
	return fmt.Sprintf(`{"type":"object","properties":{"fired":{"type":"array","maxItems":%d,"items":{"type":"object",`+
		`"properties":{"rule":{"type":"integer","minimum":%d,"maximum":%d},"reason":{"type":"string","maxLength":%d}},`+
		`"required":["rule","reason"],"additionalProperties":false}}},"required":["fired"],"additionalProperties":false}`,
		items, minimum, maximum, length)
}

// translation is the schema of a translated transcript.
func translation(length int) string {
	return fmt.Sprintf(`{"type": "object", "properties": {"translation": {"type": "string", "maxLength": %d}}, "required": ["translation"],
		"additionalProperties": false}`, length)
}

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
	c, err := v.Constrain(s, 10_000)
	require.NoError(tb, err)
	for i := range len(text) {
		if !c.Allows(int32(text[i])) {
			return false
		}
		c.Accept(int32(text[i]))
	}
	return c.Ends()
}

// recorded is an answer of testdata/answers.txt, with the verdicts of the compiler for all of JSON schema that this one replaced.
type recorded struct {
	schema            string
	text              string
	constrained, fits bool // as a constrained answer; by Validate
}

// corpus reads testdata/answers.txt: recorded answers of models and random changes of such answers.
func corpus(tb testing.TB) (answers []recorded) {
	tb.Helper()
	schemas := []string{
		rules(1, 1, 1, 160), rules(3, 1, 3, 160), rules(16, 1, 16, 160), rules(2, 9, 12, 4), rules(1, 99, 120, 1),
		translation(100), translation(3), translation(1),
	}
	raw, err := os.ReadFile("testdata/answers.txt")
	require.NoError(tb, err)
	for line := range strings.Lines(string(raw)) {
		var a recorded
		var of int
		_, err := fmt.Sscanf(line, "%d %t %t %q", &of, &a.constrained, &a.fits, &a.text)
		require.NoError(tb, err, line)
		a.schema = schemas[of]
		answers = append(answers, a)
	}
	return answers
}

// Both forms of answers accept exactly the recorded texts.
func TestAcceptedTexts(t *testing.T) {
	v, answers := singles(t), corpus(t)
	require.Len(t, answers, 600)
	for _, a := range answers {
		s := parse(t, a.schema)
		require.Equal(t, a.constrained, accepts(t, v, s, a.text), "%s: %q", a.schema, a.text)
		require.Equal(t, a.fits, s.Validate([]byte(a.text)) == nil, "%s: %q", a.schema, a.text)
	}
}

func TestRefused(t *testing.T) {
	in := func(s string) string {
		return `{"type": "object", "properties": {"a": ` + s + `}, "required": ["a"], "additionalProperties": false}`
	}
	tests := []struct{ schema, want string }{
		{`{`, "expected JSON"},
		{`[]`, "cannot unmarshal array"},
		{`{}`, `type "" is not supported`},
		{`{"$ref": "#"}`, `unknown field "$ref"`},
		{in(`{"type": "number"}`), `property "a": type "number" is not supported`},
		{in(`{"type": "string", "maxLength": 3, "pattern": "x"}`), `unknown field "pattern"`},
		{in(`{"enum": [1, 2]}`), `unknown field "enum"`},
		{`{"type": ["string", "null"]}`, "cannot unmarshal array"},
		{`{"type": "string"}`, "a string needs maxLength"},
		{`{"type": "string", "maxLength": 1.5}`, "maxLength"},
		{`{"type": "integer", "minimum": 1}`, "an integer needs minimum and maximum"},
		{`{"type": "integer", "minimum": 2, "maximum": 1}`, "an integer needs minimum and maximum, from 1 to 1000"},
		{`{"type": "integer", "minimum": 0, "maximum": 1}`, "from 1 to 1000"},
		{`{"type": "array", "maxItems": 1}`, "an array needs items and maxItems"},
		{`{"type": "array", "items": {"type": "string", "maxLength": 1}}`, "an array needs items and maxItems"},
		{
			`{"type": "array", "maxItems": 1, "items": {"type": "array", "maxItems": 1, "items": {"type": "string", "maxLength": 1}}}`,
			"cannot be in another array",
		},
		{`{"type": "object"}`, "an object needs properties"},
		{`{"type": "object", "properties": {}, "required": [], "additionalProperties": true}`, "additionalProperties false"},
		{
			`{"type": "object", "properties": {"b": {}}, "required": ["c"], "additionalProperties": false}`,
			`required property "c": must be one of the properties`,
		},
	}
	for _, tt := range tests {
		_, err := schema.Parse([]byte(tt.schema))
		require.ErrorContains(t, err, tt.want, tt.schema)
	}
	_, err := singles(t).Constrain(parse(t, rules(1, 1, 1, 9)), 11)
	require.ErrorContains(t, err, "may need 12 tokens, and the limit is 11")
	_, err = schema.NewVocabulary([][]byte{[]byte("a")})
	require.ErrorContains(t, err, "no piece for some byte")
}

// Every integer is accepted if and only if it is in the range.
func TestIntegers(t *testing.T) {
	v, rng := singles(t), rand.New(rand.NewPCG(1, 2))
	for range 50 {
		low := 1 + rng.IntN(900)
		high := low + rng.IntN(1+rng.IntN(100))
		s := parse(t, fmt.Sprintf(`{"type": "integer", "minimum": %d, "maximum": %d}`, low, high))
		for n := low - 30; n < high+30; n++ {
			require.Equal(t, low <= n && n <= high, accepts(t, v, s, strconv.Itoa(n)), "%d in [%d, %d]", n, low, high)
		}
	}
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
	for range 20_000 {
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
	require.Greater(t, good, 500)
}

// randomSchema writes one of the two forms.
func randomSchema(rng *rand.Rand) string {
	if rng.IntN(3) == 0 {
		return translation(1 + rng.IntN(25))
	}
	low := 1 + rng.IntN(20)
	return rules(1+rng.IntN(5), low, low+rng.IntN(20), 1+rng.IntN(25))
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

// For random choices, every answer parses, validates and ends within its tokens.
func TestEveryAnswerIsValid(t *testing.T) {
	for _, file := range []string{"../../../models/nano/checkpoint/tokenizer.json", "../../../models/testdata/tiny/tokenizer.json"} {
		d := newDriver(t, open(t, file))
		for range 500 {
			text := randomSchema(d.rng)
			s := parse(t, text)
			got := d.answer(t, s, s.Shortest()+d.rng.IntN(60))
			require.True(t, utf8.ValidString(got), got)
			require.GreaterOrEqual(t, len(got), s.Shortest())
			require.NoError(t, s.Validate([]byte(got)), "%s: %s", text, got)
		}
	}
}

// Best chooses as a scan of all tokens does.
func TestBest(t *testing.T) {
	d := newDriver(t, open(t, "../../../models/nano/checkpoint/tokenizer.json"))
	low := float32(math.Inf(-1))
	for range 60 {
		s := parse(t, randomSchema(d.rng))
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
	c, err := v.Constrain(parse(t, rules(4, 1, 12, 80)), 100)
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

// FuzzParse: every answer to a schema validates and ends within its tokens.
func FuzzParse(f *testing.F) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 20 {
		f.Add([]byte(randomSchema(rng)))
	}
	v := singles(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := schema.Parse(raw)
		if err != nil {
			return
		}
		rng := rand.New(rand.NewPCG(1, uint64(len(raw))))
		tokens := s.Shortest() + 50
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
			if !ok && c.Ends() {
				break // an integer with more digits than tokens left
			}
			require.True(t, ok, "%s", text)
			row[id] = float32(rng.IntN(1000))
			text = append(text, byte(id))
			c.Accept(id)
		}
		require.LessOrEqual(t, len(text), tokens)
		require.NoError(t, s.Validate(text))
	})
}
