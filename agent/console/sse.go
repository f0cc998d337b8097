package console

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"touchline/agent"
)

const (
	keepAlive = ": keep-alive\n\n"
	sseStart  = "retry: 1000\n\n" // how soon a browser tries again, ms
)

// stream writes an endless answer, piece by piece. A client that does not
// take a piece in time is given up.
type stream struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	limit time.Duration // of one write
}

// openStream sends the headers.
func (s *Server) openStream(w http.ResponseWriter, contentType string) *stream {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Accel-Buffering", "no") // proxies shall not hold it back
	w.WriteHeader(http.StatusOK)
	out := &stream{w, http.NewResponseController(w), s.writeTime}
	// An endless answer has no deadline but that of each write. Errors show at the first write.
	_ = out.rc.SetReadDeadline(time.Time{})
	_ = out.rc.SetWriteDeadline(time.Time{})
	_ = out.rc.Flush()
	return out
}

func (s *stream) write(pieces ...[]byte) error {
	_ = s.rc.SetWriteDeadline(time.Now().Add(s.limit))
	for _, p := range pieces {
		if _, err := s.w.Write(p); err != nil {
			return fmt.Errorf("write to a reader: %w", err)
		}
	}
	if err := s.rc.Flush(); err != nil {
		return fmt.Errorf("write to a reader: %w", err)
	}
	_ = s.rc.SetWriteDeadline(time.Time{}) // under HTTP/2 it would end a stream that rests
	return nil
}

func (s *Server) getEvents(h *hosted, w http.ResponseWriter, r *http.Request) error {
	return s.feed(w, r, h.Hub, eventReader, h.gone, func(history []agent.Record) [][]byte {
		var first [][]byte
		if h.Bot != nil {
			first = append(first, sse("snapshot", marshal(h.Bot.Snapshot())))
		}
		if history != nil {
			first = append(first, sse("history", marshal(history)))
		}
		return first
	})
}

// getAllEvents tells what happens in any room; of the only one, what its own events are.
func (s *Server) getAllEvents(w http.ResponseWriter, r *http.Request) error {
	if s.single != nil {
		return s.getEvents(s.single, w, r)
	}
	return s.feed(w, r, s.rooms.events, eventReader, nil, func([]agent.Record) [][]byte {
		return [][]byte{sse("rooms", marshal(s.rooms.infos()))}
	})
}

func (s *Server) getStream(h *hosted, w http.ResponseWriter, r *http.Request) error {
	return s.feed(w, r, h.Hub, streamReader, h.gone, func([]agent.Record) [][]byte { return nil })
}

// feed serves one reader of server-sent events until it goes, the stream is
// ended, gone is closed or the server stops. start is what it is sent first.
func (s *Server) feed(
	w http.ResponseWriter, r *http.Request, hub *Hub, k readerKind, gone <-chan struct{}, start func(history []agent.Record) [][]byte,
) error {
	const contentType = "text/event-stream; charset=utf-8"
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", contentType)
		return nil
	}
	after, _ := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64) // anything else: from the start
	q, history := hub.join(k, after)
	if q == nil {
		return tooMany(w)
	}
	defer hub.leave(k, q)

	out := s.openStream(w, contentType)
	if err := out.write(append([][]byte{[]byte(sseStart)}, start(history)...)...); err != nil {
		return nil // the reader has gone
	}
	quiet := time.NewTimer(s.opts.Config.KeepAlive)
	defer quiet.Stop()
	for {
		var err error
		select {
		case <-r.Context().Done():
			return nil
		case <-gone:
			return nil
		case <-quiet.C:
			err = out.write([]byte(keepAlive))
		case <-q.wake:
			items, lost, ended := q.take()
			err = out.write(render(items, lost, k)...)
			if ended {
				return nil
			}
		}
		if err != nil {
			return nil // the reader has gone
		}
		quiet.Reset(s.opts.Config.KeepAlive)
	}
}

// render lists what to send: first how much was lost, as that was older.
func render(items []*item, lost uint64, k readerKind) [][]byte {
	var out [][]byte
	if lost > 0 {
		out = append(out, sse("lost", []byte(`{"count":`+strconv.FormatUint(lost, 10)+`}`)))
	}
	for _, it := range items {
		if k == streamReader {
			out = append(out, it.stream)
		} else {
			out = append(out, it.event)
		}
	}
	return out
}

func tooMany(w http.ResponseWriter) error {
	w.Header().Set("Retry-After", "5")
	return refuse(http.StatusServiceUnavailable, "too_many_readers", "%d readers are connected, no more fit", maxStreams)
}
