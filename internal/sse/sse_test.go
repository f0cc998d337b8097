package sse_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"touchline/internal/sse"
)

// read reads all events, in a form to compare: type, a bar, data.
func read(r io.Reader, most int) (events []string, err error) {
	for in := sse.NewReader(r, most); ; {
		e, err := in.Next()
		if err == nil || len(e.Data) > 0 {
			events = append(events, e.Type+"|"+string(e.Data))
		}
		if err != nil {
			return events, err
		}
	}
}

var streams = []struct {
	name, stream string
	events       []string
	err          error // nil: io.EOF
}{
	{name: "nothing"},
	{name: "one", stream: "data: a\n\n", events: []string{"|a"}},
	{name: "two", stream: "data: a\n\ndata: b\n\n", events: []string{"|a", "|b"}},
	{name: "carriage returns and line feeds", stream: "data: a\r\n\r\ndata: b\r\n\r\n", events: []string{"|a", "|b"}},
	{name: "carriage returns", stream: "data: a\r\rdata: b\r\r", events: []string{"|a", "|b"}},
	{name: "all three", stream: "data: a\r\ndata: b\rdata: c\n\r\n", events: []string{"|a\nb\nc"}},
	{name: "line feed, carriage return", stream: "data: a\n\rdata: b\n\n", events: []string{"|a", "|b"}},
	{name: "byte order mark", stream: "\uFEFFdata: a\n\n", events: []string{"|a"}},
	{name: "a second mark belongs to the name", stream: "\uFEFF\uFEFFdata: a\n\ndata: b\n\n", events: []string{"|b"}},
	{name: "mark in the middle", stream: "data: a\n\n\uFEFFdata: b\n\n", events: []string{"|a"}},
	{name: "comments", stream: ": hello\n\n:\ndata: a\n: between\ndata: b\n\n: ping\n\n", events: []string{"|a\nb"}},
	{name: "name", stream: "event: error\ndata: a\n\ndata: b\n\n", events: []string{"error|a", "|b"}},
	{name: "name without data", stream: "event: ping\n\ndata: b\n\n", events: []string{"|b"}},
	{name: "id and retry", stream: "id: 7\nretry: 10\ndata: a\nx: y\nz\n\n", events: []string{"|a"}},
	{name: "no space", stream: "data:a\n\n", events: []string{"|a"}},
	{name: "two spaces", stream: "data:  a\n\n", events: []string{"| a"}},
	{name: "colons", stream: "data: {\"a\": 1}\n\n", events: []string{"|{\"a\": 1}"}},
	{name: "empty data", stream: "data\n\ndata:\ndata\n\n", events: []string{"|", "|\n"}},
	{name: "blank lines", stream: "\n\n\ndata: a\n\n\n\n", events: []string{"|a"}},
	{name: "end mark", stream: "data: a\n\ndata: [DONE]\n\n", events: []string{"|a", "|[DONE]"}},
	{name: "no blank line at the end", stream: "data: a\n\ndata: b\n", events: []string{"|a", "|b"}, err: sse.ErrInside},
	{name: "no line end at the end", stream: "data: a\n\ndata: b", events: []string{"|a", "|b"}, err: sse.ErrInside},
	{name: "ends in a name", stream: "data: a\n\nda", events: []string{"|a"}, err: sse.ErrInside},
	{name: "ends after a field", stream: "event: x\n", err: sse.ErrInside},
	{name: "ends in a comment", stream: "data: a\n\n: ping", events: []string{"|a"}},
	{name: "ends in a line end", stream: "data: a\r\n\r", events: []string{"|a"}},
	{name: "at the limit", stream: "data: " + strings.Repeat("x", 58) + "\n\n", events: []string{"|" + strings.Repeat("x", 58)}},
	{name: "line too long", stream: "data: a\n\ndata: " + strings.Repeat("x", 59), events: []string{"|a"}, err: sse.ErrTooLong},
	{name: "comment too long", stream: ": " + strings.Repeat("x", 63) + "\n", err: sse.ErrTooLong},
	{name: "event too long", stream: strings.Repeat("data: 123456789\n", 9) + "\n", err: sse.ErrTooLong},
}

func TestStreams(t *testing.T) {
	for _, tt := range streams {
		t.Run(tt.name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(tt.stream), iotest.OneByteReader(strings.NewReader(tt.stream))} {
				events, err := read(r, 64)
				require.Equal(t, tt.events, events)
				if tt.err == nil {
					tt.err = io.EOF
				}
				require.ErrorIs(t, err, tt.err)
			}
		})
	}
	require.ErrorIs(t, sse.ErrInside, io.ErrUnexpectedEOF)
}

// TestBrokenStream: an event that the fault of a connection ends is none.
func TestBrokenStream(t *testing.T) {
	fault := errors.New("connection reset")
	events, err := read(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(fault)), 64)
	require.ErrorIs(t, err, fault)
	require.Equal(t, []string{"|a"}, events)
}

// TestNoWaiting: an event is returned when its blank line has arrived, and nothing more is read before the next call.
func TestNoWaiting(t *testing.T) {
	for _, end := range []string{"\n\n", "\r\r", "\r\n\r\n", "\r\n\r"} {
		from, to := io.Pipe()
		go func() { _, _ = io.WriteString(to, "data: a"+end) }()
		e, err := sse.NewReader(from, 64).Next()
		require.NoError(t, err)
		require.Equal(t, "a", string(e.Data))
		require.NoError(t, from.Close())
	}
}

// FuzzSplits: the events and the error are the same however the bytes are split.
func FuzzSplits(f *testing.F) {
	for i, tt := range streams {
		f.Add([]byte(tt.stream), uint(i))
	}
	f.Fuzz(func(t *testing.T, stream []byte, at uint) {
		whole, end := read(strings.NewReader(string(stream)), 64)
		at %= uint(len(stream)) + 1
		for _, r := range []io.Reader{
			iotest.OneByteReader(strings.NewReader(string(stream))),
			iotest.HalfReader(strings.NewReader(string(stream))),
			iotest.DataErrReader(strings.NewReader(string(stream))),
			io.MultiReader(strings.NewReader(string(stream[:at])), strings.NewReader(string(stream[at:]))),
		} {
			events, err := read(r, 64)
			require.Equal(t, whole, events)
			require.Equal(t, end, err)
		}
		for _, e := range whole {
			require.LessOrEqual(t, len(e), 2*64)
		}
	})
}
