package history

import (
	"context"
	"iter"
	"time"
)

// Break has the store panic from now on in the method of a name: add,
// Entries or Close. It is to be called before Run.
func (l *Log) Break(where string) { l.store = broken{l.store, where} }

type broken struct {
	store

	where string
}

func (b broken) at(where string) {
	if b.where == where {
		panic("crash in " + where)
	}
}

func (b broken) add(rows []row) error {
	b.at("add")
	return b.store.add(rows)
}

func (b broken) Entries(ctx context.Context, q Query) iter.Seq2[Entry, error] {
	b.at("Entries")
	return b.store.Entries(ctx, q)
}

func (b broken) Close() error {
	defer b.at("Close")
	return b.store.Close()
}

// Expire removes by age as Run does each minute: the clock shows wall, and elapsed has passed since Open.
func (l *Log) Expire(wall time.Time, elapsed time.Duration) { l.expire(wall, elapsed) }

// Close closes the store of a Log that does not run.
func (l *Log) Close() error { return l.store.Close() }
