package timing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"touchline/inference"
	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort"
	"touchline/inference/minicpmo"
	"touchline/inference/minicpmo/voice"
	"touchline/inference/minicpmo/voice/tts"
	"touchline/models"
)

// SpeechStages holds the durations of the runs of a model's own voice, by rooms.
type SpeechStages struct {
	// Step is a step of its language model with copies and draws, Sound a second of speech of each room from codes to samples. Beside is
	// Sound during a saturated decode of as many rooms, by own kernels or the last weight set, which pauses as an engine's does while
	// sound is made.
	Step, Sound, Beside map[int]Runs
	// Ends is the longest run of an end of a turn, as a multiple of the median of ends of its length; Ready the time until the voice is
	// loaded and warm, of which EndsReady went to ends of turns.
	Ends             float64
	Ready, EndsReady time.Duration
	// Used is the memory of the voice for Slots turns and one reference voice; Slot is the memory of each slot. In bytes.
	Used, Slot int64
	Slots      int
}

// speech times the voice of a bundle. The sound works on a thread and a stream of its own, as in an engine.
func (t *timer) speech(b *models.Bundle, d *minicpmo.Device, o minicpmo.Options, so StageOptions, s *SpeechStages) error {
	s.Slots = slices.Max(so.Speaking)
	codes := b.Manifest.Dims.Speech.TTS.Codes
	choice, vo, err := d.Voice(t.ctx, o, s.Slots)
	if err != nil {
		return err
	}
	before, err := d.Free()
	if err != nil {
		return err
	}
	begin := time.Now()
	lm, err := choice.OpenLM(vo)
	if err != nil {
		return err
	}
	defer func() { t.err = errors.Join(t.err, lm.Close()) }()
	if err := lm.Warm(t.ctx); err != nil {
		return err
	}
	w, on, done, err := soundAlone(t.ctx, choice, vo)
	if err != nil {
		return err
	}
	defer func() { t.err = errors.Join(t.err, done()) }()
	s.Ready, s.EndsReady = time.Since(begin), w.EndsTook
	after, err := d.Free()
	if err != nil {
		return err
	}
	s.Used, s.Slot = before-after, w.SlotBytes()+choice.Layout.Bytes()/int64(choice.Layout.Slots)
	s.Step, s.Sound, s.Beside = map[int]Runs{}, map[int]Runs{}, map[int]Runs{}
	for _, n := range so.Speaking {
		if n <= s.Slots {
			s.Step[n] = t.steps(lm, n, s.Slots, codes)
			on(func() { s.Sound[n] = t.sounds(w, n, codes) })
		}
	}
	on(func() { s.Ends = t.ends(w) })
	for _, n := range so.Speaking {
		set := len(d.Weights) - 1
		if rows, _ := d.OwnRows(); n <= rows {
			set = 0
		}
		decode, ok := d.Decode(set, n, min(d.MaxLen/2, 400))
		if !ok || n > s.Slots || t.err != nil {
			continue
		}
		if err := beside(decode, func() { on(func() { s.Beside[n] = t.sounds(w, n, codes) }) }); err != nil {
			return err
		}
	}
	return nil
}

// longestRest is the longest pause of an engine's decoding while sound is made.
const longestRest = 30 * time.Millisecond

// beside repeats work, with an engine's pauses, while a function makes sound.
func beside(work func() error, sounds func()) error {
	until := make(chan struct{})
	go func() {
		defer close(until)
		sounds()
	}()
	for {
		begin := time.Now()
		if err := work(); err != nil {
			<-until
			return err
		}
		select {
		case <-until:
			return nil
		case <-time.After(min(time.Since(begin), longestRest)):
		}
	}
}

// soundAlone opens the voice's sound on a thread of its own. on runs a function there and waits for it.
func soundAlone(ctx context.Context, s *voice.Selection, o voice.Options) (
	w *voice.Wave, on func(func()), done func() error, err error,
) {
	work, ended := make(chan func()), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	on = func(f func()) {
		finished := make(chan struct{})
		work <- func() { defer close(finished); f() }
		<-finished
	}
	var dev *ort.Device
	done = func() (err error) {
		on(func() {
			if w != nil {
				err = w.Close()
			}
			if dev != nil {
				err = errors.Join(err, dev.Close())
			}
		})
		close(work)
		<-ended
		return err
	}
	on(func() {
		if dev, err = o.Device.Beside(); err != nil {
			return
		}
		w, err = s.OpenWave(ctx, dev, o)
	})
	if err != nil {
		return nil, nil, nil, errors.Join(err, done())
	}
	return w, on, done, nil
}

// steps times steps of n turns of 300 positions, with the draws.
func (t *timer) steps(lm *voice.LM, n, slots, codes int) Runs {
	const positions, drawn = 300, 50
	sampler := tts.New(tts.Official())
	history, lengths := make([][]int32, slots), make([]int32, slots)
	for i := range history {
		lengths[i] = positions
		for k := range drawn {
			history[i] = append(history[i], int32((k*331+i)%(codes-1)))
		}
	}
	u := 0.0
	return t.time(fmt.Sprintf("voice: a step of %d", n), func() error {
		if err := lm.Step(kvcache.Range{Start: 0, Size: n}, history, lengths); err != nil {
			return err
		}
		for slot := range n {
			if u += 0.37; u >= 1 {
				u--
			}
			if row, ok := lm.Best(slot); ok {
				if _, err := sampler.Best(row, history[slot], u); err != nil {
					return err
				}
				continue
			}
			row, err := lm.Logits(slot)
			if err != nil {
				return err
			}
			if _, err := sampler.Full(row, history[slot], u); err != nil {
				return err
			}
		}
		return nil
	})
}

// ends times ends of a turn of every length, from the first one on.
func (t *timer) ends(w *voice.Wave) (worst float64) {
	for n := tts.LeadSilence + 1; n < tts.WindowCodes; n++ {
		t.err = errors.Join(t.err, w.Begin(0, inference.DefaultVoice))
		var took Runs
		for range t.runs {
			begin, job := t.now(), []tts.Job{{Codes: make([]int32, n), Last: true}}
			w.Run(job)
			if t.err = cmp.Or(t.err, job[0].Err, t.ctx.Err()); t.err != nil {
				return 0
			}
			took = append(took, t.now().Sub(begin))
		}
		slices.Sort(took)
		worst = max(worst, float64(took[len(took)-1])/float64(took[len(took)/2]))
	}
	return worst
}

// sounds times windows of n turns after their first ones.
func (t *timer) sounds(w *voice.Wave, n, codes int) Runs {
	jobs := make([]tts.Job, n)
	run := func() error {
		w.Run(jobs)
		var err error
		for i := range jobs {
			err = errors.Join(err, jobs[i].Err)
		}
		return err
	}
	for i := range jobs {
		if err := w.Begin(i, inference.DefaultVoice); err != nil {
			t.err = errors.Join(t.err, err)
			return nil
		}
		jobs[i] = tts.Job{Slot: i, First: true}
		for k := range tts.WindowCodes {
			jobs[i].Codes = append(jobs[i].Codes, int32((k*331+i)%(codes-1)))
		}
	}
	if err := run(); err != nil {
		t.err = errors.Join(t.err, err)
		return nil
	}
	for i := range jobs {
		jobs[i].First = false
	}
	return t.time(fmt.Sprintf("voice: sound of %d", n), run)
}
