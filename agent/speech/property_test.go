package speech_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/speech"
	"touchline/inference"
	"touchline/pacing"
)

// world is a Core with a simulated picture, voice and makers. Time passes only in pass.
type world struct {
	t    *testing.T
	rng  *rand.Rand
	now  time.Time
	next time.Time
	core *speech.Core
	line *line

	script func(x *text) // nil: at random
	deaf   bool          // the voice reports nothing
	texts  []*text
	voice  []*text // started sound that has not ended
	clears int
}

// text is an utterance with all that became of it.
type text struct {
	*speech.Utterance

	w       *world
	n       int
	words   string // all of it
	work    []func()
	at      time.Time // of the next work
	began   int
	order   int // of its beginning
	starts  int
	startAt time.Time
	onset   time.Time
	endAt   time.Time
	audible time.Duration
	lost    time.Duration
	whole   bool // heard to its end
	closed  bool // no more sound comes
	paused  time.Time
	cut     bool
	shown   string
	ends    []speech.Result
	mine    bool // its maker reports it
	reports int  // by its maker
	heardAt time.Time
}

// line shows each frame after a delay.
type line struct{ d, target time.Duration }

func (l *line) Due(_ uint32, pts time.Duration, now time.Time) (time.Time, bool) {
	due := epoch().Add(pts + l.d)
	if due.Before(now) {
		due = now
	}
	return due, true
}

func (l *line) Shown(_ uint32, pts time.Duration) (time.Time, bool) {
	return epoch().Add(pts + l.d), true
}
func (l *line) Delay() time.Duration      { return l.d }
func (l *line) Target() time.Duration     { return l.target }
func (l *line) SetTarget(d time.Duration) { l.target = d }

func epoch() time.Time { return time.Date(2026, 3, 1, 20, 0, 0, 0, time.UTC) }

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	cfg := pacing.DefaultConfig()
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), now: epoch(), line: &line{d: 3 * time.Second}}
	cfg.PauseAfter = []time.Duration{0, 500 * time.Millisecond, 2 * time.Second}[w.rng.IntN(3)]
	w.core = speech.NewCore(w.line, cfg)
	return w
}

func (w *world) chance(percent int) bool            { return w.rng.IntN(100) < percent }
func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d))) }

// add adds an utterance; nil if it was refused.
func (w *world) add(o speech.Options) *text {
	x := &text{w: w, n: len(w.texts)}
	x.words = fmt.Sprintf("This is text number %d of them all.", x.n)
	o.Spoken = true
	o.Cause = errInterrupt
	o.Cancel = func(error) { x.cancelled() }
	if o.Priority > speech.Comment {
		o.Text = x.words
	} else {
		o.Anchor = &speech.Anchor{PTS: w.now.Sub(epoch()) - w.upTo(time.Second), Arrival: w.now.Add(-w.upTo(time.Second))}
	}
	x.Utterance = speech.New(o)
	if err := w.core.Add(x.Utterance); err != nil {
		require.ErrorIs(w.t, err, speech.ErrFull)
		return nil
	}
	w.texts = append(w.texts, x)
	if o.Priority == speech.Comment {
		x.write()
	}
	return x
}

var (
	errInterrupt = errors.New("interrupted")
	errMaker     = errors.New("the program failed")
	errCleared   = errors.New("cleared")
)

// then adds work for later.
func (x *text) then(f func()) { x.work = append(x.work, f) }

