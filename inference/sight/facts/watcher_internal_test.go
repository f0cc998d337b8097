package facts

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRandomLooks pushes random boxes: tracks keep their order of events, boxes and numbers, whatever comes.
func TestRandomLooks(t *testing.T) {
	classes := []string{person, person, person, "car", "truck", "dog", "cup", "sports ball", "bicycle", "nonsense"}
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 7))
		w := newTestWatcher(seed)
		born, ended := map[int]bool{}, map[int]time.Duration{}
		var now time.Duration
		var boxes []Box
		for range 300 {
			now += time.Duration(random.IntN(1200)) * time.Millisecond
			for i := range boxes {
				d := float32(random.Float64()-0.5) * 0.05
				boxes[i].X0, boxes[i].X1, boxes[i].Score = boxes[i].X0+d, boxes[i].X1+d, float32(random.Float64())
			}
			for random.IntN(3) == 0 {
				x, y := float32(random.Float64()), float32(random.Float64())
				boxes = append(boxes, Box{
					Class: classes[random.IntN(len(classes))], X0: x, Y0: y, X1: x + float32(random.Float64())*0.3, Y1: y + float32(random.Float64())*0.5,
				})
			}
			if len(boxes) > 0 && random.IntN(3) == 0 {
				boxes = boxes[1:]
			}
			w.Push(Look{PTS: now, Boxes: boxes, Cut: random.IntN(60) == 0, Pan: random.IntN(30) == 0, Light: random.IntN(40) - 20})
			ids := map[int]bool{}
			for _, k := range w.tracker.tracks {
				require.False(t, ids[k.id], "a track twice")
				if at, ok := ended[k.id]; ok {
					require.Less(t, now-at, returnTime, "a number of a track that ended long ago")
					delete(ended, k.id)
				}
				require.LessOrEqual(t, k.at, now)
				require.LessOrEqual(t, k.born, k.at)
				ids[k.id], born[k.id] = true, true
			}
			for id := range born {
				if _, ok := ended[id]; !ok && !ids[id] {
					ended[id] = now
				}
			}
			if random.IntN(4) == 0 {
				told := w.Tell(TellOptions{MaxSentences: random.IntN(4)})
				require.LessOrEqual(t, told.Newest, now)
			}
			if random.IntN(200) == 0 {
				w.Reset()
				clear(born)
				clear(ended)
			}
			requireAlternating(t, w)
		}
	}
}

// requireAlternating checks that a track comes at most once and does nothing after it left.
func requireAlternating(t *testing.T, w *Watcher) {
	t.Helper()
	came, left := map[int]bool{}, map[int]bool{}
	for _, f := range w.log {
		for _, k := range f.tracks {
			switch f.kind {
			case enterFact, appearFact:
				require.False(t, came[k.id] || left[k.id], "%s", f)
				came[k.id] = true
			case leaveFact:
				require.False(t, left[k.id], "%s", f)
				left[k.id] = true
			default:
			}
		}
	}
}

// walker is a person who moves at a speed in widths of the picture a second.
func walker(x, v float64, now time.Duration) Box {
	x += v * now.Seconds()
	return Box{Class: person, Score: 0.9, X0: float32(x - 0.03), Y0: 0.4, X1: float32(x + 0.03), Y1: 0.7}
}

func TestFactsOfOnePerson(t *testing.T) {
	w := newTestWatcher(1)
	var kinds []kind
	for i := range 220 {
		now := time.Duration(i) * 400 * time.Millisecond
		l := Look{PTS: now}
		switch {
		case now < 5*time.Second:
		case now < 10*time.Second: // in from the left
			l.Boxes = []Box{walker(0.0, 0.09, now-5*time.Second)}
		case now < 60*time.Second:
			l.Boxes = []Box{walker(0.45, 0, 0)}
		case now < 67*time.Second: // and out on the right
			l.Boxes = []Box{walker(0.45, 0.09, now-60*time.Second)}
		}
		w.Push(l)
		for _, f := range w.log[len(kinds):] {
			kinds = append(kinds, f.kind)
		}
	}
	require.Equal(t, []kind{enterFact, stopFact, standFact, standFact, goFact, crossFact, leaveFact}, kinds)
	require.Equal(t, leftSide, w.log[0].side)
	require.InDelta(t, 5.2, w.log[0].at.Seconds(), 0.5)
}

