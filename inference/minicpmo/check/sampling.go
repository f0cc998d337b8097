package check

import (
	"fmt"
	"math"
	"path"
	"strconv"

	"touchline/inference/internal/sample"
)

// samplerBound is for traces of logits and probabilities.
const samplerBound = 1e-5

type samplerInfo struct {
	RepetitionPenalty float64 `json:"repetition_penalty"`
	Temperature       float64 `json:"temperature"`
	TopK              int     `json:"top_k"`
	TopP              float64 `json:"top_p"`
	Window            int     `json:"penalty_window"`
}

// apply lays what a fixture was made with over the official rules.
func (i samplerInfo) apply(s *sample.Settings) {
	s.RepetitionPenalty, s.Temperature, s.TopK, s.TopP, s.Window = i.RepetitionPenalty, i.Temperature, i.TopK, i.TopP, i.Window
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
	var info samplerInfo
	if err := f.info(&info); err != nil {
		return err
	}
	for i := range f.sets(".logits") {
		set := strconv.Itoa(i)
		logits, err := f.floats(set + ".logits")
		if err != nil {
			return err
		}
		want, err := f.floats(set + ".processed")
		if err != nil {
			return err
		}
		history, err := f.ids(set + ".history")
		if err != nil {
			return err
		}
		rules := sample.Chat()
		info.apply(&rules)
		if err := rules.Validate(len(logits)); err != nil {
			return err
		}
		st, s := sample.NewState(len(logits)), sample.New(len(logits))
		st.Reset(rules, 1, 1)
		if err := accept(st, history, len(logits)); err != nil {
			return err
		}
		if _, err := s.Full(st, logits, 0); err != nil {
			return err
		}
		got := make([]float32, len(logits))
		for j := range got {
			got[j] = float32(math.Inf(-1))
		}
		for _, kept := range s.Kept() {
			got[kept.ID] = kept.Logit
		}
		low := math.Inf(-1)
		var a, b []float32
		same := len(want) == len(got)
		for j := range got {
			if !same || math.IsInf(float64(want[j]), -1) != math.IsInf(float64(got[j]), -1) {
				same = false
				break
			}
			if float64(want[j]) > low {
				a, b = append(a, got[j]), append(b, want[j])
			}
		}
		t.exact(same, "case %d: other ids are kept", i)
		t.near(a, b, fmt.Sprintf("case %d", i))
	}
	return nil
}

// accept feeds earlier ids, as long as they are ids.
func accept(st *sample.State, history []int32, vocab int) error {
	for _, id := range history {
		if id < 0 || int(id) >= vocab {
			return fmt.Errorf("history: expected ids below %d, has %d", vocab, id)
		}
		st.Accept(id)
	}
	return nil
}

func (c *checker) speechSampler(t *tally, name string) error {
	f, err := c.tensors(name)
	if err != nil {
		return err
	}
	var info samplerInfo
	if err := f.info(&info); err != nil {
		return err
	}
	logits, err := f.floats("logits")
	if err != nil {
		return err
	}
	u, err := f.doubles("u")
	if err != nil {
		return err
	}
	if len(u) == 0 || len(logits)%len(u) != 0 {
		return fmt.Errorf("expected a row of logits per step, got %d numbers for %d steps", len(logits), len(u))
	}
	vocab := len(logits) / len(u)
	read := map[string][]int32{}
	for _, n := range []string{"chosen", "history", "forbidden_ids", "terminator_ids"} {
		if read[n], err = f.ids(n); err != nil {
			return err
		}
	}
	if len(read["chosen"]) != len(u) {
		return fmt.Errorf("chosen: expected %d ids, has %d", len(u), len(read["chosen"]))
	}
	rules := sample.Speech()
	info.apply(&rules)
	rules.Forbidden = sample.NewSet(vocab, read["forbidden_ids"]...)
	rules.Stop = read["terminator_ids"]
	if err := rules.Validate(vocab); err != nil {
		return err
	}
	st, s := sample.NewState(vocab), sample.New(vocab)
	st.Reset(rules, 1, 1)
	if err := accept(st, read["history"], vocab); err != nil {
		return err
	}
	st.NewChunk()
	for i := range u {
		got, err := s.Full(st, logits[i*vocab:][:vocab], u[i])
		if err != nil {
			return err
		}
		if err := c.drawn(t, f, i, s.Kept(), got, read["chosen"][i]); err != nil {
			return err
		}
		st.Accept(got)
	}
	return nil
}

// drawn compares a step's candidates, their probabilities and the id drawn from them.
func (c *checker) drawn(t *tally, f *tensors, step int, candidates []sample.Candidate, got, want int32) error {
	ids, err := f.ids(strconv.Itoa(step) + ".ids")
	if err != nil {
		return err
	}
	probs, err := f.floats(strconv.Itoa(step) + ".probs")
	if err != nil {
		return err
	}
	same := len(ids) == len(candidates)
	kept := make([]float32, 0, len(ids))
	for k, candidate := range candidates {
		same = same && candidate.ID == ids[k]
		kept = append(kept, candidate.Prob)
	}
	t.exact(same && got == want, "step %d: expected %d of %v, got %d of %v", step, want, ids, got, candidates)
	if same {
		t.near(kept, probs, fmt.Sprintf("step %d", step))
	}
	return nil
}
