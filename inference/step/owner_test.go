package step_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference/step"
)

const ms = time.Millisecond

// at returns the time of a test's clock.
func at(n time.Duration) time.Time { return time.Unix(1000, 0).Add(n) }

// One load at a time; commentary goes before recognition, and a load that is cancelled hands its turn on.
func TestOwnerLoads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := step.NewOwner(time.Now)
		var mu sync.Mutex
		var order []string
		note := func(text string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, text)
		}
		var all sync.WaitGroup
		load := func(ctx context.Context, name string, p step.Priority, took time.Duration) {
			all.Go(func() {
				done, err := o.Load(ctx, p)
				if err != nil {
					note(name + ": " + err.Error())
					return
				}
				note(name)
				time.Sleep(took)
				done()
				done() // nothing
			})
			synctest.Wait()
		}
		cancelled, cancel := context.WithCancelCause(t.Context())
		load(t.Context(), "ears", step.Recognition, time.Second)
		load(t.Context(), "interim", step.Interim, time.Second)
		load(t.Context(), "more ears", step.Recognition, time.Second)
		load(cancelled, "cancelled", step.Commentary, time.Second)
		load(t.Context(), "words", step.Commentary, time.Second)
		load(t.Context(), "voice", step.Commentary, time.Second)
		cancel(errors.New("closed"))
		began := time.Now()
		all.Wait()
		require.Equal(t, []string{"ears", "cancelled: closed", "words", "voice", "more ears", "interim"}, order)
		require.Equal(t, 5*time.Second, time.Since(began))
		done, ok := o.TryLoad()
		require.True(t, ok)
		_, ok = o.TryLoad()
		require.False(t, ok)
		load(t.Context(), "again", step.Interim, 0)
		require.Len(t, order, 6)
		done()
		all.Wait()
		require.Len(t, order, 7)
	})
}

func TestOwnerOrder(t *testing.T) {
	t.Parallel()
	now := at(0)
	o := step.NewOwner(func() time.Time { return now })
	words, voice, ears := o.Join(step.Commentary), o.Join(step.Commentary), o.Join(step.Recognition)
	rest := func(c *step.Client, due time.Duration) time.Duration {
		return c.Delay(step.Run{Due: at(due), Last: at(0), Cost: 5 * ms})
	}
	require.Zero(t, rest(words, 60*ms), "nothing else waits")
	require.Zero(t, rest(ears, 60*ms))

	voice.Post(at(0))
	require.Equal(t, 60*ms, rest(words, 60*ms), "the voice is due earlier")
	require.Equal(t, 60*ms, rest(ears, 60*ms), "commentary goes first until the text is due")
	require.Zero(t, rest(words, 0), "words that are due do not wait")
	require.Zero(t, rest(voice, -ms))
	voice.Post(time.Time{})
	require.Zero(t, rest(words, 60*ms))

	ears.Post(at(0))
	require.Zero(t, rest(words, 60*ms), "recognition goes after commentary")
	interim := o.Join(step.Interim)
	require.Equal(t, 60*ms, rest(interim, 60*ms), "interim texts of a model of their own go after finals")
	interim.Post(at(0))
	require.Zero(t, rest(ears, 60*ms))
	interim.Leave()
	begun, end := make(chan struct{}), make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = voice.Do(func() error { close(begun); <-end; return nil })
	}()
	<-begun
	require.Equal(t, 5*ms, rest(words, 0), "the device is shared by halves")
	require.Equal(t, 30*ms, words.Delay(step.Run{Due: at(0), Last: at(0), Cost: time.Second}), "for 30 ms at most")
	now = at(20 * ms)
	require.Zero(t, rest(words, 0))
	require.Equal(t, 20*ms, voice.Busy(), "with the run that has not ended")
	close(end)
	<-ended
	require.Equal(t, 40*ms, rest(ears, 60*ms), "commentary has just worked")
	now = at(200 * ms)
	require.Zero(t, rest(ears, 300*ms), "commentary is idle")
	require.Equal(t, 20*ms, voice.Busy())
	voice.Post(at(0))
	voice.Leave()
	require.Zero(t, rest(words, 300*ms))
}

// TestOwnerCompetition has words, a voice and ears that always have work, with random costs, on streams of their own. Each keeps its
// deadline, which no other client moves, and none starves.
func TestOwnerCompetition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := step.NewOwner(time.Now)
		const length = 20 * time.Second
		type user struct {
			*step.Client
			pause time.Duration // its work is due so long after it came
			most  time.Duration // of a run
			runs  int
		}
		users := []*user{
			{Client: o.Join(step.Commentary), pause: 30 * ms, most: 10 * ms},
			{Client: o.Join(step.Commentary), pause: 5 * ms, most: 40 * ms},
			{Client: o.Join(step.Recognition), pause: 40 * ms, most: 8 * ms},
		}
		done := make(chan struct{})
		for i, u := range users {
			go func() {
				defer func() { done <- struct{}{} }()
				rng := rand.New(rand.NewPCG(1, uint64(i)))
				var last step.Run
				for begin := time.Now(); time.Since(begin) < length; u.runs++ {
					came := time.Now()
					last.Due = came.Add(u.pause)
					u.Post(last.Due)
					for rest := u.Delay(last); rest > 0; rest = u.Delay(last) {
						time.Sleep(rest)
					}
					latest := last.Due
					if share := last.Last.Add(min(last.Cost, 30*ms)); share.After(latest) {
						latest = share
					}
					if time.Now().After(latest) {
						t.Errorf("client %d began %v late", i, time.Since(latest))
					}
					took, err := u.Do(func() error { time.Sleep(time.Duration(rng.Int64N(int64(u.most)))); return nil })
					if err != nil {
						t.Error(err)
					}
					last.Last, last.Cost = time.Now(), took
					u.Post(time.Time{})
					time.Sleep(time.Duration(rng.Int64N(int64(2 * ms))))
				}
			}()
		}
		for range users {
			<-done
		}
		for i, u := range users {
			t.Logf("client %d: %d runs, busy %v", i, u.runs, u.Busy())
			require.Greater(t, u.runs, int(length/(2*u.pause+2*u.most+2*ms)), "client %d", i)
		}
		require.Greater(t, users[1].Busy(), length/3, "the voice, which is due first, has the most of the device")
	})
}
