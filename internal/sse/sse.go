// Package sse reads server-sent events (HTML standard, section 9.2). It knows neither HTTP nor the meaning of events.
package sse

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// ErrInside is returned when the stream ends inside an event.
var ErrInside = fmt.Errorf("the stream ends inside an event: %w", io.ErrUnexpectedEOF)

// ErrTooLong is returned when an event or a line exceeds the reader's limit.
var ErrTooLong = errors.New("an event of the stream is too long")

// Event is one event. Its Data is valid until the next call of Next.
type Event struct {
	// Type is the event's name; "" is a message.
	Type string
	// Data are the data lines, joined by line feeds.
	Data []byte
}

// Reader reads events from a stream. It waits for no byte beyond the blank line that ends an event.
type Reader struct {
	in   *bufio.Reader
	most int

	line, data []byte
	begun      bool // the first line has been read
	carriage   bool // the last line ended with a carriage return: a line feed after it belongs to it
}

// NewReader returns a reader of events of at most most bytes.
func NewReader(r io.Reader, most int) *Reader { return &Reader{in: bufio.NewReader(r), most: most} }

// Next returns the next event with data. The error is io.EOF after the last event; ErrInside, together with the data so far, if the
// stream ends without the blank line that ends an event; ErrTooLong; or the stream's error, without an event.
func (r *Reader) Next() (Event, error) {
	var e Event
	inside, data := false, false // fields of an event, and data fields, have been read
	r.data = r.data[:0]
	for {
		end := r.readLine()
		if end != nil && !errors.Is(end, io.EOF) {
			return Event{}, end
		}
		if len(r.line) == 0 && end == nil {
			if data {
				return r.event(e), nil
			}
			e, inside = Event{}, false
			continue
		}
		if name, value, _ := bytes.Cut(r.line, []byte(":")); len(name) > 0 {
			inside = true
			value = bytes.TrimPrefix(value, []byte(" "))
			switch string(name) {
			case "event":
				e.Type = string(value)
			case "data":
				data = true
				r.data = append(append(r.data, value...), '\n')
			}
		}
		switch {
		case end != nil && inside:
			return r.event(e), ErrInside
		case end != nil:
			return Event{}, io.EOF
		}
	}
}

// event returns an event, without the last line feed of its data.
func (r *Reader) event(e Event) Event {
	e.Data = bytes.TrimSuffix(r.data, []byte("\n"))
	return e
}

// readLine reads a line into r.line, without its end: a line feed, a carriage return, or both. The error is io.EOF for a line without an
// end.
func (r *Reader) readLine() error {
	r.line = r.line[:0]
	defer func() {
		if !r.begun {
			r.begun, r.line = true, bytes.TrimPrefix(r.line, []byte("\uFEFF"))
		}
	}()
	for {
		c, err := r.in.ReadByte()
		if err != nil {
			return err
		}
		feed := r.carriage && c == '\n'
		if r.carriage = c == '\r'; feed {
			continue
		}
		if c == '\r' || c == '\n' {
			return nil
		}
		if len(r.line)+len(r.data) >= r.most {
			return fmt.Errorf("%w: more than %d bytes", ErrTooLong, r.most)
		}
		r.line = append(r.line, c)
	}
}
