package grammar

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// loaded calls do for the wordings of each world in each language.
func loaded(t *testing.T, do func(t *testing.T, w World, texts *wordings)) {
	t.Helper()
	g, err := New()
	require.NoError(t, err)
	for _, w := range g.Worlds() {
		for _, language := range Languages() {
			t.Run(w.Name()+" "+language, func(t *testing.T) {
				t.Parallel()
				do(t, w, w.wordings(language))
			})
		}
	}
}

// The languages say and understand the same kinds of things.
func TestKinds(t *testing.T) {
	t.Parallel()
	g, err := New()
	require.NoError(t, err)
	for _, w := range g.Worlds() {
		a, b := w.wordings(english), w.wordings(spanish)
		require.ElementsMatch(t, slices.Collect(maps.Keys(a.byKind)), slices.Collect(maps.Keys(b.byKind)))
		require.ElementsMatch(t, a.kinds, b.kinds)
		for kind := range w.orders().filters {
			require.Contains(t, a.kinds, kind)
		}
	}
}

// No comment has a mark that the engine forbids in what is spoken (models/checkpoint, as MiniCPM-o's code): it would learn to say what it may not, and go astray.
func TestSpokenMarks(t *testing.T) {
	t.Parallel()
	loaded(t, func(t *testing.T, _ World, texts *wordings) {
		t.Helper()
		for kind, s := range texts.byKind {
			for _, r := range s.registers {
				for _, template := range r.pool {
					require.NotRegexp(t, `[:#@*()\[\]&/$]`, strings.Join(template.texts, ""), kind)
				}
			}
		}
	})
}

// No wording that is held out is trained on; there are ten wordings of every kind of order.
func TestHeldOutOrders(t *testing.T) {
	t.Parallel()
	loaded(t, func(t *testing.T, w World, texts *wordings) {
		t.Helper()
		d := NewDice(1)
		for _, kind := range texts.kinds {
			trained, heldOut := map[string]bool{}, map[string]bool{}
			for range 300 {
				trained[bare(w.order(d, kind, asking{language: texts.language}).Text)] = true
			}
			require.GreaterOrEqual(t, len(trained), 10, kind)
			for range 60 {
				heldOut[bare(w.order(d, kind, asking{language: texts.language, heldOut: true}).Text)] = true
			}
			for text := range heldOut {
				require.NotContains(t, trained, text, kind)
			}
		}
	})
}

// No rule and no noun that is held out is trained on.
func TestHeldOutTopics(t *testing.T) {
	t.Parallel()
	all := func(patterns []pattern) (out []string) {
		for _, p := range patterns {
			out = append(out, p.all()...)
		}
		return out
	}
	loaded(t, func(t *testing.T, _ World, texts *wordings) {
		t.Helper()
		for kind, topic := range texts.topics {
			for _, pair := range [][2][]pattern{
				{topic.trained.nouns, topic.heldOut.nouns}, {topic.trained.clauses, topic.heldOut.clauses},
			} {
				trained := map[string]bool{}
				for _, text := range all(pair[0]) {
					trained[text] = true
				}
				for _, text := range all(pair[1]) {
					require.NotContains(t, trained, text, kind)
				}
			}
		}
	})
}

// Every text of a frame has its topic.
func TestFrames(t *testing.T) {
	t.Parallel()
	topic := regexp.MustCompile(`\{[XW]\}`)
	loaded(t, func(t *testing.T, _ World, texts *wordings) {
		t.Helper()
		for _, f := range slices.Concat(texts.frames.trained, texts.frames.heldOut) {
			for _, text := range f.all() {
				require.Len(t, topic.FindAllString(text, -1), 1, text)
			}
		}
	})
}

// Orders and rules have every slot filled.
func TestOrderTexts(t *testing.T) {
	t.Parallel()
	broken := regexp.MustCompile(`[{}|()]|  `)
	loaded(t, func(t *testing.T, w World, texts *wordings) {
		t.Helper()
		d := NewDice(2)
		for _, kind := range texts.kinds {
			for _, heldOut := range []bool{false, true} {
				require.NotRegexp(t, broken, w.order(d, kind, asking{language: texts.language, heldOut: heldOut}).Text)
			}
		}
		for _, kind := range w.orders().rules {
			require.NotRegexp(t, broken, w.order(d, kind, asking{language: texts.language, rule: true}).Text)
		}
	})
}

// No pattern has an empty text.
func TestPatterns(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"a goal", "a late goal", "the goal", "the late goal"}, newPattern("(a|the) (|late )goal").all())
	loaded(t, func(t *testing.T, _ World, texts *wordings) {
		t.Helper()
		for _, o := range texts.orders {
			for _, p := range o.trained {
				require.NotContains(t, p.all(), "")
			}
			require.NotContains(t, o.heldOut, "")
		}
		for _, s := range texts.sayings {
			for _, r := range s.registers {
				require.NotContains(t, r.pool, newTemplate(""))
			}
		}
	})
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		n                          int
		english, spanish, articled string
	}{
		{0, "zero", "cero", "cero"},
		{1, "one", "uno", "un"},
		{11, "eleven", "once", "once"},
		{13, "thirteen", "trece", "trece"},
		{16, "sixteen", "dieciséis", "dieciséis"},
		{20, "twenty", "veinte", "veinte"},
		{21, "twenty-one", "veintiuno", "veintiún"},
		{31, "thirty-one", "treinta y uno", "treinta y un"},
		{47, "forty-seven", "cuarenta y siete", "cuarenta y siete"},
	}
	for _, tt := range tests {
		require.Equal(t, tt.english, number(tt.n, english))
		require.Equal(t, tt.spanish, number(tt.n, spanish))
		require.Equal(t, tt.articled, beforeNoun(tt.n, spanish))
	}
	require.Equal(t, "nil-nil", result([2]int{}, english))
	require.Equal(t, "one-all", result([2]int{1, 1}, english))
	require.Equal(t, "three-one", result([2]int{1, 3}, english))
	require.Equal(t, "tres a uno", result([2]int{1, 3}, spanish))
}

// Sentences begin with capitals, and every slot needs a value.
func TestTemplates(t *testing.T) {
	t.Parallel()
	text, ok := newTemplate("{w} it is! ¡{w} es").fill(values{"w": "left"})
	require.True(t, ok)
	require.Equal(t, "Left it is! ¡Left es", text)
	_, ok = newTemplate("{n} shoots").fill(nil)
	require.False(t, ok)
}

func TestBoth(t *testing.T) {
	t.Parallel()
	require.Equal(t, "A dog runs, and a cat sits.", both("A dog runs.", "A cat sits.", english))
	require.Equal(t, "Sale uno e ingresa otro.", both("Sale uno.", "Ingresa otro.", spanish))
	require.Equal(t, "Sale uno y hielo cae.", both("Sale uno.", "Hielo cae.", spanish))
	require.Equal(t, "¡Entra! Sale uno.", both("¡Entra!", "Sale uno.", spanish))
}
