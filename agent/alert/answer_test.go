package alert_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/agent/alert"
)

type answer struct {
	name, text string
	want       []alert.Fired
	ok         bool
}

func answers() []answer {
	goal := []alert.Fired{{Rule: 3, Reason: "a goal"}}
	return []answer{
		{"plain", `{"fired":[{"rule":3,"reason":"a goal"},{"rule":1}]}`, []alert.Fired{{3, "a goal"}, {Rule: 1}}, true},
		{"none", `{"fired":[]}`, []alert.Fired{}, true},
		{"fenced", "```json\n{\"fired\":[{\"rule\":3,\"reason\":\"a goal\"}]}\n```", goal, true},
		{"with thoughts", "<think>{\"fired\":[{\"rule\":1}]} or rule 3?</think>{\"fired\":[{\"rule\":3,\"reason\":\"a goal\"}]}", goal, true},
		{"the template opens the thoughts", "hm {} </think>\n\n{\"fired\":[{\"rule\":3,\"reason\":\"a goal\"}]}", goal, true},
		{"prose around", `Here {you} are: {"fired":[{"rule":3,"reason":"a goal"}]} {I hope} it helps.`, goal, true},
		{"wrapped in another object", `{"answer":{"fired":[{"rule":3,"reason":"a goal"}]}}`, goal, true},
		{"cut off", `{"fired":[{"rule":3,"reason":"a g`, nil, false},
		{"ended within the thoughts", `<think>{"fired":[{"rule":3}]}`, nil, false},
		{"prose", "Nothing fired.", nil, false},
		{"empty", "", nil, false},
		{"another object", `{"rules":[3]}`, nil, false},
		{"null", `{"fired":null}`, nil, false},
		{"another type", `{"fired":"none"}`, nil, false},
		{"a name for a number", `{"fired":[{"rule":"goal"}]}`, nil, false},
		{"endless", strings.Repeat("{", 100_000), nil, false},
	}
}

func TestReadAnswer(t *testing.T) {
	t.Parallel()
	for _, tt := range answers() {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, ok := alert.ReadAnswer(tt.text)
			require.Equal(t, tt.ok, ok)
			require.Equal(t, tt.want, got)
		})
	}
}

func FuzzReadAnswer(f *testing.F) {
	for _, a := range answers() {
		f.Add(a.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if fired, ok := alert.ReadAnswer(text); !ok {
			require.Nil(t, fired)
		} else {
			require.Contains(t, text, "{")
		}
	})
}
