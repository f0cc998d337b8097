//go:build integration

package console_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/console"
	"touchline/agent/events"
	"touchline/agent/look"
)

// stand is a room with comments like a bot's.
type stand struct {
	*desk
	hub  *events.Hub
	said uint64
}

// words of a comment, each a caption of its own.
const words = "Blue wins it back in midfield and sends it long down the left."

// pause is from the start of a comment to that of the next, s.
const pause = 5.0

// steps of a comment: its states, its captions, its record.
func (s *stand) steps() []func() {
	s.said++
	cycle, segment := s.said, fmt.Sprint("SG_", s.said)
	state := func(state, activity string) func() {
		now := agent.Status{State: state, Activity: activity, Percent: 100}
		return func() {
			s.change(func(snap *agent.Snapshot) { snap.Status = now })
			s.hub.State(now)
		}
	}
	out := []func(){state(agent.StateThinking, "thinking"), state(agent.StateSpeaking, "speaking")}
	text := ""
	for w := range strings.FieldsSeq(words) {
		delta := w + " "
		text += delta
		c := agent.Caption{Segment: segment, Cycle: cycle, Delta: delta, Text: text, Spoken: true}
		out = append(out, func() { s.hub.Caption(c) })
	}
	return append(out, func() {
		at := time.Now()
		s.change(func(snap *agent.Snapshot) {
			snap.Comments, snap.AlignmentLast, snap.Delay = cycle, float64(cycle%70)/1000, 2.4+float64(cycle%9)/100
		})
		s.hub.Record(look.Record{
			Type: "cycle_end", Cycle: cycle, Outcome: "spoken", Text: words, Instruction: "Name the colours.", Profile: "sports", Engine: "scene",
			FrameIDs: []uint64{cycle, cycle + 1, cycle + 2, cycle + 3}, FrameAt: []time.Time{at, at, at, at},
			OldestFrameAt: at, NewestFrameAt: at, InferenceStart: at, InferenceEnd: at, ShownAt: at, StartedAt: at, EndedAt: at,
			InferenceSec: 0.731, LatencySec: 0.811, ReadySec: 0.911, TargetDelay: 2.4, Delay: 2.4, AlignmentError: 0.0312, Aligned: true, AudioSec: 3.2,
		})
	}, state(agent.StateListening, "watching"), state(agent.StateListening, "silent"))
}

// wall is a console of many rooms that comment.
func wall(tb testing.TB, rooms int) (*running, []*stand) {
	tb.Helper()
	list := console.NewRooms(0, zerolog.Nop())
	r := open(tb, console.Options{Rooms: list})
	stands := make([]*stand, rooms)
	for i := range stands {
		d, hub, _ := addRoom(tb, list, fmt.Sprintf("pitch-%03d", i))
		stands[i] = &stand{desk: d, hub: hub}
	}
	return r, stands
}

// dialWall requests the events of all rooms over a plain connection.
func dialWall(tb testing.TB, r *running) (net.Conn, *bufio.Reader) {
	tb.Helper()
	u, err := url.Parse(r.URL())
	require.NoError(tb, err)
	conn, err := (&net.Dialer{}).DialContext(tb.Context(), "tcp", u.Host)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "GET /api/events HTTP/1.1\r\nHost: %s\r\n\r\n", u.Host)
	require.NoError(tb, err)
	in := bufio.NewReaderSize(conn, 64<<10)
	_, err = in.Peek(1) // it has joined
	require.NoError(tb, err)
	return conn, in
}

