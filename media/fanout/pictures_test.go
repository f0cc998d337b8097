package fanout_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pion/rtp"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/media"
	"touchline/media/delay"
	"touchline/media/fanout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// room takes every frame.
type room struct {
	frames []time.Duration
	err    error
}

func (r *room) WriteFrame(f delay.OutFrame) (time.Time, error) {
	r.frames = append(r.frames, f.PTS)
	return f.Due.Add(time.Millisecond), r.err
}

// stage is Pictures with a room.
type stage struct {
	*fanout.Pictures
	room  room
	asked int
	log   strings.Builder
}

func newStage() *stage {
	s := &stage{}
	s.Pictures = fanout.NewPictures(fanout.Options{Room: &s.room, AskKeyFrame: func() { s.asked++ }})
	return s
}

// frame makes frame n, 30 a second.
func frame(n int, key bool) delay.OutFrame {
	at := time.Duration(n) * time.Second / 30
	return delay.OutFrame{
		EncodedFrame: media.EncodedFrame{
			Codec: media.VP8, PTS: at, KeyFrame: key, Data: make([]byte, 1000), Packets: []*rtp.Packet{{Payload: make([]byte, 1000)}},
		},
		Due: time.Unix(1000, 0).Add(at),
	}
}

// write writes frames.
func (s *stage) write(t *testing.T, key bool, numbers ...int) {
	t.Helper()
	for _, n := range numbers {
		_, err := s.WriteFrame(frame(n, key))
		require.NoError(t, err)
	}
	synctest.Wait()
}

// reader reads until stop. Each call of take is a list of numbers.
type reader struct {
	got   [][]int
	gate  chan struct{} // take waits for it
	stop  func()
	again chan struct{}
}

func (s *stage) read(fresh bool) *reader {
	r := &reader{again: make(chan struct{}, 1)}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		o := fanout.ReaderOptions{Log: zerolog.New(zerolog.SyncWriter(&s.log)), Replay: r.again, Fresh: fresh}
		s.Read(done, o, func(frames []delay.OutFrame) bool {
			var numbers []int
			for _, f := range frames {
				numbers = append(numbers, int((f.PTS*30+time.Second/2)/time.Second))
			}
			r.got = append(r.got, numbers)
			if r.gate != nil {
				<-r.gate
			}
			return true
		})
	})
	r.stop = sync.OnceFunc(func() { close(done); wg.Wait() })
	synctest.Wait()
	return r
}

// TestTheRoomIsFirst: the room has a frame before the readers have it, and a reader that hangs holds up nothing.
func TestTheRoomIsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		s := &stage{}
		s.Pictures = fanout.NewPictures(fanout.Options{Room: &s.room, Before: func(f delay.OutFrame) {
			order = append(order, "before "+f.PTS.String())
			require.NotContains(t, s.room.frames, f.PTS)
		}})
		hangs := s.read(false)
		hangs.gate = make(chan struct{})
		reads := s.read(false)
		s.room.err = errors.New("no track")
		at, err := s.WriteFrame(frame(0, true))
		require.Equal(t, frame(0, true).Due.Add(time.Millisecond), at, "of the room")
		require.Equal(t, s.room.err, err)
		s.room.err = nil
		for n := 1; n < 1000; n++ {
			s.write(t, n%30 == 0, n)
		}
		require.Len(t, s.room.frames, 1000)
		require.Len(t, order, 1000)
		require.Len(t, reads.got, 1000)
		require.Len(t, hangs.got, 1)
		close(hangs.gate)
		hangs.stop()
		reads.stop()
	})
}

// TestSlowReaderGoesOnAtAKeyFrame: what follows a gap cannot be decoded. The losses are logged once a second.
func TestSlowReaderGoesOnAtAKeyFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		r := s.read(true)
		require.Equal(t, 1, s.asked, "a new reader needs a key frame")
		s.write(t, false, 1)
		require.Empty(t, r.got, "nothing before the first key frame")
		r.gate = make(chan struct{})
		s.write(t, true, 2)
		for n := range 300 {
			s.write(t, false, 3+n)
		}
		require.Equal(t, 2, s.asked, "one request for the lost frames")
		close(r.gate)
		synctest.Wait()
		require.Len(t, r.got, 1+128)
		require.Equal(t, []int{130}, r.got[128])
		s.write(t, false, 303)
		require.Len(t, r.got, 1+128, "not before the next key frame")
		s.write(t, true, 304)
		s.write(t, false, 305)
		require.Equal(t, [][]int{{304}, {305}}, r.got[129:])
		r.stop()
		lines := strings.Count(s.log.String(), "frames lost")
		require.Equal(t, 7, lines, "six seconds of losses: %s", s.log.String())
		require.Contains(t, s.log.String(), `"frames":1,`)
	})
}

