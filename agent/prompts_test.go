package agent_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/agenttest"
	"touchline/agent/alert"
	"touchline/agent/command"
	"touchline/agent/prompt"
	"touchline/agent/settings"
	shipped "touchline/configs/profiles"
	"touchline/inference"
)

// TestPromptsAsBytes compares prompts with testdata/prompts.golden: those of a table, and those that a Session gives its engine. Texts are
// written once, below their names.
func TestPromptsAsBytes(t *testing.T) {
	b := &promptBook{names: map[string]string{}}
	b.part("Profiles, languages, with and without a voice, and steps longer than usual.")
	builtIn, err := shipped.BuiltIn()
	require.NoError(t, err)
	languages := []string{"en", "en-GB", "es", "zh", "zh-Hant", "fr", "de", "it", "pt-BR", "nl", "ja", "ko", "sv"}
	for _, p := range builtIn {
		for _, language := range languages {
			for _, spoken := range []bool{true, false} {
				for longer := -2; longer <= 2; longer++ {
					name := fmt.Sprintf("%s %s spoken=%v longer=%d", p.Name, language, spoken, longer)
					b.add(name, promptCase{system: p.Prompt, language: language, spoken: spoken, longer: longer, change: 255}.prompt(t))
				}
			}
		}
	}
	system := builtIn[1].Prompt
	b.part("The background of a room, instructions, remarks, comments.")
	for _, sheet := range []string{"", cupFinal} {
		for _, instruction := range []string{"", "Only the keeper.", "Two\nlines and a \"quote\""} {
			for _, remarks := range []int{0, 1, 6} {
				for _, said := range []int{0, 1, 6, 8} {
					name := fmt.Sprintf("sheet=%v instruction=%q remarks=%d said=%d", sheet != "", instruction, remarks, said)
					b.add(name, promptCase{
						system: system, sheet: sheet, instruction: instruction, remarks: remarks, said: saidBefore(said, ""), change: 255, spoken: true,
					}.prompt(t))
				}
			}
		}
	}
	b.add("comments too long for the prompt", promptCase{system: system, said: saidBefore(6, strings.Repeat("word ", 30))}.prompt(t))
	b.add("a comment too long for the prompt", promptCase{system: system, said: saidBefore(1, strings.Repeat("好", 500))}.prompt(t))
	b.part("How much the scene changed, and the comment before.")
	for _, change := range []float64{0, 14.9, 15, 39.9, 40, 255} {
		for _, last := range []string{"", "Short.", strings.Repeat("A comment that is long. ", 3)} {
			for longer := -2; longer <= 2; longer++ {
				c := promptCase{system: system, change: change, spoken: true, longer: longer}
				if last != "" {
					c.said = saidBefore(1, last)
				}
				b.add(fmt.Sprintf("change=%g last=%d letters longer=%d", change, len(last), longer), c.prompt(t))
			}
		}
	}
	b.part("Engines: comments, alert rules, one rule alone.")
	for _, engine := range engineNames() {
		for _, language := range []string{"en", "es", "pt-BR", "sv"} {
			for _, spoken := range []bool{true, false} {
				c := promptCase{
					system: system, engine: engine, language: language, spoken: spoken, change: 30, said: saidBefore(2, ""), remarks: 1,
					instruction: "Only the keeper.",
				}
				b.add(fmt.Sprintf("%s %s spoken=%v", engine, language, spoken), c.prompt(t))
			}
		}
		for _, rules := range [][]string{{"a goal is scored"}, {"a goal is scored", "a dog is on the pitch", "!the lights fail"}} {
			c := promptCase{system: system, sheet: cupFinal, engine: engine, rules: rules, said: saidBefore(2, ""), instruction: "Only the keeper."}
			b.add(fmt.Sprintf("%s rules=%d", engine, len(rules)), c.prompt(t))
		}
	}
	b.part("As a Session gives them to its engine.")
	sessionPrompts(t, b)
	golden(t, "testdata/prompts.golden", b.text())
}

const cupFinal = `
teams:
  - name: Harriers
    colour: red
    people:
      - {name: Ana Ruiz, number: 09, role: striker, look: white boots}
      - Eva Sol
  - {name: Rovers, colour: blue}
people:
  - {name: Luis Vidal, role: referee}
terms:
  VAR: video assistant referee
pronunciations:
  Ruiz: roo eeth
facts:
  - The Harriers won the last four finals.
`

// saidBefore returns the last n comments, oldest first, four seconds apart; each with a text, or one of its own.
func saidBefore(n int, text string) (out []string) {
	for i := range n {
		if text == "" {
			out = append(out, fmt.Sprintf("Number %d says \"go\".", i+1))
		} else {
			out = append(out, text)
		}
	}
	return out
}

