package facts

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestUnderstand(t *testing.T) {
	l := languageOf("en")
	for text, want := range map[string]understood{
		"Only people, please.":              {"only", []string{person}},
		"talk only about dogs and cats":     {"only", []string{"dog", "cat"}},
		"Focus on the players and the ball": {"only", []string{person, "sports ball"}},
		"only dogs, cats and cars":          {"only", []string{"dog", "cat", "car"}},
		"ignore cars":                       {"ignore", []string{"car"}},
		"Don’t mention the bicycles!":       {"ignore", []string{bicycle}},
		"everything":                        {"all", nil},
		"be brief":                          {"brief", nil},
		"How many people are there?":        {"many", []string{person}},
		"Is there a dog in the picture?":    {"there", []string{"dog"}},
		"Can you see a fire hydrant?":       {"there", []string{"fire hydrant"}},
		"Where is the ball?":                {"where", []string{"sports ball"}},
		"What does the board say?":          {"reads", nil},
		"Say what happens, as it happens.":  {"all", nil},
		"Tell me when a person or a vehicle comes into view, and which way it goes.": {"only", []string{person, vehicle}},
		"what's the score":                  {"score", nil},
		"What happened since I asked last?": {"happened", nil},
	} {
		got, ok := l.understand(text)
		require.True(t, ok, text)
		require.Equal(t, want, understood{got.form, got.nouns}, text)
	}
	for _, text := range []string{"", "who scored?", "tell me a story about people", "how many hats?", "only the man with the hat"} {
		_, ok := l.understand(text)
		require.False(t, ok, text)
	}
}

func TestInstructions(t *testing.T) {
	w := newTestWatcher(1)
	stand := func(class string, x float32) Box {
		return Box{Class: class, Score: 0.95, X0: x, Y0: 0.5, X1: x + 0.05, Y1: 0.6}
	}
	for i := range 10 {
		now := time.Duration(i) * 400 * time.Millisecond
		boxes := []Box{walker(0.2, 0, 0), walker(0.5, 0, 0), stand("car", 0.8), stand("cup", 0.1)}
		w.Push(Look{PTS: now, Boxes: boxes, Texts: []string{"ARS 2-1 CHE"}})
	}
	tell := func(instruction string) string { return w.Tell(TellOptions{Instruction: instruction}).Text }
	require.Contains(t, tell("Only cars."), "a car")
	require.Equal(t, []string{"car"}, w.telling.order.only)
	for question, want := range map[string]string{
		"How many people are there?":     "I can see two people.",
		"is there a dog":                 "No, I can see no dogs.",
		"Is there a car?":                "Yes, I can see a car.",
		"where are the people":           "I can see two people, on the left and in the middle.",
		"is there a cup?":                "Yes, on the left.",
		"how many cups are there?":       "I am not sure how many, but I can see one at least, on the left.",
		"where is the cup?":              "On the left.",
		"how many clocks are there?":     "I am not sure.",
		"is there a player or a dog?":    "I count people and do not tell who they are. I can see two people. No, I can see no dogs.",
		"where is the man?":              "I count people and do not tell who they are. I can see two people, on the left and in the middle.",
		"Only cups.":                     languageOf("en").one("answer.only.thing"),
		"focus on the ball":              languageOf("en").one("answer.only.thing"),
		"only cups. how many people?":    languageOf("en").one("answer.only.thing") + " I can see two people.",
		"is there a clock?":              "I am not sure.",
		"what's the score?":              "It reads ARS 2-1 CHE.",
		"what does the clock say":        "I cannot see a clock.",
		"Tell me who is the best player": languageOf("en").one("answer.help"),
	} {
		require.Equal(t, want, tell(question))
		require.Equal(t, []string{"car"}, w.telling.order.only, "neither a question nor a refused order changes the order")
	}
	require.Contains(t, tell("only the women and the ball"), "I count people and do not tell who they are.")
	require.Equal(t, []string{person, "sports ball"}, w.telling.order.only)
	number := uint64(0)
	ask := func(by string) string {
		number++
		o := TellOptions{Instruction: "what happened", InstructionBy: by, InstructionNumber: number}
		answer := w.Tell(o).Text
		require.Empty(t, w.Tell(o).Text, "it was not asked again")
		return answer
	}
	require.Equal(t, "So far none came in and none left. I can see two people.", ask("anna"))
	require.Equal(t, "So far none came in and none left. I can see two people.", ask("ben"))
	require.Equal(t, "Since you last asked, none came in and none left. I can see two people.", ask("anna"))
	require.Equal(t, "Since you last asked, none came in and none left. I can see two people.", ask("anna"))
	for i := range 2 * askersMost {
		w.now += time.Second
		ask(strconv.Itoa(i))
	}
	require.Len(t, w.telling.asked, askersMost)
	require.NotContains(t, w.telling.asked, "anna", "the oldest")
	require.Contains(t, w.telling.asked, strconv.Itoa(2*askersMost-1))
	require.Empty(t, tell(""))
	require.Empty(t, w.telling.order.only)
}

// FuzzOrders: an instruction orders only what the detector knows, and what is said to it is not much longer.
func FuzzOrders(f *testing.F) {
	for _, text := range []string{
		"Only people, please.", "talk only about dogs and cats", "ignore cars. be brief", "How many people are there?", "is there a player or a dog?",
		"where is the man?", "what's the score?", "What happened since I asked last?", "tell me a story", "solo perros y gatos", "wo ist der Ball?",
		"combien de personnes", "only a,a,a", "please now please", "...;!\n", "only the , and the", "\xff",
	} {
		for i := range Languages() {
			f.Add(text, i)
		}
	}
	w := newTestWatcher(1)
	for i := range 10 {
		w.Push(Look{PTS: time.Duration(i) * 400 * time.Millisecond, Boxes: []Box{walker(0.2, 0, 0), walker(0.5, 0, 0)}, Texts: []string{"A 2-1 B"}})
	}
	f.Fuzz(func(t *testing.T, text string, i int) {
		l := languageOf(Languages()[uint(i)%uint(len(Languages()))])
		w.telling.order = order{}
		said := w.instruct(l, text)
		o := w.telling.order
		require.LessOrEqual(t, len(said), 200*(len(text)+1))
		require.Contains(t, []Register{"", Brief, Plain, Lively}, o.register)
		for _, name := range append(o.only, o.ignore...) {
			require.NotEmpty(t, l["noun."+name], name)
		}
	})
}
