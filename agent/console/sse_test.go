package console_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/access"
	"touchline/agent/console"
	"touchline/agent/events"
	"touchline/agent/look"
	"touchline/media/speech"
)

func record(cycle uint64, outcome, text string) look.Record {
	return look.Record{Type: "cycle_end", Cycle: cycle, Outcome: outcome, Text: text, FrameIDs: []uint64{cycle}}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	d, hub := newDesk(), events.NewHub(events.Options{History: 2})
	for i := range uint64(4) {
		hub.Record(record(i, "shown", fmt.Sprint("comment ", i)))
	}
	hub.Record(record(4, "skipped", ""))
	r := open(t, console.Options{Room: console.Room{Bot: d, Hub: hub}})
	e := r.events("/api/events")

	var snap agent.Snapshot
	require.NoError(t, json.Unmarshal([]byte(e.want("snapshot").data), &snap))
	require.Equal(t, "scene", snap.Engine)
	var history []look.Record
	require.NoError(t, json.Unmarshal([]byte(e.want("history").data), &history))
	require.Len(t, history, 2, "the last two comments")
	require.Equal(t, "comment 2", history[0].Text, "oldest first")

	hub.State(agent.Status{State: agent.StateThinking, Activity: "thinking", Percent: 100})
	hub.Caption(agent.Caption{Segment: "s", Cycle: 5, Delta: "Red\nwins", Text: "Red\nwins", Spoken: true})
	hub.Record(record(5, "spoken", "Red\nwins"))
	st := e.want("status")
	require.JSONEq(t, `{"state":"thinking","percent":100,"chip":"thinking"}`, st.data)
	c := e.want("caption")
	require.JSONEq(t, `{"segment":"s","cycle":5,"delta":"Red\nwins","text":"Red\nwins","final":false,"spoken":true}`, c.data)
	rec := e.want("record")
	require.Contains(t, rec.data, `"outcome":"spoken"`)
	first, err := strconv.ParseUint(st.id, 10, 64)
	require.NoError(t, err)
	require.Equal(t, strconv.FormatUint(first+1, 10), c.id)
	require.Equal(t, strconv.FormatUint(first+2, 10), rec.id)

	// A change is sent within a second, and at once after a request to this console.
	d.change(func(s *agent.Snapshot) { s.Delay = 3.5 })
	require.Contains(t, e.want("snapshot").data, `"delay":3.5`)
	require.Equal(t, http.StatusOK, r.ask("POST", "/api/instruction", `{"instruction":"the keeper"}`).status)
	require.Contains(t, e.want("snapshot").data, `"instruction":"the keeper"`)
}

func TestEventsAgainAfterABreak(t *testing.T) {
	t.Parallel()
	hub := events.NewHub(events.Options{History: -1})
	r := open(t, console.Options{Room: console.Room{Hub: hub}})
	e := r.events("/api/events")
	e.want("history")
	hub.Record(record(1, "shown", "one"))
	seen := e.want("record")
	hub.State(agent.Status{Activity: "thinking"})
	hub.Record(record(2, "shown", "two"))

	// Everything missed is known: it is repeated, and the history is not.
	again := r.events("/api/events", "Last-Event-ID", seen.id)
	require.Contains(t, again.want("status").data, "thinking")
	last := again.want("record")
	require.Contains(t, last.data, `"two"`)

	// Nothing was missed.
	again = r.events("/api/events", "Last-Event-ID", last.id)
	hub.Record(record(3, "silent", ""))
	require.Contains(t, again.want("record").data, `"cycle":3`)

	// After a long gap: the history, the number of lost items, and the rest without the comments of the history.
	for range events.BacklogSize + 100 {
		hub.State(agent.Status{Activity: "watching"})
	}
	again = r.events("/api/events", "Last-Event-ID", last.id)
	require.Contains(t, again.want("history").data, `"two"`)
	require.JSONEq(t, `{"count":101}`, again.want("lost").data)
	for range events.BacklogSize {
		again.want("status")
	}

	// An id of another life, or none at all, starts from nothing.
	for _, id := range []string{"1", "nonsense", "18446744073709551615", "-1"} {
		again = r.events("/api/events", "Last-Event-ID", id)
		again.want("history")
		hub.State(agent.Status{Activity: "silent"})
		require.Contains(t, again.want("status").data, "silent")
	}
}

