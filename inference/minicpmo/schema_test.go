package minicpmo_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/internal/ort/orttest"
	"touchline/inference/minicpmo"
)

// firedSchema is the schema of a look with rules.
const firedSchema = `{"type": "object", "properties": {"fired": {"type": "array", "maxItems": 2, "items": {
	"type": "object", "properties": {"rule": {"type": "integer", "minimum": 9, "maximum": 12}, "reason": {"type": "string", "maxLength": 12}},
	"required": ["rule", "reason"], "additionalProperties": false}}}, "required": ["fired"], "additionalProperties": false}`

// requireFired asserts that a text is an answer to firedSchema.
func requireFired(t *testing.T, text string) (items int) {
	t.Helper()
	var answer struct {
		Fired *[]struct {
			Rule   *int    `json:"rule"`
			Reason *string `json:"reason"`
		} `json:"fired"`
	}
	require.True(t, utf8.ValidString(text))
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&answer), text)
	require.False(t, d.More(), text)
	require.NotNil(t, answer.Fired, text)
	require.LessOrEqual(t, len(*answer.Fired), 2, text)
	for _, f := range *answer.Fired {
		require.Contains(t, []int{9, 10, 11, 12}, *f.Rule, text)
		require.LessOrEqual(t, utf8.RuneCountInString(*f.Reason), 12, text)
	}
	return len(*answer.Fired)
}

// Answers with a schema are valid and end in time for any max_tokens.
// The exchange of a prompt has the rendered prompt and the answer.
func TestTrace(t *testing.T) {
	orttest.NoLeaks(t)
	s, err := open(t, tiny(t), settings(t)).NewSession()
	require.NoError(t, err)
	defer s.Close()
	var got []inference.Exchange
	var text strings.Builder
	for c, err := range s.Generate(t.Context(), inference.Prompt{
		System: "Comment.", Text: "Where is <unk><unk>?", Frames: []inference.Frame{frame(t, "320x240.png", 0)}, MaxTokens: 5,
		Trace: func(x inference.Exchange) { got = append(got, x) },
	}) {
		require.NoError(t, err)
		text.WriteString(c.Text)
	}
	require.Len(t, got, 1)
	require.Equal(t, text.String(), got[0].Answer)
	require.Contains(t, got[0].Request, "Comment.\n\nAnswer in English.")
	require.Regexp(t, `<image><unk>×\d+</image>`, got[0].Request)
	require.Contains(t, got[0].Request, "Where is <unk><unk>?", "text of users stays as it is")
}

func TestSchema(t *testing.T) {
	orttest.NoLeaks(t)
	c := settings(t)
	c.MiniCPM.Temperature = 1
	e := open(t, tiny(t), c)
	s, err := e.NewSession()
	require.NoError(t, err)
	defer s.Close()
	question := "Which rules hold?"
	say := func(schema string, most int, pts time.Duration) (text string, err error) {
		for c, err := range s.Generate(t.Context(), inference.Prompt{
			Text: question, Frames: []inference.Frame{frame(t, "320x240.png", pts)}, MaxTokens: most,
			Schema: []byte(schema), Speech: most%2 == 1,
		}) {
			if err != nil {
				return text, err
			}
			text += c.Text
		}
		return text, nil
	}
	items := 0
	for most := 12; most < 100; most += 4 {
		text, err := say(firedSchema, most, time.Duration(most%3))
		require.NoError(t, err)
		items += requireFired(t, text)
	}
	require.NotZero(t, items, "no answer had an item")
	t.Log(e.Stats().WholeRows)

	text, err := say(`{"type": "integer", "minimum": 1, "maximum": 12}`, 3, 0)
	require.NoError(t, err)
	require.Regexp(t, "^[1-9]$|^1[0-2]$", text)
	_, err = say(firedSchema, 11, 0)
	require.ErrorContains(t, err, "may need 12 tokens, and the limit is 11")
	_, err = say(`{"type": "number"}`, 20, 0)
	require.ErrorContains(t, err, `type "number" is not supported`)
	require.Zero(t, e.Stats().Slots)

	question = strings.Repeat("?", 5000)
	_, err = say(firedSchema, 40, 0)
	var long *inference.TooLongError
	require.ErrorAs(t, err, &long)
	question = question[long.Tokens-long.Max+2:] // the shortest answer needs more than that
	_, err = say(firedSchema, 40, 0)
	most := long.Max
	require.ErrorAs(t, err, &long, "a shorter prompt helps, a larger max_tokens does not")
	require.Less(t, long.Max, most)
	question = question[long.Tokens-long.Max:]
	text, err = say(firedSchema, 40, 0)
	require.NoError(t, err)
	requireFired(t, text)
	require.Zero(t, e.Stats().Slots)
}

// Rooms get the same answers with and without a constrained answer beside them.
func TestSchemaBesideOthers(t *testing.T) {
	orttest.NoLeaks(t)
	c := settings(t)
	c.MiniCPM.Temperature = 1
	e := open(t, tiny(t), c)
	var rs []minicpmo.Request
	for i := range 5 {
		r := chat(t, e, fmt.Sprintf("Question %d: what is it?", i), 30, frame(t, "320x240.png", time.Duration(i)))
		r.Seed = uint64(i)
		rs = append(rs, r)
	}
	together := func(rs []minicpmo.Request) (ids [][]int32, texts []string) {
		ids, texts = make([][]int32, len(rs)), make([]string, len(rs))
		errs := make([]error, len(rs))
		var wg sync.WaitGroup
		for i, r := range rs {
			wg.Go(func() { ids[i], texts[i], errs[i] = ask(t, e, r) })
		}
		wg.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		return ids, texts
	}
	want, _ := together(rs)
	constrained := chat(t, e, "Which rules hold?", 60, frame(t, "640x360.png", 0))
	constrained.Schema = []byte(firedSchema)
	for range 3 {
		got, texts := together(append([]minicpmo.Request{constrained}, append(rs[:len(rs):len(rs)], constrained)...))
		require.Equal(t, want, got[1:len(rs)+1])
		require.Equal(t, got[0], got[len(rs)+1], "equal requests")
		requireFired(t, texts[0])
	}
	again, _ := together(rs)
	require.Equal(t, want, again)
}
