package schema_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/schema"
)

func validations() []struct{ name, schema, value, want string } {
	const object = `{"type":"object","properties":{"a":{"type":"integer","minimum":1,"maximum":9}},"required":["a"],"additionalProperties":false}`
	const array = `{"type":"array","items":{"type":"string","maxLength":9},"maxItems":2}`
	return []struct{ name, schema, value, want string }{
		{"object", object, ` {"a" : 3} `, ""},
		{"missing", object, `{}`, `at the root: expected the property "a"`},
		{"unknown", object, `{"a":1,"b":2}`, `unexpected property "b"`},
		{"low", object, `{"a":0}`, "at /a: integer 0 is out of the bounds"},
		{"high", object, `{"a":10}`, "at /a: integer 10"},
		{"fraction", object, `{"a":1.5}`, "expected an integer, got 1.5"},
		{"null", object, `{"a":null}`, "expected an integer, got null"},
		{"no object", object, `[]`, "expected an object, got []"},
		{"null for an object", object, `null`, "expected an object"},
		{"array", array, `["a","b"]`, ""},
		{"items", array, `["a",1]`, "at /items: expected a string, got 1"},
		{"many items", array, `["a","b","c"]`, "at most 2 items, got 3"},
		{"no array", array, `{}`, "expected an array"},
		{"string", `{"type":"string","maxLength":1}`, `"long, but a reader can cut it"`, ""},
		{"no string", `{"type":"string","maxLength":1}`, `1`, "expected a string"},
		{"no JSON", object, `{"a":`, "expected JSON"},
		{"empty", object, ``, "expected JSON"},
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, tt := range validations() {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := parse(t, tt.schema).Validate([]byte(tt.value))
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// FuzzValidate: no value panics, and a constrained answer is valid.
func FuzzValidate(f *testing.F) {
	for _, a := range corpus(f) {
		f.Add(a.schema, a.text)
	}
	v := singles(f)
	f.Fuzz(func(t *testing.T, of, value string) {
		s, err := schema.Parse([]byte(of))
		if err != nil {
			return
		}
		if err := s.Validate([]byte(value)); s.Shortest() < 10_000 && accepts(t, v, s, value) {
			require.NoError(t, err)
		}
	})
}