// promptBook writes prompts, a line for each.
type promptBook struct {
	lines, texts bytes.Buffer
	names        map[string]string // of texts
}

func (b *promptBook) part(title string) { fmt.Fprintf(&b.lines, "\n# %s\n", title) }

// name returns the name of a text: its first letter and a number.
func (b *promptBook) name(letter, text string) string {
	if text == "" {
		return `""`
	}
	name, ok := b.names[letter+text]
	if !ok {
		name = fmt.Sprintf("%s%d", letter, len(b.names)+1)
		b.names[letter+text] = name
		fmt.Fprintf(&b.texts, "\n%s\n", name)
		for line := range strings.Lines(text) {
			fmt.Fprintf(&b.texts, "%q\n", line)
		}
	}
	return name
}

func (b *promptBook) add(name string, p inference.Prompt) {
	frames := make([]string, len(p.Frames))
	for i, f := range p.Frames {
		frames[i] = fmt.Sprintf("epoch %d, %v, %dx%d", f.Epoch, f.PTS, f.Width, f.Height)
	}
	fmt.Fprintf(&b.lines, "%s: %s %s %s language=%s tokens=%d slices=%d", name, b.name("S", p.System), b.name("T", p.Text),
		b.name("F", strings.Join(frames, "\n")), p.Language, p.MaxTokens, p.MaxSlices)
	more := func(show bool, format string, v any) {
		switch {
		case show && v == nil:
			b.lines.WriteString(" " + format)
		case show:
			fmt.Fprintf(&b.lines, " "+format, v)
		}
	}
	more(p.Speech, "speech", nil)
	more(p.Instruction != "", "instruction=%q", p.Instruction)
	more(len(p.Pronunciations) > 0, "pronunciations=%v", p.Pronunciations)
	more(p.Voice != "", "voice=%s", p.Voice)
	more(p.VoiceNow != nil, "voice_now", nil)
	more(len(p.Rules) > 0, "rules=%q", p.Rules)
	more(p.Urgent, "urgent", nil)
	more(p.Schema != nil, "schema=%s", b.name("J", string(p.Schema)))
	more(p.Sampling != (inference.Sampling{}), "sampling=%s", (&hour{}).show(p.Sampling))
	b.lines.WriteByte('\n')
}

func (b *promptBook) text() []byte {
	return append([]byte(strings.TrimLeft(b.lines.String(), "\n")+"\n# Texts.\n"), b.texts.Bytes()...)
}

// What follows is all that names the types of prompts.

// promptCase is what a prompt is written from.
type promptCase struct {
	system, language, engine string // en and remote when empty
	spoken                   bool
	longer                   int
	change                   float64
	sheet, instruction       string
	said                     []string
	remarks                  int
	rules                    []string // those with ! are urgent
}

func (c promptCase) prompt(t *testing.T) inference.Prompt {
	t.Helper()
	now := time.Unix(1000, 0)
	background, err := prompt.ReadBackground([]byte(c.sheet))
	require.NoError(t, err)
	look := prompt.Look{
		System: c.system, Background: background, Instruction: c.instruction, Spoken: c.spoken, Longer: c.longer, Change: c.change, Now: now,
	}
	for i, text := range c.said {
		look.Past = append(look.Past, prompt.PastComment{Text: text, At: now.Add(-4 * time.Second * time.Duration(len(c.said)-i))})
	}
	for i := range c.remarks {
		at := now.Add(-time.Second * time.Duration(2*(c.remarks-i)))
		look.Remarks = append(look.Remarks, prompt.Remark{By: fmt.Sprintf("Pat %d\n", i), Text: fmt.Sprintf("a \"remark\" %d", i), At: at})
	}
	for i, when := range c.rules {
		when, urgent := strings.CutPrefix(when, "!")
		look.Rules = append(look.Rules, prompt.Rule{Number: i + 1, When: when, Urgent: urgent})
	}
	for i := range 4 {
		look.Frames = append(look.Frames, inference.Frame{PTS: time.Duration(i) * 200 * time.Millisecond, Epoch: 3, Width: 448, Height: 252})
	}
	cfg := inference.DefaultConfig()
	if c.language != "" {
		cfg.Voice.Language = c.language
	}
	if c.engine == "" {
		c.engine = "remote"
	}
	return look.Prompt(cfg, capabilities(c.engine))
}

func engineNames() []string { return []string{"remote", "minicpmo", "nano", "scene"} }

