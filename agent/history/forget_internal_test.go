package history //nolint:testpackage // the plans of its statements have no exported form

import (
	"database/sql"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/look"
	"touchline/internal/sqlite"
)

// TestForgetReads: a deletion reads the texts of the person in the room by the index, and no comment unless an order is among them: then
// those since the order. A file of version 1 is converted first, and the program of that version refuses it from then on.
func TestForgetReads(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.Store, cfg.Path = StoreSQLite, filepath.Join(t.TempDir(), "history.db")
	earlier := sqlite.Format{Name: "history", ID: format().ID, Versions: []string{schema}}
	old, err := earlier.Open(cfg.Path)
	require.NoError(t, err)
	at, rows := time.Now().Add(-time.Hour), []row{}
	write := func(e Entry) {
		at = at.Add(time.Millisecond)
		e.At, e.Room = at, "club"
		text, err := json.Marshal(&e)
		require.NoError(t, err)
		rows = append(rows, row{at: at, room: e.Room, json: text})
	}
	comments := func(n int) {
		for range n {
			write(Entry{Record: look.Record{Cycle: 1, Text: "A pass.", Instruction: "only the keeper"}})
		}
	}
	heard := func(by, order string) {
		h := &agent.Heard{Segment: "1", Identity: by, Text: "hello", Final: true}
		if order != "" {
			h.Order = &agent.SpokenOrder{Text: order}
		}
		write(Entry{Heard: h})
	}
	comments(2 * ordersWritten)
	heard("ann", "")
	heard("ben", "")
	heard("cleo", "Only the wing.")
	comments(10)
	heard("dora", "only the keeper.")
	comments(10)
	require.NoError(t, (&database{db: old}).insert(t.Context(), rows))
	require.NoError(t, old.Close())

	d, err := openDatabase(cfg, zerolog.Nop())
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	_, err = earlier.Open(cfg.Path)
	require.ErrorContains(t, err, "history of version 2, this program reads version 1")

	for by, plan := range map[string]string{"ann": "(room=? AND <expr>=?", "": "(room=?"} {
		orders, deletion, args := Query{Room: "club", By: by}.ofHeard().forgetting()
		for _, statement := range []string{orders, deletion} {
			require.Contains(t, planOf(t, d.db, statement, args), "SEARCH records USING INDEX records_heard "+plan, statement)
		}
	}
	// From now on an update of a comment without a reason fails.
	watch := func(since string) {
		_, err := d.db.ExecContext(t.Context(), "DROP TRIGGER IF EXISTS watch; CREATE TRIGGER watch BEFORE UPDATE ON records WHEN "+since+
			" BEGIN SELECT raise(ABORT, 'a comment is changed'); END")
		require.NoError(t, err)
	}
	deletes := func(by string, want int) {
		n, err := d.forget(t.Context(), Query{Room: "club", By: by}.ofHeard())
		require.NoError(t, err, by)
		require.Equal(t, want, n, by)
	}
	watch("1")
	deletes("nobody", 0)
	deletes("ann", 1)
	deletes("cleo", 1) // no comment has her order
	watch("old.id <= 1014")
	deletes("dora", 1)
	deletes("", 1)
	left := 0
	for e, err := range d.Entries(t.Context(), Query{Room: "club", Everything: true}) {
		require.NoError(t, err)
		require.Nil(t, e.Heard)
		if e.Record.Instruction != "" {
			left++
		}
	}
	require.Equal(t, ordersWritten+14, left, "typed before the order")
}

func planOf(t *testing.T, db *sql.DB, statement string, args []any) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+statement, args...)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	var lines []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		require.NoError(t, rows.Scan(&id, &parent, &unused, &detail))
		lines = append(lines, detail)
	}
	require.NoError(t, rows.Err())
	return strings.Join(lines, "\n")
}
