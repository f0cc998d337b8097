package schema_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/schema"
)

func validations() []struct{ name, schema, value, want string } {
	const object = `{"type":"object","properties":{"a":{"type":"integer","minimum":1,"maximum":9}},"required":["a"],"additionalProperties":false}`
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
		{"array", `{"type":"array","items":{"type":"boolean"},"maxItems":2}`, `[true,false]`, ""},
		{"items", `{"type":"array","items":{"type":"boolean"},"maxItems":2}`, `[true,1]`, "at /items: expected true or false, got 1"},
		{"many items", `{"type":"array","items":{"type":"boolean"},"maxItems":2}`, `[true,true,true]`, "at most 2 items, got 3"},
		{"no array", `{"type":"array"}`, `{}`, "expected an array"},
		{"string", `{"type":"string","maxLength":1}`, `"long, but a reader can cut it"`, ""},
		{"no string", `{"type":"string"}`, `1`, "expected a string"},
		{"enum", `{"enum":["a",1,null]}`, `null`, ""},
		{"not in the enum", `{"enum":["a",1]}`, `"b"`, `expected one of`},
		{"another dialect", `{"type":["string","null"]}`, `7`, ""},
		{"no JSON", `{}`, `{"a":`, "expected JSON"},
		{"empty", `{}`, ``, "expected JSON"},
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, tt := range validations() {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := schema.Validate([]byte(tt.schema), []byte(tt.value))
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// FuzzValidate: no schema and no value panics.
func FuzzValidate(f *testing.F) {
	for _, v := range validations() {
		f.Add(v.schema, v.value)
	}
	f.Fuzz(func(_ *testing.T, of, value string) { _ = schema.Validate([]byte(of), []byte(value)) })
}
