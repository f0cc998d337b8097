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
func newState(rules sample.Settings, history []int32, vocab int) (*sample.State, error) {
	if err := rules.Validate(vocab); err != nil {
		return nil, err
	}
	st := sample.NewState(vocab)
	st.Reset(rules, 1, 1)
	for _, id := range history {
		if id < 0 || int(id) >= vocab {
			return nil, fmt.Errorf("history: expected ids below %d, has %d", vocab, id)
		}
		st.Accept(id)
	}
	return st, nil
}

func (c *checker) sampler() {
	for _, name := range c.files.in("sampler") {
		switch path.Base(name) {
		case "chat.safetensors":
			c.row(stageSampler, name, samplerBound, func(t *tally) error { return c.chatSampler(t, name) })
		case "speech_llm.safetensors":
			c.row(stageSampler, name, samplerBound, func(t *tally) error { return c.speechSampler(t, name) })
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

func (c *checker) chatSampler(t *tally, name string) error {
	f, err := c.tensors(name)
	if err != nil {
		return err
	}
	rules := sample.Chat()
	samplerRules(f, &rules)
	for i := range f.sets(".logits") {
		set := strconv.Itoa(i)
		logits, want, history := f.floats(set+".logits"), f.floats(set+".processed"), f.ids(set+".history")
		if f.err != nil {
			return f.err
		}
		st, err := newState(rules, history, len(logits))
		if err != nil {
			return err
		}
		s := sample.New(len(logits))
		if _, err := s.Full(st, logits, 0); err != nil {
			return err
		}
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
	return f.err
}

func (c *checker) speechSampler(t *tally, name string) error {
	f, err := c.tensors(name)
	if err != nil {
		return err
	}
	rules := sample.Speech()
	samplerRules(f, &rules)
	logits, u, chosen := f.floats("logits"), f.doubles("u"), f.ids("chosen")
	history, forbidden := f.ids("history"), f.ids("forbidden_ids")
	rules.Stop = f.ids("terminator_ids")
	if f.err != nil {
		return f.err
	}
	if len(u) == 0 || len(logits)%len(u) != 0 {
		return fmt.Errorf("expected a row of logits per step, got %d numbers for %d steps", len(logits), len(u))
	}
	if len(chosen) != len(u) {
		return fmt.Errorf("chosen: expected %d ids, has %d", len(u), len(chosen))
	}
	vocab := len(logits) / len(u)
	rules.Forbidden = sample.NewSet(vocab, forbidden...)
	st, err := newState(rules, history, vocab)
	if err != nil {
		return err
	}
	st.NewChunk()
	s := sample.New(vocab)
	for i := range u {
		got, err := s.Full(st, logits[i*vocab:][:vocab], u[i])
		if err != nil {
			return err
		}
		drawn(t, f, i, s.Kept(), got, chosen[i])
		st.Accept(got)
	}
	return f.err
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
