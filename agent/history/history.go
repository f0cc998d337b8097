// Package history stores the record of each cycle, with the time of each spoken word, in a SQLite database.
//
// It owns the store, its retention and the export as text and subtitles. A Log is the writer of one process for all its
// rooms: outputs queue records without waiting, and one goroutine (Run) writes them. A Reader reads a store, even while
// a Log writes to it. The package uses neither LiveKit nor the page.
package history

import (
	"context"
	"iter"
	"time"

	"touchline/agent"
	"touchline/agent/alert"
	"touchline/agent/look"
)

// Entry is one cycle of one commentator, one phase of an alert, or one utterance of a person in the room.
type Entry struct {
	// At is the start of the comment or utterance; for a cycle without a comment, the time of its record.
	At       time.Time   `json:"at"`
	Room     string      `json:"room"`
	Identity string      `json:"identity"` // of the commentator
	Record   look.Record `json:"record,omitzero"`
	// Alert is the phase of an alert; nil for a cycle.
	Alert *alert.Alert `json:"alert,omitempty"`
	// Heard is an utterance of a person; nil for a cycle.
	Heard *agent.Heard `json:"heard,omitempty"`
	// Words are the pieces of the comment's text as captions showed them. Joined, they are the whole text.
	Words []Word `json:"words,omitempty"`
}

// Word is a piece of a comment, with the space before or after it.
type Word struct {
	At   float64 `json:"at"` // s after Entry.At
	Text string  `json:"text"`
}

// IsComment reports whether the cycle has a published comment.
func (e Entry) IsComment() bool { return e.Record.IsComment() }

// Query selects entries.
type Query struct {
	// Room is required without Everything.
	Room string
	// Everything selects all entries of all rooms between From and To.
	Everything bool
	// From (inclusive) and To (exclusive) bound Entry.At; zero is no bound.
	From, To time.Time
	// Last bounds the entries to the newest; 0 is all.
	Last int
	// Comments leaves out cycles without a comment.
	Comments bool
	// Alerts leaves out cycles.
	Alerts bool
	// Heard selects the speech of people only; without it, their speech is left out.
	Heard bool
	// By selects the speech of one identity; "" is all.
	By string

	// after (exclusive) and upTo (inclusive) bound the ids in a database; 0 is no bound.
	after, upTo int64
}

func (q Query) takes(e *Entry) bool {
	if q.Everything {
		return (q.From.IsZero() || !e.At.Before(q.From)) && (q.To.IsZero() || e.At.Before(q.To))
	}
	if (e.Heard != nil) != q.Heard || q.By != "" && (e.Heard == nil || e.Heard.Identity != q.By) {
		return false
	}
	return e.Room == q.Room && (!q.Comments || e.IsComment()) && (!q.Alerts || e.Alert != nil) &&
		(q.From.IsZero() || !e.At.Before(q.From)) && (q.To.IsZero() || e.At.Before(q.To))
}

// RoomInfo sums up one room.
type RoomInfo struct {
	Room     string `json:"room"`
	Records  int    `json:"records"`
	Comments int    `json:"comments"`
	// First and Last are the oldest and the newest Entry.At.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// Reader reads a store. It may be used while a Log writes to it.
type Reader interface {
	// Rooms lists the rooms by name.
	Rooms(ctx context.Context) ([]RoomInfo, error)
	// Entries yields the entries of a query, oldest first. A yielded error concerns a part
	// of the store; iteration may continue with the rest.
	Entries(ctx context.Context, q Query) iter.Seq2[Entry, error]
	// Close releases the store.
	Close() error
}

// Follower is an optional interface of a Reader whose store may grow.
type Follower interface {
	// Follow yields the entries of a query that are written from now on, until ctx ends. With past set, it yields the
	// existing entries first.
	Follow(ctx context.Context, q Query, past bool) iter.Seq2[Entry, error]
}

// store is a Reader that can be written to, by one goroutine.
type store interface {
	Reader
	// add writes all rows or none. It removes the oldest entries beyond max_bytes.
	add(rows []row) error
	// expire removes entries older than before.
	expire(before time.Time) error
	// forget deletes the speech of people.
	forget(ctx context.Context, q Query) (n int, err error)
	// newest returns the time of the newest entry, zero for an empty store.
	newest() (time.Time, error)
}

// row is an entry ready to be written.
type row struct {
	at      time.Time
	room    string
	comment bool
	json    []byte // the Entry, without a line break
}
