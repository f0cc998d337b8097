package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"touchline/agent/access"
	"touchline/agent/events"
	"touchline/internal/limit"
)

const (
	keepAlive = ": keep-alive\n\n"
	sseStart  = "retry: 1000\n\n" // how soon a browser tries again, ms
)

// stream writes an endless answer in pieces. A client that does not read a piece in time is disconnected.
type stream struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	limit time.Duration // of one write
}

// openStream sends the headers.
func (s *Server) openStream(w http.ResponseWriter, contentType string) *stream {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Accel-Buffering", "no") // no buffering in proxies
	w.WriteHeader(http.StatusOK)
	out := &stream{w, http.NewResponseController(w), s.writeTime}
	// An endless answer has only a deadline for each write. Errors appear at the first write.
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
	_ = s.rc.SetWriteDeadline(time.Time{}) // under HTTP/2 it would end an idle stream
	return nil
}

// endedTrailer is the HTTP trailer of a stream without messages: why it ended, when the right of its reader did.
const endedTrailer = "X-Ended"

// relay writes encoded values until next is closed, encode returns nil, the client disconnects or the room is removed.
func relay[T any](out *stream, r *http.Request, gone <-chan struct{}, next <-chan T, encode func(T) []byte) error {
	for {
		select {
		case <-r.Context().Done():
			if end, ok := errors.AsType[*problem](context.Cause(r.Context())); ok {
				out.w.Header().Set(http.TrailerPrefix+endedTrailer, end.Code+": "+end.Message)
			}
			return nil
		case <-gone:
			return nil
		case v, ok := <-next:
			if !ok {
				return nil
			}
			piece := encode(v)
			if piece == nil {
				return nil
			}
			if err := out.write(piece); err != nil {
				return nil //nolint:nilerr // the reader disconnected
			}
		}
	}
}

func (s *Server) getEvents(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	return s.feed(w, r, feedOptions{hub: h.Hub, name: "events " + h.Name, format: events.Named, gone: h.gone, state: func() []byte {
		if h.Bot == nil {
			return nil
		}
		return events.SSE("snapshot", events.JSON(h.Bot.Snapshot()))
	}, history: true})
}

// getAllEvents streams the events of all rooms, or those of the only one.
func (s *Server) getAllEvents(w http.ResponseWriter, r *http.Request) error {
	if s.single != nil {
		return s.getEvents(s.single, w, r)
	}
	return s.feed(w, r, feedOptions{hub: s.rooms.events, name: "events of all rooms", format: events.Named, state: func() []byte {
		return events.SSE("rooms", events.JSON(s.rooms.infos()))
	}, rest: wallRest})
}

func (s *Server) getStream(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	return s.feed(w, r, feedOptions{hub: h.Hub, name: "stream " + h.Name, format: events.Plain, gone: h.gone})
}

// feedOptions select the server-sent events of a reader.
type feedOptions struct {
	hub    *events.Hub
	name   string // of the stream, for its number of readers
	format events.Format
	gone   <-chan struct{} // closed at the end of the room; nil for never
	// state returns the full state as an event, sent first and after a loss; nil for none.
	state   func() []byte
	history bool // the last comments follow the state
	// rest is the shortest time between two writes. Events during that time are written together.
	rest time.Duration
}

// wallRest is the rest for the events of all rooms. 64 rooms have about 230 events a second, and each write costs a system call and a
// packet per reader.
const wallRest = 50 * time.Millisecond

// feed serves one reader of server-sent events until it disconnects, the stream or the room ends, or the server stops.
func (s *Server) feed(w http.ResponseWriter, r *http.Request, o feedOptions) error {
	const contentType = "text/event-stream; charset=utf-8"
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", contentType)
		return nil
	}
	after, _ := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64) // anything else: from the start
	hears := visitorOf(r).rights.Allow(access.Needed("heard"))
	r, seat, err := s.seat(r, o.name)
	if err != nil {
		return err
	}
	defer seat.Leave()
	q, history := o.hub.Subscribe(o.format, after, hears)
	defer q.Close()

	out := s.openStream(w, contentType)
	first := [][]byte{[]byte(sseStart)}
	if o.state != nil {
		first = append(first, o.state())
	}
	if o.history && history != nil {
		first = append(first, events.SSE("history", events.JSON(history)))
	}
	if err := out.write(first...); err != nil {
		return nil // the reader disconnected
	}
	quiet := time.NewTimer(s.opts.Config.KeepAlive)
	defer quiet.Stop()
	wake := q.Ready()
	var rested <-chan time.Time
	for {
		var err error
		select {
		case <-r.Context().Done():
			if end, ok := errors.AsType[*problem](context.Cause(r.Context())); ok {
				_ = out.write(events.SSE("expired", events.JSON(end))) // it ends in any case
			}
			return nil
		case <-o.gone:
			return nil
		case <-quiet.C:
			err = out.write([]byte(keepAlive))
		case <-rested:
			wake, rested = q.Ready(), nil
			continue
		case <-wake:
			batch := q.Take()
			if batch.Stale && o.state != nil {
				batch.Events = append(batch.Events, o.state())
			}
			err = out.write(batch.Events...)
			if batch.Ended {
				return nil
			}
			if o.rest > 0 {
				wake, rested = nil, time.After(o.rest)
			}
		}
		if err != nil {
			return nil // the reader disconnected
		}
		quiet.Reset(s.opts.Config.KeepAlive)
	}
}

// readers are the readers' places of the process: of each stream of a room 256. A page of the room has one, and a player two.
func readers() limit.Bounds {
	return limit.Bounds{All: 4096, Room: maxStreams, Token: 128, Network: 192}
}

// seat takes a reader's place of a stream.
func (s *Server) seat(r *http.Request, stream string) (*http.Request, *limit.Seat, error) {
	return seated(r, s.readers, stream, "too_many_readers")
}

// seated takes a place in a room. The request ends if it has to leave it. The code is that of the answer without a place.
func seated(r *http.Request, seats *limit.Seats, room, code string) (*http.Request, *limit.Seat, error) {
	ctx, seat, err := seats.Take(r.Context(), room, 1)
	if err != nil {
		p := refuse(http.StatusServiceUnavailable, code, "%v; try again later", err).after(5)
		p.late = !limit.ClientOf(r.Context()).Operator // here, as the request that waits has no client in its context
		return nil, nil, p
	}
	return r.WithContext(ctx), seat, nil
}