// capabilities are what an engine can do, as far as prompts depend on it.
func capabilities(engine string) inference.Capabilities {
	switch engine {
	case "minicpmo":
		return inference.Capabilities{
			Instructions: true, Structured: true, Slices: true, Speech: true, OwnVoice: true, OwnVoices: []string{"anna"},
			Sampling: &inference.Sampling{Temperature: new(0.7), TopK: new(100), TopP: new(0.8), RepetitionPenalty: new(1.05)},
		}
	case "nano":
		return inference.Capabilities{Instructions: true, Structured: true, Languages: []string{"en"}, RuleNames: []string{"a goal is scored"}}
	case "scene":
		return inference.Capabilities{Languages: []string{"en"}, CheckRule: func(string, []inference.Region) error { return nil }}
	}
	return inference.Capabilities{Instructions: true, Structured: true, Sampling: &inference.Sampling{}}
}

// sessionPrompts adds what an engine gets: every verbosity, voices and random draws as they are set, the second try of a repeat, looks
// with alert rules, trials of one, remarks.
func sessionPrompts(t *testing.T, b *promptBook) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int32
		resume := func() {}
		// No two things happen in the same instant, which has no order.
		rng := rand.New(rand.NewPCG(5, 6))
		latency := func(least time.Duration) time.Duration {
			return least + time.Duration(rng.Int64N(int64(50*time.Millisecond)))
		}
		r := newRig(t, func(_ int, p inference.Prompt) agenttest.Answer {
			if p.Structured() {
				return agenttest.Answer{Latency: latency(50 * time.Millisecond), Text: `{"fired":[]}`}
			}
			text := sentences[int(n.Add(1))%len(sentences)]
			return agenttest.Answer{Latency: latency(300 * time.Millisecond), Text: text, Speech: 2 * time.Second}
		}, func(o *agent.Options) {
			o.Agent.Repeats = settings.RepeatsRetry
			resume = o.Input.(*agenttest.Camera).Pause(false)
			scripted(o).Can = new(capabilities("minicpmo"))
			o.Alerts, o.Ears = rules(t, alert.Rule{When: "a goal is scored"}, alert.Rule{When: "the lights fail", Level: alert.LevelCritical}), hears{}
		})
		asked := 0
		// next adds the first prompts after a change, a comment's and one with rules.
		next := func(name string, change settings.Settings) {
			t.Helper()
			_, err := r.Change(command.Change{Settings: change, Instruction: new(name)}, "test")
			require.NoError(t, err)
			time.Sleep(4*time.Second + 7*time.Millisecond + 3)
			found := map[bool]bool{}
			for _, q := range r.engine.Questions()[asked:] {
				if !found[q.Structured()] {
					found[q.Structured()] = true
					b.add(fmt.Sprintf("%s structured=%v", name, q.Structured()), q.Prompt)
				}
			}
			require.Len(t, found, 2, name)
			asked = len(r.engine.Questions())
		}
		time.Sleep(13*time.Millisecond + 7)
		resume()
		time.Sleep(2 * time.Second)
		next("first", settings.Settings{})
		for talk := 1; talk <= 5; talk++ {
			for _, speech := range []bool{true, false} {
				next(fmt.Sprintf("talkativeness=%d speech=%v", talk, speech), settings.Settings{Verbosity: &talk, Speech: &speech})
			}
		}
		next("voice and random draws", settings.Settings{
			Verbosity: new(3), Speech: new(true), Voice: new("model:anna"), Temperature: new(0.2), TopK: new(9), TopP: new(0.5),
			RepetitionPenalty: new(1.2),
		})
		next("settings of the prompt", settings.Settings{
			Language: new("es"), MaxTokens: new(77), SpeechMaxTokens: new(55), MaxSlices: new(5), Frames: new(2), Remarks: new(true), Hearing: new("all"),
		})
		for i := range 7 {
			r.Hear(agent.Heard{Identity: fmt.Sprintf("p%d", i), Text: fmt.Sprintf("remark %d", i), Final: true, Caption: true, Ended: time.Now()})
		}
		next("remarks", settings.Settings{})
		_, err := r.TryRule(t.Context(), alert.RuleText{When: "a cat is here"}, 0)
		require.NoError(t, err)
		all := r.engine.Questions()[asked:]
		b.add("trial", all[slices.IndexFunc(all, func(q agenttest.Asked) bool {
			return q.Structured() && strings.Contains(q.Text, "a cat is here")
		})].Prompt)
		n.Add(-1) // the next comment repeats
		time.Sleep(10 * time.Second)
		all = r.engine.Questions()[asked:]
		b.add("second try", all[slices.IndexFunc(all, func(q agenttest.Asked) bool {
			return strings.Contains(q.Text, "You said that before")
		})].Prompt)
		r.stop()
	})
}
