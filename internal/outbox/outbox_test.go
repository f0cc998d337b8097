package outbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/internal/clocktest"
	"touchline/internal/outbox"
	"touchline/internal/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a file with the table.
func open(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sqlite.Format{Name: "state", ID: 1, Versions: []string{outbox.Schema}, Durable: true}.Open(path)
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

// oldest returns the oldest message, if there is one.
func oldest(q *outbox.Queue) (outbox.Message, bool) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	m, err := q.Next(ctx)
	return m, err == nil
}

func bodies(q *outbox.Queue) (out []string) {
	for {
		m, ok := oldest(q)
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
	o.Put(message("a", 1), message("b", 1), message("none", 1))
	o.Put(message("a", 2), message("b", 2))
	o.Flush()
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
	again, ok := oldest(a)
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
		o.Put(message("a", 0))
		first, ok := oldest(q)
		require.True(t, ok)
		for i := 1; i <= outbox.Limit+4; i++ {
			o.Put(message("a", i))
		}
		require.EqualValues(t, 5, o.Dropped())
		require.Equal(t, outbox.Limit, q.Len())
		q.Done(first)
		next, ok := oldest(q)
		require.True(t, ok)
		require.Equal(t, "6", string(next.Body))

		time.Sleep(outbox.MaxAge - time.Minute)
		o.Put(message("a", 2000))
		time.Sleep(2 * time.Minute)
		require.Equal(t, []string{"2000"}, bodies(q))
		require.EqualValues(t, 5+outbox.Limit-1, o.Dropped())

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := q.Next(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		go func() { o.Put(message("a", 1)) }()
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
		o.Put(part...)
		o.Flush()
	}
	require.Equal(t, outbox.Limit, q.Len())
	o.Flush()
	o = outbox.New(open(t, path))
	q = queue(t, o, "a")
	require.Equal(t, outbox.Limit, q.Len())
	require.Zero(t, o.Dropped())
	m, _ := oldest(q)
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
	var failed error
	o.Failed = func(err error) { failed = err }
	o.Put(message("a", 1))
	o.Flush()
	require.Error(t, failed)
	require.Contains(t, o.Problem(), "alerts are not kept")
	_, err = o.Queue("b")
	require.Error(t, err)
	require.Equal(t, []string{"1"}, bodies(q))
	_, err = db.ExecContext(t.Context(), "ALTER TABLE away RENAME TO outbox")
	require.NoError(t, err)
	o.Put(message("a", 2))
	o.Flush()
	require.Empty(t, o.Problem())
	require.Equal(t, []string{"2"}, bodies(q))
	require.Eventually(t, func() bool { // delivered messages leave the file by themselves
		var n int
		err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM outbox").Scan(&n)
		return err == nil && n == 0
	}, 2*time.Minute, 10*time.Millisecond)
}

// disk is a database whose connections hang while it does.
type disk struct {
	driver.Connector

	path  string
	opens driver.Driver

	mu      sync.Mutex
	hangs   chan struct{} // nil when it does not
	waiting int
	most    int // that waited at once
}

func (d *disk) Connect(context.Context) (driver.Conn, error) {
	d.mu.Lock()
	hangs := d.hangs
	d.waiting++
	d.most = max(d.most, d.waiting)
	d.mu.Unlock()
	if hangs != nil {
		<-hangs
	}
	d.mu.Lock()
	d.waiting--
	d.mu.Unlock()
	return d.opens.Open(d.path)
}

func (d *disk) hang(until chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hangs = until
}

// TestHangingDisk: Put never waits, messages are delivered in order after two seconds, nothing that was not delivered is lost
// when the disk answers again, and the end of the program waits two seconds at most.
func TestHangingDisk(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	file := open(t, path)
	synctest.Test(t, func(t *testing.T) {
		d := &disk{path: path, opens: file.Driver()}
		db := sql.OpenDB(d)
		defer func() { _ = db.Close() }()
		db.SetMaxIdleConns(0) // each transaction connects
		o := outbox.New(db)
		var failed []error
		o.Failed = func(err error) { failed = append(failed, err) }
		q := queue(t, o, "a")
		o.Put(message("a", 0))
		o.Flush()
		require.Equal(t, []string{"0"}, bodies(q))
		o.Flush()

		answers := make(chan struct{})
		d.hang(answers)
		began := time.Now()
		for i := 1; i <= 100; i++ {
			o.Put(message("a", i))
		}
		require.Zero(t, time.Since(began))
		require.Equal(t, 100, o.Waiting())
		m, err := q.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2*time.Second, time.Since(began))
		synctest.Wait()
		require.Equal(t, "alerts are not kept: the disk does not answer", o.Problem())
		require.Len(t, failed, 1)
		for i := 1; i <= 50; i++ {
			require.Equal(t, strconv.Itoa(i), string(m.Body))
			q.Done(m)
			m, _ = oldest(q)
		}
		began = time.Now()
		o.Flush()
		require.Equal(t, 2*time.Second, time.Since(began))
		require.Equal(t, 1, d.most, "one goroutine waits for the disk")

		o.Put(message("a", 101))
		d.hang(nil)
		close(answers)
		synctest.Wait()
		require.Empty(t, o.Problem())
		require.Zero(t, o.Uncommitted())
		o.Flush()
		o = outbox.New(db) // of the next run
		left := bodies(queue(t, o, "a"))
		require.Len(t, left, 51)
		require.Equal(t, []string{"51", "101"}, []string{left[0], left[50]})
		o.Flush()
	})
}

// TestHangingDiskIsBounded: of more than 1000 messages that wait for the disk, the oldest are kept in memory alone.
func TestHangingDiskIsBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	file := open(t, path)
	synctest.Test(t, func(t *testing.T) {
		d := &disk{path: path, opens: file.Driver()}
		db := sql.OpenDB(d)
		defer func() { _ = db.Close() }()
		db.SetMaxIdleConns(0)
		o := outbox.New(db)
		q := queue(t, o, "a")
		answers := make(chan struct{})
		d.hang(answers)
		for i := range outbox.Limit + 10 {
			o.Put(message("a", i))
			synctest.Wait()
		}
		require.EqualValues(t, 9, o.Uncommitted(), "one is being written")
		require.Equal(t, outbox.Limit+10, o.Waiting())
		require.Equal(t, 10, q.Len())
		d.hang(nil)
		close(answers)
		synctest.Wait()
		require.Equal(t, outbox.Limit, q.Len())
		require.EqualValues(t, 10, o.Dropped())
		o.Flush()
	})
}

// TestAgeAndTheWallClock: when the wall clock is set, a message that waits is kept, and one of a time when the clock was fast does not stay
// for ever.
func TestAgeAndTheWallClock(t *testing.T) {
	t.Parallel()
	for _, step := range clocktest.Steps {
		path := filepath.Join(t.TempDir(), "state.db")
		o, now := outbox.New(open(t, path)), time.Now()
		queue(t, o, "a")
		m := message("a", 1)
		m.At = clocktest.Step(now, step)
		o.Put(message("a", 0), m)
		o.Flush()

		at := now.Add(time.Minute)
		o = outbox.New(open(t, path))
		o.Now = func() time.Time { return at }
		q := queue(t, o, "a")
		at = clocktest.Step(now.Add(time.Hour), step)
		kept, ok := oldest(q)
		require.True(t, ok, step)
		require.Equal(t, "0", string(kept.Body))
		require.Equal(t, 2, q.Len())
		at = clocktest.Step(now.Add(outbox.MaxAge+time.Hour), step)
		_, ok = oldest(q)
		require.False(t, ok, step)
	}
}