// TestSlowReadersOfAllRooms: ten readers that read nothing cost a bounded amount of memory and delay no other
// reader, and each gets the number of lost items and the full state.
func TestSlowReadersOfAllRooms(t *testing.T) {
	const (
		rooms, slow = 2, 10
		batch       = events.QueueSize / 4
		batches     = 28
		size        = 20 << 10
	)
	list := console.NewRooms(0, zerolog.Nop())
	r := open(t, console.Options{Rooms: list})
	hubs := make([]*events.Hub, rooms)
	for i := range hubs {
		hubs[i] = events.NewHub(events.Options{})
		_, err := list.Add(console.Room{Name: fmt.Sprint("pitch-", i), Hub: hubs[i]})
		require.NoError(t, err)
	}
	readers := make([]*bufio.Reader, slow)
	for i := range readers {
		conn, in := dialWall(t, r)
		require.NoError(t, conn.SetDeadline(time.Now().Add(3*wait)))
		readers[i] = in
	}
	quick := r.events("/api/events")
	quick.want("rooms")

	number := func(ev event, want int) {
		t.Helper()
		require.Contains(t, ev.data[len(ev.data)-50:], fmt.Sprintf(`"percent":%d,`, want))
	}
	before := heap()
	detail := strings.Repeat("x", size)
	for n := range batches * batch {
		hubs[n%rooms].State(agent.Status{Activity: "silent", Percent: n, Detail: detail})
		if n%batch < batch-1 {
			continue
		}
		for i := n - batch + 1; i <= n; i++ {
			number(quick.until("status"), i) // a reader that reads loses nothing
		}
	}
	// 70 MB were published. Each room keeps a backlog, and so do all rooms together; the queues of the slow readers
	// share the latter. Items that are being sent are older.
	kept := heap() - before
	t.Logf("%d MB are kept", kept>>20)
	require.Less(t, kept, int64((rooms+1+1)*events.QueueSize*size*5/4))

	lost := 0
	for _, in := range readers {
		resp, err := http.ReadResponse(in, nil)
		require.NoError(t, err)
		e := &sseReader{t, bufio.NewReaderSize(resp.Body, 64<<10), resp.Body}
		own := 0
		for next := 0; next < batches*batch; {
			ev, err := e.next()
			require.NoError(t, err)
			switch ev.name {
			case "lost":
				var l struct{ Count int }
				require.NoError(t, json.Unmarshal([]byte(ev.data), &l))
				next, own = next+l.Count, own+l.Count
			case "status":
				number(ev, next)
				next++
			}
		}
		require.Positive(t, own)
		e.until("rooms") // how all stands
		lost += own
	}
	require.Contains(t, string(r.ask("GET", "/metrics", "").body),
		fmt.Sprintf("touchline_sse_lost_items_of_all_rooms_total %d\n", lost))
}

// heap is how much memory is in use, B.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkWall: fifty readers of the events of all rooms. One op is a second of commentary, in real time:
//
//	go test ./agent/console -run '^$' -bench Wall -benchtime 10x
//
// The CPU time is the whole process's, so that of reading is in it.
func BenchmarkWall(b *testing.B) {
	const readers = 50
	for _, rooms := range []int{1, 30, 64, 256} {
		b.Run(fmt.Sprintf("rooms=%d", rooms), func(b *testing.B) {
			r, stands := wall(b, rooms)
			var read atomic.Int64
			var wg sync.WaitGroup
			for range readers {
				conn, in := dialWall(b, r)
				wg.Go(func() {
					_, _ = io.Copy(counter{&read}, in)
				})
				b.Cleanup(func() { _ = conn.Close() })
			}
			b.Cleanup(func() {
				r.close()
				wg.Wait()
			})
			// All steps of all rooms, spread evenly over the pause, over and over.
			var steps []func()
			step := 0
			next := func() {
				if step == len(steps) {
					each := make([][]func(), rooms)
					for i, s := range stands {
						each[i] = s.steps()
					}
					steps, step = steps[:0], 0
					for n := range each[0] {
						for i := range each {
							steps = append(steps, each[i][(n+i)%len(each[i])])
						}
					}
				}
				steps[step]()
				step++
			}
			next()
			every := time.Duration(pause * float64(time.Second) / float64(len(steps)))
			events := 0
			runtime.GC()
			b.ReportAllocs()
			read.Store(0)
			cpu, began := cpuTime(b), time.Now()
			for end := began; b.Loop(); {
				for end = end.Add(time.Second); time.Now().Before(end); events++ {
					<-time.After(time.Until(began.Add(time.Duration(events) * every)))
					next()
				}
			}
			spent, took := cpuTime(b)-cpu, time.Since(began).Seconds()
			b.ReportMetric(float64(events)/took, "events/s")
			b.ReportMetric(float64(read.Load())/took/readers/1000, "kB/s/reader")
			b.ReportMetric(100*spent.Seconds()/took, "%cpu")
			b.ReportMetric(float64(spent.Microseconds())/float64(events)/readers, "µs/event/reader")
		})
	}
}

// counter counts the written bytes.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// cpuTime returns the CPU time of the process so far.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