func TestStreamAsTheOriginal(t *testing.T) {
	t.Parallel()
	d, hub := newDesk(), events.NewHub(events.Options{History: -1})
	hub.Record(record(1, "shown", "before"))
	stops := 0
	r := open(t, console.Options{Room: console.Room{Bot: d, Hub: hub, OnStop: func() { stops++ }}})
	s, e := r.events("/api/stream"), r.events("/api/events")
	e.want("snapshot")

	hub.State(agent.Status{Activity: "thinking"}) // not for this stream
	hub.Caption(agent.Caption{Segment: "s", Delta: "Red wins.\nBlue", Text: "Red wins.\nBlue"})
	hub.Caption(agent.Caption{Segment: "s", Delta: "\r\n\rloses", Text: "Red wins.\nBlue\n\nloses"})
	hub.Caption(agent.Caption{Segment: "s", Text: "all", Final: true})
	hub.Record(record(2, "shown", "all"))
	require.Equal(t, "Red wins.\nBlue", s.want("").data)
	require.Equal(t, "\n\nloses", s.want("").data)
	var end map[string]any
	require.NoError(t, json.Unmarshal([]byte(s.want("").data), &end))
	require.Equal(t, "cycle_end", end["type"])
	for _, field := range []string{"cycle", "frame_ids", "inference_sec", "latency_sec", "skipped", "target_delay"} {
		require.Contains(t, end, field)
	}

	// Stop ends this stream and leaves the page's.
	require.Equal(t, http.StatusOK, r.ask("POST", "/api/stop", "").status)
	require.Equal(t, 1, stops)
	_, err := s.next()
	require.ErrorIs(t, err, io.EOF)
	hub.State(agent.Status{Activity: "idle"})
	require.Contains(t, e.until("status").data, "thinking")
	require.Contains(t, e.until("status").data, "idle")
}

// TestStopFromElsewhere: a stop from the room ends the streams too; a later stream continues.
func TestStopFromElsewhere(t *testing.T) {
	t.Parallel()
	hub := events.NewHub(events.Options{History: -1})
	r := open(t, console.Options{Room: console.Room{Hub: hub}})
	s := r.events("/api/stream")
	hub.EndStreams()
	hub.EndStreams()
	_, err := s.next()
	require.ErrorIs(t, err, io.EOF)
	s = r.events("/api/stream")
	hub.Caption(agent.Caption{Delta: "on"})
	require.Equal(t, "on", s.want("").data)
}

// TestClearedInstruction: PATCH with an empty instruction ends the streams as stop does; DELETE leaves them open.
func TestClearedInstruction(t *testing.T) {
	t.Parallel()
	d, hub := newDesk(), events.NewHub(events.Options{History: -1})
	r := open(t, console.Options{Room: console.Room{Name: "demo", Bot: d, Hub: hub}})
	s := r.events("/api/stream")
	require.Equal(t, http.StatusOK, r.ask("DELETE", "/api/instruction", "").status)
	hub.Caption(agent.Caption{Delta: "on"})
	require.Equal(t, "on", s.want("").data)
	require.Equal(t, http.StatusOK, r.ask("PATCH", "/api/rooms/demo", `{"instruction":" "}`).status)
	_, err := s.next()
	require.ErrorIs(t, err, io.EOF)
}

// TestRemember: comments of an earlier run come before those of this one, within the same bound.
func TestRemember(t *testing.T) {
	t.Parallel()
	hub := events.NewHub(events.Options{History: 3})
	r := open(t, console.Options{Room: console.Room{Hub: hub}})
	early := r.events("/api/events")
	require.JSONEq(t, `[]`, early.want("history").data)
	hub.Record(record(1, "shown", "new"))
	require.Contains(t, early.want("record").data, "new")
	hub.Remember(nil)
	hub.Remember([]look.Record{record(7, "shown", "oldest"), record(8, "spoken", "older"), record(9, "cut", "old")})
	history := early.want("history").data
	require.JSONEq(t, history, r.events("/api/events").want("history").data)
	require.JSONEq(t, history, string(r.ask("GET", "/api/history", "").body))
	var got []look.Record
	require.NoError(t, json.Unmarshal([]byte(history), &got))
	require.Len(t, got, 3)
	require.Equal(t, []string{"older", "old", "new"}, []string{got[0].Text, got[1].Text, got[2].Text})
	require.Equal(t, []uint64{0, 0, 1}, []uint64{got[0].Cycle, got[1].Cycle, got[2].Cycle})
	require.Empty(t, got[0].FrameIDs, "its pictures are gone, and their numbers stand for others")
	hub.Remember([]look.Record{record(1, "shown", "more")})
	require.Len(t, hub.History(), 3)

	none := events.NewHub(events.Options{History: 0})
	none.Remember([]look.Record{record(1, "shown", "old")})
	require.Empty(t, none.History())
}