// write is a comment's maker: text in pieces, with or without sound, which may be of no use or fail.
func (x *text) write() {
	w := x.w
	if w.script != nil {
		w.script(x)
		return
	}
	x.at = w.now.Add(w.upTo(2 * time.Second))
	half := len(x.words) / 2
	sounds, behind := w.chance(85), w.chance(40)
	if !behind && sounds {
		x.then(func() { w.core.Text(x.Utterance, x.words[:half], w.now); x.sound(time.Second) })
	} else {
		x.then(func() { w.core.Text(x.Utterance, x.words[:half], w.now) })
	}
	if w.chance(5) {
		x.then(func() {
			if w.core.Withdraw(x.Utterance, true) {
				w.core.Text(x.Utterance, x.words[:half], w.now)
			}
		})
	}
	x.then(func() { w.core.Text(x.Utterance, x.words[half:], w.now) })
	keep, failed := w.chance(90), w.chance(5)
	x.then(func() {
		said, sound := w.core.EndText(x.Utterance, keep, failed, w.now)
		if !said {
			x.mine = true
			x.reports++
		}
		if !said || !sound {
			x.finish(nil)
		}
	})
	x.speak(sounds)
}

// speak is the sound of a text.
func (x *text) speak(sounds bool) {
	if sounds {
		for range 1 + x.w.rng.IntN(3) {
			x.then(func() { x.sound(x.w.upTo(3*time.Second) + 1) })
		}
	}
	var err error
	if x.w.chance(10) {
		err = errMaker
	}
	x.then(func() { x.finish(err) })
}

func (x *text) sound(length time.Duration) {
	w := x.w
	if !x.Wanted() {
		return
	}
	x.audible += length
	if x.heardAt.IsZero() {
		x.heardAt = w.now
	}
	var times []inference.WordTime
	if w.script == nil && w.chance(50) {
		times = []inference.WordTime{{Text: "This", End: length}}
	}
	w.core.Sound(x.Utterance, speech.Written{Audible: x.audible, Length: length, Words: times}, w.now)
}

func (x *text) finish(err error) {
	x.closed, x.work = true, nil
	x.w.core.EndSound(x.Utterance, x.audible, err, x.w.now)
}

// cancelled ends the work: its maker returns at once.
func (x *text) cancelled() {
	if !x.closed {
		x.work = []func(){func() { x.finish(context.Canceled) }}
		x.at = x.w.now
	}
}

// Make implements speech.Maker; Core's actions call it here.
func (x *text) Make(context.Context, *speech.Utterance) error {
	if x.w.script != nil {
		x.w.script(x)
		return nil
	}
	x.at = x.w.now.Add(x.w.upTo(time.Second))
	x.speak(x.w.chance(85))
	return nil
}

func (x *text) Begun(dropped bool) {
	x.began++
	require.False(x.w.t, x.mine, "%v", x.n)
	if !dropped {
		x.w.clears++
		x.order = x.w.clears
	}
}

func (x *text) Caption(s speech.Step) {
	x.shown += s.Delta
	require.Equal(x.w.t, x.shown, s.Text)
	require.Empty(x.w.t, x.ends, "no caption behind the end")
}

func (x *text) Ended(r speech.Result) { x.ends = append(x.ends, r) }

// settle does all that is due now, and again until nothing is.
func (w *world) settle() {
	for busy := true; busy; {
		busy = false
		for _, x := range w.texts {
			for len(x.work) > 0 && !x.at.After(w.now) {
				f := x.work[0]
				x.work = x.work[1:]
				f()
				busy = true
				if w.chance(70) {
					x.at = w.now.Add(w.upTo(1500 * time.Millisecond))
				}
			}
		}
		busy = w.play() || busy
		var acts []speech.Action
		acts, w.next = w.core.Step(w.now)
		for _, a := range acts {
			busy = true
			w.do(a)
		}
	}
}

