package sight

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/sight/facts"
)

// scripted is a network: what it finds in a picture, and how long it takes.
type scripted struct {
	took  time.Duration
	finds func(f inference.Frame) []facts.Box

	mu    sync.Mutex
	looks []time.Duration
	parts []bool
	fresh []time.Duration // looks that know nothing of those before
	err   error
}

func (n *scripted) detect(f inference.Frame, parts bool, seen *[3]partSeen) ([]facts.Box, error) {
	time.Sleep(n.took)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looks, n.parts = append(n.looks, f.PTS), append(n.parts, parts)
	if seen[0].looks == 0 {
		n.fresh = append(n.fresh, f.PTS)
	}
	seen[0].looks++
	if n.finds == nil || n.err != nil {
		return nil, n.err
	}
	return n.finds(f), nil
}

func (n *scripted) session(t *testing.T) *session {
	t.Helper()
	m := newModel(networks{detect: n.detect, close: func() error { return nil }}, Options{Config: DefaultConfig(), Seed: 1})
	s, err := m.NewSession()
	require.NoError(t, err)
	session, ok := s.(*session)
	require.True(t, ok)
	return session
}

// street is a picture with texture, so that it has no cut.
func street(at time.Duration, epoch uint32) inference.Frame {
	const w, h = 224, 126
	f := inference.Frame{PTS: at, Epoch: epoch, Width: w, Height: h, Pix: make([]byte, 0, w*h*3)}
	for y := range h {
		for x := range w {
			v := byte(60 + (x/6*37+y/6*53)%120)
			f.Pix = append(f.Pix, v, v, v)
		}
	}
	return f
}

// comesIn is a person who is not there before 5 s, then walks in from the left and stops in the middle.
func comesIn(f inference.Frame) []facts.Box {
	at := (f.PTS - 5*time.Second).Seconds()
	if at < 0 {
		return nil
	}
	x := float32(min(0.4, -0.02+0.15*at))
	return []facts.Box{{Class: "person", Score: 0.9, X0: max(0, x), Y0: 0.4, X1: x + 0.1, Y1: 0.8}}
}

// told returns the text of an answer and its first chunk.
func told(t *testing.T, s inference.Session, p inference.Prompt) (string, inference.Chunk) {
	t.Helper()
	var text strings.Builder
	var first inference.Chunk
	for c, err := range s.Generate(t.Context(), p) {
		require.NoError(t, err)
		if text.Len() == 0 {
			first = c
		}
		text.WriteString(c.Text)
	}
	return text.String(), first
}

// A person who comes in is told once, at the time of the arrival.
func TestTellsAnArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &scripted{took: 60 * time.Millisecond, finds: comesIn}
		s := n.session(t)
		arrivals := 0
		var watched []inference.Sight
		s.Watch(func(seen inference.Sight) { watched = append(watched, seen) })
		for at := time.Duration(0); at < 12*time.Second; at += 200 * time.Millisecond {
			f := street(at, 1)
			s.Observe(f)
			time.Sleep(200 * time.Millisecond)
			text, first := told(t, s, inference.Prompt{Frames: []inference.Frame{f}})
			if strings.Contains(text, "left") {
				arrivals++
				t.Logf("%v: %s, of %v, %+v", at, text, first.Anchor, first.Facts)
				require.Contains(t, text, "person")
				require.InDelta(t, 5.2, first.Anchor.Seconds(), 0.5)
				require.Less(t, at-first.Anchor, 3*time.Second)
				require.NotEmpty(t, first.Facts)
			}
		}
		require.Equal(t, 1, arrivals)
		seen, ok := s.Sight()
		require.True(t, ok)
		require.Equal(t, uint32(1), seen.Epoch)
		require.Len(t, seen.Things, 1)
		require.Equal(t, "person", seen.Things[0].Name)
		require.Equal(t, "enter", seen.Facts[0].Kind)
		require.NoError(t, s.Close())
		require.Len(t, watched, 30, "after each look")
		require.Equal(t, seen, watched[29])
		require.Len(t, n.looks, 30, "every second picture")
		require.NotContains(t, n.parts, false)
	})
}