// TestNoHistory: agent.history.comments 0 keeps no comment for late joiners; present readers get every comment.
func TestNoHistory(t *testing.T) {
	t.Parallel()
	hub := events.NewHub(events.Options{History: 0})
	r := open(t, console.Options{Room: console.Room{Hub: hub}})
	e := r.events("/api/events")
	require.JSONEq(t, `[]`, e.want("history").data)
	hub.Record(record(1, "shown", "said"))
	require.Contains(t, e.want("record").data, "said")
	require.JSONEq(t, `[]`, string(r.ask("GET", "/api/history", "").body))
	require.JSONEq(t, `[]`, r.events("/api/events").want("history").data)
}

func TestKeepAlive(t *testing.T) {
	t.Parallel()
	r := open(t, console.Options{Config: console.Config{KeepAlive: 20 * time.Millisecond}})
	for _, path := range []string{"/api/stream", "/api/events"} {
		e := r.events(path)
		for seen := 0; seen < 3; {
			ev, err := e.next()
			require.NoError(t, err)
			if ev.comment != "" {
				require.Equal(t, "keep-alive", ev.comment)
				seen++
			}
		}
	}
}

// slowConn requests a path with a small receive buffer, so that the sockets of a client that does not read hold little.
func slowConn(t *testing.T, host, path string) *net.TCPConn {
	t.Helper()
	addr, err := net.ResolveTCPAddr("tcp", host)
	require.NoError(t, err)
	conn, err := net.DialTCP("tcp", nil, addr)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	require.NoError(t, conn.SetReadBuffer(4<<10))
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*wait)))
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, host)
	require.NoError(t, err)
	return conn
}

// TestSlowReader: a reader that does not read delays no other, and gets the exact
// number of items that it lost.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/api/events", "/api/stream"} {
		t.Run(path, func(t *testing.T) {
			hub := events.NewHub(events.Options{History: 1})
			r := open(t, console.Options{Room: console.Room{Hub: hub}}, func(s *console.Server) { console.Hurry(s, 10*wait) }) // busy machines take long
			u, err := url.Parse(r.URL())
			require.NoError(t, err)
			conn := slowConn(t, u.Host, path)
			in := bufio.NewReader(conn)
			_, err = in.Peek(1) // it has joined
			require.NoError(t, err)
			quick := r.events(path)
			if path == "/api/events" {
				quick.want("history")
			}

			// More than the sockets and the queue hold: 9 MB.
			const count = 3 * events.QueueSize
			text := strings.Repeat("x", 6<<10)
			for i := range uint64(count) {
				hub.Record(record(i, "silent", text))
				quick.until(map[string]string{"/api/events": "record"}[path])
			}

			require.NoError(t, conn.SetReadBuffer(1<<20)) // or it would take minutes to read all
			resp, err := http.ReadResponse(in, nil)
			require.NoError(t, err)
			slow := &sseReader{t, bufio.NewReader(resp.Body), resp.Body}
			got, lost, last := 0, 0, uint64(0)
			for last != count-1 {
				ev, err := slow.next()
				require.NoError(t, err)
				switch {
				case ev.name == "lost":
					var l struct{ Count int }
					require.NoError(t, json.Unmarshal([]byte(ev.data), &l))
					require.Positive(t, l.Count)
					lost += l.Count
				case strings.Contains(ev.data, "cycle_end"):
					var rec look.Record
					require.NoError(t, json.Unmarshal([]byte(ev.data), &rec))
					require.Equal(t, uint64(got+lost), rec.Cycle, "the number of lost items precedes the next one")
					got, last = got+1, rec.Cycle
				}
			}
			require.Positive(t, lost)
			require.Equal(t, count, got+lost)
			require.Contains(t, string(r.ask("GET", "/metrics", "").body),
				fmt.Sprintf("touchline_sse_lost_items_total{endpoint=%q} %d", strings.TrimPrefix(path, "/api/"), lost))
		})
	}
}