func (w *world) do(a speech.Action) {
	x := w.texts[slices.IndexFunc(w.texts, func(x *text) bool { return x.Utterance == a.U })]
	switch a.Do {
	case speech.Make:
		require.NoError(w.t, x.Make(w.t.Context(), a.U))
	case speech.Cancel:
		x.cancelled()
	case speech.Begin:
		x.Begun(a.Dropped)
	case speech.Show:
		x.Caption(a.Step)
	case speech.End:
		x.Ended(a.Result)
	case speech.StartVoice:
		for _, v := range w.voice {
			require.True(w.t, v.cut || v.closed && !v.end().After(a.At), "two at once: %d in %d, which ends at %v: %v at %v",
				x.n, v.n, v.end().Sub(epoch()), a.At.Sub(epoch()), w.now.Sub(epoch()))
		}
		x.starts++
		x.startAt = a.At
		w.voice = append(w.voice, x)
		if x.Cuts > speech.Comment && x.heardAt.Equal(w.now) {
			require.Equal(w.t, w.now, a.At)
		}
	case speech.PauseVoice:
		x.paused = w.now
	case speech.ResumeVoice:
		x.shift(w.now.Sub(x.paused))
		x.paused = time.Time{}
	case speech.CutVoice:
		x.cut = x.starts > 0 // else it is of a text that is written again, or never starts
		if x.onset.IsZero() {
			w.voice = slices.DeleteFunc(w.voice, func(v *text) bool { return v == x })
		}
	}
}

// slip has the voice skip frames.
func (x *text) slip(by time.Duration) {
	x.onset, x.lost = x.onset.Add(by), x.lost+by
	x.w.core.VoiceSlipped(x.Utterance, x.lost, x.w.now)
}

func (x *text) shift(by time.Duration) {
	x.startAt = x.startAt.Add(by)
	if !x.onset.IsZero() {
		x.onset = x.onset.Add(by)
	}
}

// end is when its sound ends, as far as there is any.
func (x *text) end() time.Time {
	from := x.startAt
	if !x.onset.IsZero() {
		from = x.onset
	}
	return from.Add(x.audible)
}

// play lets the voice play; it reports events.
func (w *world) play() (busy bool) {
	if w.deaf {
		return false
	}
	for i, x := range slices.Clone(w.voice) {
		switch {
		case x.onset.IsZero() && i == 0 && !x.startAt.After(w.now) && x.paused.IsZero() && !x.cut:
			x.onset = w.now
			w.core.VoiceStarted(x.Utterance, x.onset)
		case !x.onset.IsZero() && (x.cut || x.closed && x.paused.IsZero() && !x.end().After(w.now)):
			x.endAt = w.now
			w.voice = slices.DeleteFunc(w.voice, func(v *text) bool { return v == x })
			x.whole = x.closed && (!x.cut || w.chance(10)) // the cut may come too late
			w.core.VoiceEnded(x.Utterance, w.now, !x.whole)
		default:
			continue
		}
		busy = true
	}
	return busy
}

// pass lets time pass, stopping where something is due.
func (w *world) pass(d time.Duration) {
	until := w.now.Add(d)
	for w.now.Before(until) {
		to := until
		for _, at := range append(w.dues(), w.next) {
			if at.After(w.now) && at.Before(to) {
				to = at
			}
		}
		w.now = to
		w.settle()
	}
}

func (w *world) dues() (all []time.Time) {
	for _, x := range w.texts {
		if len(x.work) > 0 {
			all = append(all, x.at)
		}
	}
	for _, x := range w.voice {
		all = append(all, x.startAt, x.end())
	}
	return all
}

// event is one random event.
func (w *world) event() {
	switch w.rng.IntN(16) {
	case 0, 1, 2, 3, 4:
		w.add(speech.Options{Priority: speech.Comment})
	case 5, 6:
		w.add(speech.Options{Priority: speech.Announcement, Author: w.author()})
	case 7:
		w.add(speech.Options{Priority: speech.Interjection, Cuts: speech.Announcement + speech.Priority(w.rng.IntN(2)), Author: w.author()})
	case 8:
		w.alert()
	case 9, 10:
		w.core.Floor(speech.Floor(w.rng.IntN(3)), w.now)
	case 11:
		w.core.Behave(speech.BargeIn(w.rng.IntN(4)), w.upTo(5*time.Second), 0, w.now)
	case 12:
		w.core.Clear(errCleared, w.chance(50), w.now)
	case 13:
		if w.chance(30) {
			w.core.Mute(w.now)
		}
	case 14:
		w.line.d = time.Second + w.upTo(4*time.Second)
	case 15:
		if len(w.voice) > 0 && !w.voice[0].onset.IsZero() && !w.voice[0].cut && len(w.voice) == 1 {
			by := w.upTo(200 * time.Millisecond)
			w.voice[0].slip(by)
		}
	}
	w.settle()
}