// TestRareLooks: with a look every 1.6 to 2 s, a person who walks in, stays and walks out is told within 4 s.
func TestRareLooks(t *testing.T) {
	const comes, stays, goes, gone = 8 * time.Second, 13 * time.Second, 20 * time.Second, 26 * time.Second
	for gap := 1600 * time.Millisecond; gap <= 2*time.Second; gap += 200 * time.Millisecond {
		for first := time.Duration(0); first < gap; first += gap / 8 {
			w := newTestWatcher(1)
			told := map[kind]time.Duration{}
			for now := first; now < 40*time.Second; now += gap {
				l := Look{PTS: now}
				switch {
				case now < comes:
				case now < stays:
					l.Boxes = []Box{walker(0, 0.1, now-comes)}
				case now < goes:
					l.Boxes = []Box{walker(0.5, 0, 0)}
				case now < gone-time.Second:
					l.Boxes = []Box{walker(0.5, 0.1, now-goes)}
				}
				w.Push(l)
				for _, f := range w.log {
					if _, ok := told[f.kind]; !ok {
						told[f.kind] = now
					}
				}
			}
			require.Contains(t, told, enterFact)
			require.Contains(t, told, leaveFact)
			require.LessOrEqual(t, told[enterFact]-comes, 4*time.Second, "%s from %s: %v", gap, first, told)
			for _, f := range w.log {
				require.NotEqual(t, appearFact, f.kind)
				if f.kind == enterFact || f.kind == leaveFact {
					require.Equal(t, map[kind]side{enterFact: leftSide, leaveFact: rightSide}[f.kind], f.side)
				}
			}
		}
	}
}

func TestFactsAreToldOnce(t *testing.T) {
	w := newTestWatcher(3)
	told := map[string]int{}
	recorded(t, "vtest").play(w, func(time.Duration) {
		for _, f := range w.Tell(TellOptions{MaxSentences: 9}).Facts {
			told[f.PTS.String()+f.Text]++
		}
	})
	require.NotEmpty(t, told)
	for text, n := range told {
		require.Equal(t, 1, n, text)
	}
}

// TestFactsWait: what does not fit into an answer is told by the next one; what nothing told is told when asked what happened.
func TestFactsWait(t *testing.T) {
	w := newTestWatcher(1)
	w.Push(Look{PTS: time.Second})
	show := func(texts ...string) {
		w.texts = texts
		for _, text := range texts {
			w.add(fact{kind: boardFact, at: w.now, text: text})
		}
		w.settle()
	}
	show("ONE", "TWO", "THREE")
	require.Contains(t, w.Tell(TellOptions{MaxSentences: 1}).Text, "ONE")
	require.Contains(t, w.Tell(TellOptions{MaxSentences: 1}).Text, "TWO")
	w.Push(Look{PTS: 30 * time.Second, Texts: w.texts})
	require.Empty(t, w.Tell(TellOptions{}).Text, "too old")
	ask := func(question string) string { return w.Tell(TellOptions{Instruction: question}).Text }
	require.Contains(t, ask("what happened"), "THREE")
	require.NotContains(t, ask("what did I miss"), "THREE")
	show("FOUR")
	w.texts = nil
	require.NotContains(t, ask("what's new"), "FOUR", "it reads so no more")
}

// TestCrowdIsCounted: each event of a crowd is told or in a summary, also of one that ends before the summary is due.
func TestCrowdIsCounted(t *testing.T) {
	w := newTestWatcher(1)
	w.Push(Look{PTS: 0})
	at := 40 * time.Second
	w.Push(Look{PTS: at})
	for range 6 {
		w.tracker.begin(at, Box{Class: person, Score: 0.9, X1: 0.1, Y1: 0.3})
	}
	for _, k := range w.tracker.tracks {
		k.sure = true
		w.add(fact{kind: enterFact, at: at, tracks: []*track{k}, side: leftSide})
	}
	w.settle()
	require.Contains(t, w.Tell(TellOptions{}).Text, "about six")
	w.add(fact{kind: leaveFact, at: at, tracks: []*track{w.tracker.tracks[0]}, side: leftSide})
	w.settle()
	require.Empty(t, w.Tell(TellOptions{}).Text)
	w.Push(Look{PTS: at + 20*time.Second})
	require.Contains(t, w.Tell(TellOptions{}).Text, "one")
}