func TestManyReaders(t *testing.T) {
	t.Parallel()
	hub := events.NewHub(events.Options{History: -1})
	r := open(t, console.Options{Room: console.Room{Hub: hub}})
	readers := make([]*sseReader, console.MaxStreams)
	for i := range readers {
		readers[i] = r.events("/api/stream")
	}
	for range 9 * console.MaxStreams {
		a := r.ask("GET", "/api/stream", "")
		require.Equal(t, http.StatusServiceUnavailable, a.status)
		require.NotEmpty(t, a.header.Get("Retry-After"))
	}
	hub.Caption(agent.Caption{Delta: "Goal!"})
	for _, e := range readers {
		require.Equal(t, "Goal!", e.want("").data)
	}
	require.Contains(t, string(r.ask("GET", "/metrics", "").body),
		fmt.Sprintf(`touchline_sse_readers{endpoint="stream"} %d`, console.MaxStreams))
	require.NoError(t, readers[0].body.Close())
	require.Eventually(t, func() bool {
		return strings.Contains(string(r.ask("GET", "/metrics", "").body),
			fmt.Sprintf(`touchline_sse_readers{endpoint="stream"} %d`, console.MaxStreams-1))
	}, wait, 10*time.Millisecond, "one that goes makes room")
}

func TestRunEnds(t *testing.T) {
	t.Parallel()
	d, st := newDesk(), newStudio()
	r := open(t, console.Options{Room: console.Room{Bot: d, Pictures: st, Sound: st}})
	st.sound <- speech.Frame{PCM: make([]int16, 960)}
	streams := []*http.Response{
		r.connect("/api/events"), r.connect("/api/stream"), r.connect("/api/mjpeg"), r.connect("/api/audio-stream"),
	}
	// One that sends half a request and waits.
	u, err := url.Parse(r.URL())
	require.NoError(t, err)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", u.Host)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = fmt.Fprintf(conn, "POST /api/stop HTTP/1.1\r\nHost: %s\r\nContent-Length: 10\r\n\r\n{", u.Host)
	require.NoError(t, err)

	r.close()
	for _, resp := range streams {
		_, _ = io.Copy(io.Discard, resp.Body) // ends
	}
	_, pulling, ended := st.counts()
	require.Zero(t, pulling)
	require.Equal(t, 1, ended, "the sound is given back")
}

// TestForgetHeard: what people said is deleted from the hub and, by the room's own function, from the disk.
func TestForgetHeard(t *testing.T) {
	t.Parallel()
	hub := events.NewHub(events.Options{})
	var forgotten []string
	full := errors.New("the disk is full")
	var failed error
	r := open(t, console.Options{Room: console.Room{Bot: newDesk(), Hub: hub, Forget: func(_ context.Context, by string) error {
		forgotten = append(forgotten, by)
		return failed
	}}})
	e := r.events("/api/events")
	e.want("snapshot")
	e.want("history")
	for _, by := range []string{"ann", "ben"} {
		hub.Heard(agent.Heard{Segment: by, Identity: by, Text: "I am " + by, Final: true, Caption: true})
		require.Contains(t, e.want("heard").data, "I am "+by)
	}
	require.Equal(t, http.StatusNoContent, r.ask("DELETE", "/api/heard?by=ann", "").status)
	require.NotContains(t, e.want("heard").data, "I am")
	late := r.events("/api/events")
	late.want("snapshot")
	late.want("history")
	require.Contains(t, late.want("heard").data, "I am ben")
	require.Equal(t, http.StatusNoContent, r.ask("DELETE", "/api/heard", "").status)
	require.Equal(t, []string{"ann", ""}, forgotten)
	failed = full
	require.Equal(t, http.StatusInternalServerError, r.ask("DELETE", "/api/heard", "").status)
	require.Equal(t, access.Transcribe|access.Instruct, access.Needed("DELETE /heard"))
}