// TestLateReaderBeginsAtTheLastKeyFrame: it gets all since then at once, and again when it asks, at most once a second.
func TestLateReaderBeginsAtTheLastKeyFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		s.write(t, false, 1)
		early := s.read(false)
		require.Equal(t, 1, s.asked, "there is no key frame yet")
		s.write(t, true, 2)
		s.write(t, false, 3, 4)
		late, fresh := s.read(false), s.read(true)
		require.Equal(t, 2, s.asked, "for the one that wants a fresh one")
		s.write(t, false, 5)
		require.Equal(t, [][]int{{2}, {3}, {4}, {5}}, early.got)
		require.Equal(t, [][]int{{2, 3, 4}, {5}}, late.got)
		require.Empty(t, fresh.got)
		late.again <- struct{}{}
		synctest.Wait()
		late.again <- struct{}{} // asked for again before the replay
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, [][]int{{2, 3, 4}, {5}, {2, 3, 4, 5}}, late.got)
		s.write(t, true, 6)
		require.Equal(t, [][]int{{6}}, fresh.got)
		require.Equal(t, []int{6}, late.got[3])
		require.Equal(t, media.VP8, s.Codec())

		other := frame(7, false)
		other.Epoch = 1
		_, err := s.WriteFrame(other)
		require.NoError(t, err)
		lost := s.read(false)
		require.Empty(t, lost.got, "no key frame of this epoch")
		for _, r := range []*reader{early, late, fresh, lost} {
			r.stop()
		}
		s.write(t, true, 8)
		require.Len(t, early.got, 6)
	})
}

// TestGroupIsBounded: what is kept for late readers takes a bounded number of bytes.
func TestGroupIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		big := frame(0, true)
		big.Data = make([]byte, 20<<20)
		_, err := s.WriteFrame(big)
		require.NoError(t, err)
		r := s.read(false)
		require.Equal(t, [][]int{{0}}, r.got)
		big = frame(1, false)
		big.Data = make([]byte, 5<<20)
		_, err = s.WriteFrame(big)
		require.NoError(t, err)
		late := s.read(false)
		require.Empty(t, late.got)
		r.stop()
		late.stop()
	})
}

func TestRefresh(t *testing.T) {
	s := newStage()
	_, err := s.WriteFrame(frame(0, true))
	require.NoError(t, err)
	now := frame(0, true).Due
	s.Refresh(now.Add(4 * time.Second))
	require.Zero(t, s.asked, "the last one is recent")
	s.Refresh(now.Add(5 * time.Second))
	s.Refresh(now.Add(8 * time.Second))
	require.Equal(t, 1, s.asked)
	s.Refresh(now.Add(10 * time.Second))
	require.Equal(t, 2, s.asked)
}

func TestFanout(t *testing.T) {
	var f fanout.Fanout[int]
	require.Zero(t, f.Send(0))
	a, leave := f.Subscribe(2)
	b, _ := f.Subscribe(1)
	require.Equal(t, 2, f.Len())
	require.Zero(t, f.Send(1))
	require.EqualValues(t, 1, f.Send(2), "b is full")
	require.EqualValues(t, 2, f.Replace(3))
	require.Equal(t, []int{2, 3, 3}, []int{<-a, <-a, <-b})
	leave()
	leave()
	require.Zero(t, f.Send(4))
	require.Empty(t, a)
	f.Close()
	require.Equal(t, 4, <-b)
	_, open := <-b
	require.False(t, open)
	c, _ := f.Subscribe(1)
	_, open = <-c
	require.False(t, open)
}

func BenchmarkPush(b *testing.B) {
	for _, tt := range []struct {
		name    string
		readers int
	}{{"no reader", 0}, {"1 reader", 1}, {"10 readers", 10}, {"100 readers", 100}} {
		b.Run(tt.name, func(b *testing.B) {
			p := fanout.NewPictures(fanout.Options{Room: idle{}})
			done := make(chan struct{})
			var wg sync.WaitGroup
			for range tt.readers {
				wg.Go(func() {
					p.Read(done, fanout.ReaderOptions{}, func([]delay.OutFrame) bool { return true })
				})
			}
			key, other := frame(0, true), frame(1, false)
			n := 0
			for b.Loop() {
				f := other
				if n++; n%60 == 1 {
					f = key
				}
				_, _ = p.WriteFrame(f)
			}
			close(done)
			wg.Wait()
		})
	}
}

// idle is a room without a track.
type idle struct{}

func (idle) WriteFrame(delay.OutFrame) (time.Time, error) { return time.Time{}, nil }