// Each person who comes in is another fact, also after Forget: the room tells it in words that it used before.
func TestEachArrivalIsAnotherFact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = 20 * time.Second
		s := (&scripted{finds: func(f inference.Frame) []facts.Box {
			if f.PTS %= every; f.PTS > 12*time.Second {
				return nil
			}
			return comesIn(f)
		}}).session(t)
		var arrivals []string
		for at := time.Duration(0); at < 4*every; at += 200 * time.Millisecond {
			f := street(at, 1)
			if at == 3*every {
				s.Forget()
			}
			s.Observe(f)
			time.Sleep(200 * time.Millisecond)
			_, first := told(t, s, inference.Prompt{Frames: []inference.Frame{f}})
			for _, fact := range first.Facts {
				if fact.Kind == "enter" {
					require.NotContains(t, arrivals, fact.Text)
					arrivals = append(arrivals, fact.Text)
				}
			}
		}
		require.Len(t, arrivals, 4)
		require.NoError(t, s.Close())
	})
}

// Observe does not wait for a look. A look at the source before does not count for the next one.
func TestAnotherSourceWhileLooking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &scripted{took: time.Second, finds: func(f inference.Frame) []facts.Box {
			if f.Epoch == 1 {
				return []facts.Box{{Class: "person", Score: 0.9, X0: 0.4, Y0: 0.4, X1: 0.5, Y1: 0.8}}
			}
			return nil
		}}
		s := n.session(t)
		began := time.Now()
		for i := range 4 {
			s.Observe(street(time.Duration(i)*time.Second, 1))
			time.Sleep(900 * time.Millisecond)
		}
		s.Observe(street(time.Second, 2))
		require.Equal(t, 3600*time.Millisecond, time.Since(began))
		_, ok := s.Sight()
		require.False(t, ok)
		time.Sleep(3 * time.Second)
		seen, ok := s.Sight()
		require.True(t, ok)
		require.Equal(t, uint32(2), seen.Epoch)
		require.Empty(t, seen.Things)
		require.NoError(t, s.Close())
	})
}

// What was found before a mask came is forgotten, also by the look in flight and of the picture that waits.
func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &scripted{took: time.Second, finds: func(f inference.Frame) []facts.Box {
			if f.PTS > 6*time.Second { // masked
				return nil
			}
			return []facts.Box{{Class: "person", Score: 0.9, X0: 0.4, Y0: 0.4, X1: 0.5, Y1: 0.8}}
		}}
		s := n.session(t)
		for i := range 6 {
			s.Observe(street(time.Duration(i)*time.Second, 1))
			time.Sleep(900 * time.Millisecond)
		}
		seen, ok := s.Sight()
		require.True(t, ok)
		require.NotEmpty(t, seen.Things)
		s.Observe(street(6*time.Second, 1))
		s.Forget()
		time.Sleep(3 * time.Second)
		_, ok = s.Sight()
		require.False(t, ok)
		s.Observe(street(7*time.Second, 1))
		time.Sleep(3 * time.Second)
		seen, ok = s.Sight()
		require.True(t, ok)
		require.Empty(t, seen.Things)
		require.Empty(t, seen.Facts)
		require.NoError(t, s.Close())
		require.Contains(t, n.fresh, 7*time.Second, "nothing that the mask may cover is kept")
		require.NotContains(t, n.fresh, 4*time.Second)
	})
}

// Without Observe, the pictures of a prompt are all looked at before the answer; the same ones again are not.
func TestLooksAtAPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &scripted{took: 60 * time.Millisecond}
		s := n.session(t)
		var frames []inference.Frame
		for i := range 4 {
			frames = append(frames, street(time.Duration(i)*200*time.Millisecond, 1))
		}
		for range 2 {
			text, _ := told(t, s, inference.Prompt{Frames: frames})
			require.Equal(t, inference.Silence, text)
			require.Len(t, n.looks, 4)
		}
		require.NoError(t, s.Close())
	})
}

func held(j inference.Judgement) (out []bool) {
	for _, f := range j.Findings {
		out = append(out, f.Holds)
	}
	return out
}

func TestRulesByFacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := (&scripted{finds: comesIn}).session(t)
		rules := []string{"somebody is there", "dark", "a person enters from the left", `a person enters the zone "hall"`}
		regions := []inference.Region{{Name: "Hall", Corners: [][2]float64{{0.2, 0}, {1, 0}, {1, 1}, {0.2, 1}}}}
		for at := time.Duration(0); at < 8*time.Second; at += 200 * time.Millisecond {
			s.Observe(street(at, 1))
			synctest.Wait()
			found, ok := s.Judge(rules, regions)
			require.True(t, ok)
			if at < 5*time.Second {
				require.Equal(t, make([]bool, 4), held(found))
			}
		}
		found, _ := s.Judge(rules, regions)
		require.Equal(t, []bool{true, false, true, true}, held(found))
		require.Equal(t, uint32(1), found.Epoch)
		require.InDelta(t, 7.8, found.PTS.Seconds(), 0.3)
		there, enters := found.Findings[0], found.Findings[2]
		require.Equal(t, found.PTS, there.PTS, "what is there now")
		require.InDelta(t, 0.4, there.Box.X0, 0.05)
		require.InDelta(t, 5, enters.PTS.Seconds(), 0.3, "the picture in which the person came")
		require.InDelta(t, 0.05, enters.Box.X1, 0.06)
		require.Equal(t, `A person enters the zone "Hall".`, found.Findings[3].Reason)
		require.NoError(t, s.Close())
	})
}

// A comment names the zones of its prompt.
func TestZonesInComments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := (&scripted{finds: comesIn}).session(t)
		hall := inference.Region{Name: "hall", Corners: [][2]float64{{0.2, 0}, {1, 0}, {1, 1}, {0.2, 1}}}
		var all strings.Builder
		for at := time.Duration(0); at < 20*time.Second; at += 200 * time.Millisecond {
			s.Observe(street(at, 1))
			synctest.Wait()
			if at%time.Second == 0 {
				text, _ := told(t, s, inference.Prompt{Frames: []inference.Frame{street(at, 1)}, Regions: []inference.Region{hall}})
				all.WriteString(text + " ")
			}
		}
		require.Contains(t, strings.ToLower(all.String()), "at the hall")
		require.NoError(t, s.Close())
	})
}

func TestRulesOfTheCamera(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := (&scripted{}).session(t)
		dark := inference.Frame{Width: 64, Height: 64, Pix: make([]byte, 64*64*3)}
		_, ok := s.Judge([]string{"cut", "dark"}, nil)
		require.False(t, ok, "before the first look")
		s.Observe(dark)
		synctest.Wait()
		found, ok := s.Judge([]string{"cut", "dark"}, nil)
		require.True(t, ok)
		require.Equal(t, []bool{false, true}, held(found))
		require.Equal(t, "The picture is dark: its mean brightness is 0 of 255.", found.Findings[1].Reason)
		require.NoError(t, s.Close())
	})
}

func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &scripted{err: errors.New("the network failed")}
		s := n.session(t)
		fails := func(ctx context.Context, p inference.Prompt) (last error) {
			for _, err := range s.Generate(ctx, p) {
				last = err
			}
			return last
		}
		require.ErrorIs(t, fails(t.Context(), inference.Prompt{}), errNoFrames)
		f := street(time.Second, 1)
		require.ErrorIs(t, fails(t.Context(), inference.Prompt{Frames: []inference.Frame{f}}), n.err)
		s.Observe(street(2*time.Second, 1))
		synctest.Wait()
		require.ErrorIs(t, fails(t.Context(), inference.Prompt{Frames: []inference.Frame{f}}), n.err)
		n.err = nil
		s.Observe(street(3*time.Second, 1))
		synctest.Wait()
		require.NoError(t, fails(t.Context(), inference.Prompt{Frames: []inference.Frame{f}}))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, fails(ctx, inference.Prompt{Frames: []inference.Frame{f}}), context.Canceled)
		require.NoError(t, s.Close())
		require.False(t, slices.Contains(n.parts, false))
	})
}

// Talkativeness sets the number of sentences.
func TestTalkativeness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := (&scripted{}).session(t)
		f := street(time.Second, 1)
		s.Observe(f)
		time.Sleep(time.Second)
		for longer, want := range map[int]int{-2: 1, -1: 1, 0: 2, 1: 3, 2: 3} {
			s.mu.Lock()
			s.watcher.Reset()
			l := facts.Look{PTS: time.Second, Texts: []string{"ONE", "TWO", "THREE", "FOUR"}}
			for _, text := range l.Texts {
				l.Lines = append(l.Lines, facts.TextChange{Text: text})
			}
			s.watcher.Push(l)
			s.mu.Unlock()
			_, first := told(t, s, inference.Prompt{Frames: []inference.Frame{f}, Longer: longer})
			require.Len(t, first.Facts, want, "%d steps", longer)
		}
		require.NoError(t, s.Close())
	})
}
