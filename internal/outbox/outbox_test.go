package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/internal/outbox"
	"touchline/internal/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a file with the table.
func open(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sqlite.Format{Name: "state", ID: 1, Versions: []string{outbox.Schema}, Mode: 0o600, Durable: true}.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func message(target string, n int) outbox.Message {
	return outbox.Message{Target: target, Topic: "room", At: time.Now(), Body: fmt.Append(nil, n)}
}

func queue(t *testing.T, o *outbox.Outbox, target string) *outbox.Queue {
	t.Helper()
	q, err := o.Queue(target)
	require.NoError(t, err)
	return q
}

func bodies(q *outbox.Queue) (out []string) {
	for {
		m, ok := q.Try()
		if !ok {
			return out
		}
		out = append(out, string(m.Body))
		q.Done(m)
	}
}

// TestRestart: what was not delivered when the program was killed is there after its restart, in order and for each
// target; what was delivered is not.
func TestRestart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	o := outbox.New(open(t, path))
	a, b := queue(t, o, "a"), queue(t, o, "b")
	require.NoError(t, o.Put(message("a", 1), message("b", 1), message("none", 1)))
	require.NoError(t, o.Put(message("a", 2), message("b", 2)))
	first, err := a.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, "1", string(first.Body))
	a.Done(first)
	_, err = a.Next(t.Context()) // under way when the program is killed
	require.NoError(t, err)
	require.Equal(t, []string{"1", "2"}, bodies(b))
	require.Equal(t, 1, o.Waiting())
	o.Flush()

	o = outbox.New(open(t, path))
	require.True(t, o.Durable())
	a = queue(t, o, "a")
	require.Same(t, a, queue(t, o, "a"))
	again, ok := a.Try()
	require.True(t, ok)
	require.Equal(t, "room", again.Topic)
	require.WithinDuration(t, time.Now(), again.At, time.Hour)
	require.Equal(t, []string{"2"}, bodies(a))
	require.Empty(t, bodies(queue(t, o, "b")))
	require.Zero(t, o.Dropped())
	o.Flush()

	o = outbox.New(open(t, path))
	require.Empty(t, bodies(queue(t, o, "a")))
}

// TestBounds: the oldest of more than 1000 messages is dropped, but not the one that the reader has; so is one of a day.
func TestBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := outbox.New(nil)
		q := queue(t, o, "a")
		require.NoError(t, o.Put(message("a", 0)))
		first, ok := q.Try()
		require.True(t, ok)
		for i := 1; i <= outbox.Limit+4; i++ {
			require.NoError(t, o.Put(message("a", i)))
		}
		require.EqualValues(t, 5, o.Dropped())
		require.Equal(t, outbox.Limit, q.Len())
		q.Done(first)
		next, ok := q.Try()
		require.True(t, ok)
		require.Equal(t, "6", string(next.Body))

		time.Sleep(outbox.MaxAge - time.Minute)
		require.NoError(t, o.Put(message("a", 2000)))
		time.Sleep(2 * time.Minute)
		require.Equal(t, []string{"2000"}, bodies(q))
		require.EqualValues(t, 5+outbox.Limit-1, o.Dropped())

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := q.Next(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		go func() { _ = o.Put(message("a", 1)) }()
		_, err = q.Next(t.Context())
		require.NoError(t, err, "a waiting reader wakes up")
	})
}

// TestOverfullFile: dropped messages leave the file as well.
func TestOverfullFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	o := outbox.New(open(t, path))
	q := queue(t, o, "a")
	many := make([]outbox.Message, outbox.Limit+3)
	for i := range many {
		many[i] = message("a", i)
	}
	for part := range slices.Chunk(many, 100) {
		require.NoError(t, o.Put(part...))
	}
	require.Equal(t, outbox.Limit, q.Len())
	o.Flush()
	o = outbox.New(open(t, path))
	q = queue(t, o, "a")
	require.Equal(t, outbox.Limit, q.Len())
	require.Zero(t, o.Dropped())
	m, _ := q.Try()
	require.Equal(t, "3", string(m.Body))
}

// TestBrokenFile: messages that the file does not take are delivered all the same, and reported.
func TestBrokenFile(t *testing.T) {
	t.Parallel()
	db := open(t, filepath.Join(t.TempDir(), "state.db"))
	o := outbox.New(db)
	q := queue(t, o, "a")
	_, err := db.ExecContext(t.Context(), "ALTER TABLE outbox RENAME TO away")
	require.NoError(t, err)
	require.Error(t, o.Put(message("a", 1)))
	require.Contains(t, o.Problem(), "alerts are not kept")
	_, err = o.Queue("b")
	require.Error(t, err)
	require.Equal(t, []string{"1"}, bodies(q))
	_, err = db.ExecContext(t.Context(), "ALTER TABLE away RENAME TO outbox")
	require.NoError(t, err)
	require.NoError(t, o.Put(message("a", 2)))
	require.Empty(t, o.Problem())
	require.Equal(t, []string{"2"}, bodies(q))
	require.Eventually(t, func() bool { // delivered messages leave the file by themselves
		var n int
		err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM outbox").Scan(&n)
		return err == nil && n == 0
	}, 10*time.Second, 10*time.Millisecond)
}
