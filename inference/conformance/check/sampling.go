package check

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"

	"touchline/inference/internal/sample"
)

// samplerBound is for traces of logits and probabilities.
const samplerBound = 1e-5

// samplerRules reads the settings of a fixture into the official rules.
func samplerRules(f *tensors, rules *sample.Settings) {
	var info struct {
		RepetitionPenalty float64 `json:"repetition_penalty"`
		Temperature       float64 `json:"temperature"`
		TopK              int     `json:"top_k"`
		TopP              float64 `json:"top_p"`
		Window            int     `json:"penalty_window"`
	}
	f.info(&info)
	rules.RepetitionPenalty, rules.Temperature, rules.Window = info.RepetitionPenalty, info.Temperature, info.Window
	rules.TopK, rules.TopP = info.TopK, info.TopP
}

// newState returns a state after the ids of history.
func newState(rules sample.Settings, history []int32, vocab int) *sample.State {
	must(rules.Validate(vocab))
	st := sample.NewState(vocab)
	st.Reset(rules, 1, 1)
	for _, id := range history {
		if id < 0 || int(id) >= vocab {
			must(fmt.Errorf("history: expected ids below %d, got %d", vocab, id))
		}
		st.Accept(id)
	}
	return st
}

func (c *checker) sampler() {
	for _, name := range c.files.in("sampler") {
		switch path.Base(name) {
		case "chat.safetensors":
			c.row(stageSampler, name, samplerBound, func(t *tally) { c.chatSampler(t, name) })
		case "speech_llm.safetensors":
			c.row(stageSampler, name, samplerBound, func(t *tally) { c.speechSampler(t, name) })
		}
	}
}

// sets counts the cases of a file: tensors "0.suffix", "1.suffix", ...
func (t *tensors) sets(suffix string) int {
	n := 0
	for t.has(strconv.Itoa(n) + suffix) {
		n++
	}
	return n
}

func (c *checker) chatSampler(t *tally, name string) {
	f := c.tensors(name)
	rules := sample.Chat()
	samplerRules(f, &rules)
	for i := range f.sets(".logits") {
		set := strconv.Itoa(i)
		logits, want, history := f.floats(set+".logits"), f.floats(set+".processed"), f.ids(set+".history")
		st := newState(rules, history, len(logits))
		s := sample.New(len(logits))
		need(s.Full(st, logits, 0))
		low := float32(math.Inf(-1))
		got := slices.Repeat([]float32{low}, len(logits))
		for _, kept := range s.Kept() {
			got[kept.ID] = kept.Logit
		}
		same := slices.EqualFunc(got, want, func(a, b float32) bool { return (a == low) == (b == low) })
		t.exact(same, "case %d: other ids are kept", i)
		dropped := func(v float32) bool { return v == low }
		t.near(slices.DeleteFunc(got, dropped), slices.DeleteFunc(want, dropped), fmt.Sprintf("case %d", i))
	}
}

func (c *checker) speechSampler(t *tally, name string) {
	f := c.tensors(name)
	rules := sample.Speech()
	samplerRules(f, &rules)
	logits, u, chosen := f.floats("logits"), f.doubles("u"), f.ids("chosen")
	history, forbidden := f.ids("history"), f.ids("forbidden_ids")
	rules.Stop = f.ids("terminator_ids")
	if len(u) == 0 || len(logits)%len(u) != 0 {
		must(fmt.Errorf("expected a row of logits per step, got %d numbers for %d steps", len(logits), len(u)))
	}
	if len(chosen) != len(u) {
		must(fmt.Errorf("chosen: expected %d ids, got %d", len(u), len(chosen)))
	}
	vocab := len(logits) / len(u)
	rules.Forbidden = sample.NewSet(vocab, forbidden...)
	st := newState(rules, history, vocab)
	st.NewChunk()
	s := sample.New(vocab)
	for i := range u {
		got := need(s.Full(st, logits[i*vocab:][:vocab], u[i]))
		drawn(t, f, i, s.Kept(), got, chosen[i])
		st.Accept(got)
	}
}

// drawn compares a step's candidates, their probabilities and the id drawn from them.
func drawn(t *tally, f *tensors, step int, candidates []sample.Candidate, got, want int32) {
	ids, probs := f.ids(strconv.Itoa(step)+".ids"), f.floats(strconv.Itoa(step)+".probs")
	same := slices.EqualFunc(candidates, ids, func(c sample.Candidate, id int32) bool { return c.ID == id })
	t.exact(same && got == want, "step %d: expected %d of %v, got %d of %v", step, want, ids, got, candidates)
	if same {
		kept := make([]float32, 0, len(ids))
		for _, candidate := range candidates {
			kept = append(kept, candidate.Prob)
		}
		t.near(kept, probs, fmt.Sprintf("step %d", step))
	}
}