func (w *world) author() string { return []string{"ana", "ben"}[w.rng.IntN(2)] }

// alert adds an alert and asserts that it cuts what is said once it has sound.
func (w *world) alert() {
	x := w.add(speech.Options{Priority: speech.Alert, Cuts: speech.Alert})
	if x == nil {
		return
	}
	w.settle()
}

// TestRandomEvents throws random events at the core and asserts, whatever happens: never two voices at once; nothing lost or
// said twice; an alert with sound is heard at once and cuts all of lower priority; equal priority keeps its order; each text
// ends once, with a reason unless it was said to its end.
func TestRandomEvents(t *testing.T) {
	runs := 1000
	if testing.Short() {
		runs = 300
	}
	for seed := range uint64(runs) {
		w := newWorld(t, seed)
		for range 60 {
			w.event()
			w.checkAlerts()
			w.pass(w.upTo(1500 * time.Millisecond))
			w.checkAlerts()
		}
		w.core.Behave(speech.Talk, 0, 0, w.now)
		w.core.Floor(speech.FloorFree, w.now)
		w.settle()
		w.pass(20 * time.Minute)
		w.checkEnds(seed)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// checkAlerts asserts that an alert that has sound is said, unless another one is, and that nothing less is.
func (w *world) checkAlerts() {
	for _, x := range w.texts {
		if x.Priority != speech.Alert || len(x.ends) > 0 || x.heardAt.IsZero() {
			continue
		}
		state := x.State()
		if state != speech.Waiting {
			continue
		}
		require.True(w.t, slices.ContainsFunc(w.texts, func(o *text) bool {
			s := o.State()
			return o.Priority == speech.Alert && o != x && (s == speech.Playing || s == speech.Paused)
		}), "an alert waits for less than an alert")
	}
}

// checkEnds asserts what became of all texts.
func (w *world) checkEnds(seed uint64) {
	last := map[speech.Priority]int{}
	for _, x := range w.texts {
		name := fmt.Sprintf("seed %d, text %d", seed, x.n)
		require.LessOrEqual(w.t, x.starts, 1, "%s: said twice", name)
		if x.mine {
			require.Empty(w.t, x.ends, name)
			require.Equal(w.t, 1, x.reports, name)
			require.Zero(w.t, x.began, name)
			require.Empty(w.t, x.shown, name)
			continue
		}
		require.Len(w.t, x.ends, 1, "%s: lost", name)
		require.Equal(w.t, 1, x.began, name)
		r := x.ends[0]
		state := x.State()
		switch r.Outcome {
		case speech.Spoken, speech.Shown:
			require.Equal(w.t, x.words, x.shown, name)
			require.Equal(w.t, speech.Done, state, name)
		case speech.Silenced:
			require.False(w.t, x.whole, name)
			require.True(w.t, strings.HasPrefix(x.words, x.shown), name)
			require.Error(w.t, r.Cause, name)
			require.Equal(w.t, speech.Cut, state, name)
		case speech.Dropped:
			require.Empty(w.t, x.shown, name)
			require.Error(w.t, r.Cause, name)
			require.Zero(w.t, x.starts, name)
		default:
			require.Fail(w.t, "no outcome", name)
		}
		if x.order > 0 {
			require.Greater(w.t, x.order, last[x.Priority], "%s: out of turn", name)
			last[x.Priority] = x.order
		}
	}
	require.False(w.t, w.core.Busy())
}
