package history

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Names in the folder. A closed file is named by the moment it was closed, so
// that names sort by age.
const (
	currentName  = "history.jsonl"
	lockName     = "history.lock"
	closedPrefix = "history-"
	closedTime   = "20060102T150405.000Z"
	plainSuffix  = ".jsonl"
	packedSuffix = ".jsonl.gz"
	tempSuffix   = ".tmp"
)

// maxLine bounds a line that is read, in bytes; the longest that is written is
// a hundredth of it.
const maxLine = 1 << 20

// files is a folder of JSON lines: one file that grows, and closed ones that
// are compressed. One process writes to a folder, any number reads.
type files struct {
	dir string
	cfg Config
	// A file that has grown to rotateBytes, or to the age rotateAfter, is closed and another begun.
	rotateBytes int64
	rotateAfter time.Duration
	lock        *os.File // nil in a reader
	file        *os.File // the one that grows
	size        int64
	born        time.Time // of its first entry
	last        time.Time // of its last entry when it was opened, zero if it has none
}

// openFiles opens a folder for writing and mends what a crash has left.
func openFiles(cfg Config, now time.Time) (_ *files, err error) {
	if err := os.MkdirAll(cfg.Path, 0o750); err != nil {
		return nil, err
	}
	f := &files{dir: cfg.Path, cfg: cfg}
	f.rotateBytes, f.rotateAfter = cfg.rotation()
	if f.lock, err = os.OpenFile(filepath.Join(f.dir, lockName), os.O_CREATE|os.O_RDWR, 0o640); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if err := syscall.Flock(int(f.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, fmt.Errorf("another process writes to this folder: use a folder for each, or the store sqlite: %w", err)
	}
	if err := f.mend(); err != nil {
		return nil, err
	}
	if err := f.openCurrent(now); err != nil {
		return nil, err
	}
	return f, f.trim()
}

// mend finishes what the last process was doing when it ended.
func (f *files) mend() error {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		switch {
		case strings.HasPrefix(name, closedPrefix) && strings.HasSuffix(name, tempSuffix):
			// Gone already, when the file itself came before it here.
			if err = os.Remove(filepath.Join(f.dir, name)); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		case strings.HasPrefix(name, closedPrefix) && strings.HasSuffix(name, plainSuffix):
			err = f.pack(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// openCurrent opens the file that grows; a last line that was not written to
// its end is taken off.
func (f *files) openCurrent(now time.Time) error {
	file, err := os.OpenFile(filepath.Join(f.dir, currentName), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	f.file, f.born = file, now
	end, first, last, err := scanLines(file)
	if err != nil {
		return err
	}
	var e Entry
	if json.Unmarshal(first, &e) == nil && !e.At.IsZero() {
		f.born = e.At
	}
	if json.Unmarshal(last, &e) == nil {
		f.last = e.At
	}
	f.size = end
	return file.Truncate(end)
}

// scanLines finds the end of the last whole line, and the first and the last line.
func scanLines(r io.Reader) (end int64, first, last []byte, err error) {
	lines := bufio.NewReaderSize(r, 64<<10)
	var size int64
	for {
		piece, err := lines.ReadSlice('\n')
		if size += int64(len(piece)); err == nil {
			if end == 0 {
				first = slices.Clone(piece)
			}
			end, last = size, append(last[:0], piece...)
		} else if errors.Is(err, io.EOF) {
			return end, first, last, nil
		} else if !errors.Is(err, bufio.ErrBufferFull) {
			return 0, nil, nil, err
		}
	}
}

// add implements store.
func (f *files) add(now time.Time, rows []row) error {
	var b bytes.Buffer
	for _, r := range rows {
		b.Write(r.json)
		b.WriteByte('\n')
	}
	if f.file == nil { // the last rotation failed half-way
		if err := f.openCurrent(now); err != nil {
			return err
		}
	}
	if f.size > 0 && (f.size+int64(b.Len()) > f.rotateBytes || now.Sub(f.born) >= f.rotateAfter) {
		if err := f.rotate(now); err != nil {
			return err
		}
	}
	if f.size == 0 {
		f.born = now
	}
	if _, err := f.file.Write(b.Bytes()); err != nil {
		// Half a batch would be there twice after the next attempt.
		return errors.Join(err, f.file.Truncate(f.size))
	}
	f.size += int64(b.Len())
	return nil
}

// rotate closes the file that grows and begins another.
func (f *files) rotate(now time.Time) error {
	if err := errors.Join(f.file.Sync(), f.file.Close()); err != nil {
		f.file = nil
		return err
	}
	f.file = nil
	name, err := f.closedName(now)
	if err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(f.dir, currentName), filepath.Join(f.dir, name)); err != nil {
		return err
	}
	if err := f.openCurrent(now); err != nil {
		return err
	}
	if err := f.pack(name); err != nil {
		return err
	}
	return f.trim()
}

// closedName is a name after all that are there.
func (f *files) closedName(now time.Time) (string, error) {
	all, err := f.closed()
	if err != nil {
		return "", err
	}
	if len(all) > 0 {
		if newest := all[len(all)-1].closed; !now.After(newest.Add(time.Millisecond)) {
			now = newest.Add(time.Millisecond)
		}
	}
	return closedPrefix + now.UTC().Format(closedTime) + plainSuffix, nil
}

// pack compresses a closed file. The compressed one appears whole or not at all.
func (f *files) pack(name string) error {
	plain := filepath.Join(f.dir, name)
	packed := strings.TrimSuffix(plain, plainSuffix) + packedSuffix
	in, err := os.Open(plain)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(packed+tempSuffix, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(out)
	_, err = io.Copy(z, in)
	if err = errors.Join(err, z.Close(), out.Sync(), out.Close()); err != nil {
		return errors.Join(fmt.Errorf("compress %s: %w", name, err), os.Remove(packed+tempSuffix))
	}
	if err := os.Rename(packed+tempSuffix, packed); err != nil {
		return err
	}
	return os.Remove(plain)
}

// expire implements store. Closed files go as a whole, by the moment they were closed.
func (f *files) expire(before time.Time) error {
	return f.remove(func(c closedFile, _ int64) bool { return c.closed.Before(before) })
}

// trim removes the oldest closed files while the folder is larger than max_bytes.
func (f *files) trim() error {
	return f.remove(func(_ closedFile, total int64) bool { return total > int64(f.cfg.MaxBytes) })
}

// remove removes closed files, oldest first, while surplus is true of the next
// one and the bytes of the folder.
func (f *files) remove(surplus func(c closedFile, total int64) bool) error {
	all, err := f.closed()
	if err != nil {
		return err
	}
	total := f.size
	for _, c := range all {
		total += c.size
	}
	for _, c := range all {
		if !surplus(c, total) {
			break
		}
		if err := os.Remove(filepath.Join(f.dir, c.name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		total -= c.size
	}
	return nil
}

// newest implements store.
func (f *files) newest() (time.Time, error) {
	newest := f.last
	all, err := f.closed()
	if err == nil && len(all) > 0 && all[len(all)-1].closed.After(newest) {
		newest = all[len(all)-1].closed
	}
	return newest, err
}

// Close implements Reader.
func (f *files) Close() error {
	var err error
	if f.file != nil {
		err = errors.Join(f.file.Sync(), f.file.Close())
	}
	if f.lock != nil {
		err = errors.Join(err, f.lock.Close())
	}
	return err
}

// closedFile is one that is not written to any more.
type closedFile struct {
	name   string
	closed time.Time
	size   int64
}

// closed lists the closed files, oldest first.
func (f *files) closed() ([]closedFile, error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, err
	}
	byTime := map[time.Time]closedFile{}
	for _, e := range entries {
		c, ok := f.closedFile(e)
		if _, twice := byTime[c.closed]; !ok || twice && strings.HasSuffix(c.name, plainSuffix) {
			continue // while a file is compressed, either form will do
		}
		byTime[c.closed] = c
	}
	return slices.SortedFunc(maps.Values(byTime), func(a, b closedFile) int { return a.closed.Compare(b.closed) }), nil
}

// closedFile describes an entry of the folder; ok is false when it is no closed file.
func (f *files) closedFile(e fs.DirEntry) (c closedFile, ok bool) {
	stem, isClosed := strings.CutPrefix(e.Name(), closedPrefix)
	stem, packed := strings.CutSuffix(stem, packedSuffix)
	plain := false
	if !packed {
		stem, plain = strings.CutSuffix(stem, plainSuffix)
	}
	at, err := time.Parse(closedTime, stem)
	if !isClosed || !packed && !plain || err != nil {
		return closedFile{}, false
	}
	c = closedFile{name: e.Name(), closed: at}
	info, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) && plain { // compressed since the folder was listed
		c.name = closedPrefix + stem + packedSuffix
		info, err = os.Stat(filepath.Join(f.dir, c.name))
	}
	if err != nil {
		return closedFile{}, false // removed since
	}
	c.size = info.Size()
	return c, true
}

// Entries implements Reader.
func (f *files) Entries(ctx context.Context, q Query) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		current, closed, err := f.open()
		if err != nil {
			yield(Entry{}, err)
			return
		}
		defer func() { _ = current.Close() }()
		if !q.From.IsZero() { // those that were closed before have nothing
			closed = slices.DeleteFunc(closed, func(c closedFile) bool { return c.closed.Before(q.From) })
		}
		if q.Last > 0 {
			yieldLast(ctx, f, current, closed, q, yield)
			return
		}
		for _, c := range closed {
			for e, err := range f.closedEntries(ctx, c, q) {
				if !yield(e, err) {
					return
				}
			}
		}
		for e, err := range lines(ctx, current, q) {
			if !yield(e, err) {
				return
			}
		}
	}
}

// yieldLast goes from the newest file back until there are enough.
func yieldLast(ctx context.Context, f *files, current io.Reader, closed []closedFile, q Query, yield func(Entry, error) bool) {
	var parts [][]Entry
	var failed []error
	n := 0
	take := func(seq iter.Seq2[Entry, error]) {
		var part []Entry
		for e, err := range seq {
			if err != nil {
				failed = append(failed, err)
				continue
			}
			if part = append(part, e); len(part) > 2*(q.Last-n) { // now and then, not each time
				part = slices.Clone(part[len(part)-(q.Last-n):])
			}
		}
		part = part[max(0, len(part)-(q.Last-n)):]
		n += len(part)
		parts = append(parts, part)
	}
	take(lines(ctx, current, q))
	for i := len(closed) - 1; i >= 0 && n < q.Last && ctx.Err() == nil; i-- {
		take(f.closedEntries(ctx, closed[i], q))
	}
	for _, err := range failed {
		if !yield(Entry{}, err) {
			return
		}
	}
	for _, part := range slices.Backward(parts) {
		for _, e := range part {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// open opens the file that grows and lists the closed ones, as they were at
// one moment: a rotation in between would show entries twice or never.
func (f *files) open() (*os.File, []closedFile, error) {
	path := filepath.Join(f.dir, currentName)
	pause := time.NewTicker(5 * time.Millisecond)
	defer pause.Stop()
	for range 20 {
		current, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) { // between two files, or there never was one
			<-pause.C
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		closed, err := f.closed()
		opened, err1 := current.Stat()
		now, err2 := os.Stat(path)
		if err == nil && err1 == nil && err2 == nil && os.SameFile(opened, now) {
			return current, closed, nil
		}
		_ = current.Close()
		if err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, fmt.Errorf("no history in the folder %s: it has no %s", f.dir, currentName)
}

// closedEntries reads one closed file.
func (f *files) closedEntries(ctx context.Context, c closedFile, q Query) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		path := filepath.Join(f.dir, c.name)
		file, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) && strings.HasSuffix(path, plainSuffix) {
			path = strings.TrimSuffix(path, plainSuffix) + packedSuffix // compressed in the meantime
			file, err = os.Open(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return // removed in the meantime, as too old
		}
		if err != nil {
			yield(Entry{}, err)
			return
		}
		defer func() { _ = file.Close() }()
		var r io.Reader = file
		if strings.HasSuffix(path, packedSuffix) {
			if r, err = gzip.NewReader(file); err != nil {
				yield(Entry{}, fmt.Errorf("read %s: %w", path, err))
				return
			}
		}
		for e, err := range lines(ctx, r, q) {
			if err != nil {
				err = fmt.Errorf("read %s: %w", path, err)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// lines reads entries, one a line. A line that is none is skipped: it is
// incomplete or not ours.
func lines(ctx context.Context, r io.Reader, q Query) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		// Most lines of a store with many rooms are of others; to find that out takes no parser.
		var room []byte
		if q.Room != "" {
			name, _ := json.Marshal(q.Room) // text always encodes
			room = append([]byte(`"room":`), name...)
		}
		in := bufio.NewReaderSize(r, 64<<10)
		for n := 0; ; n++ {
			if n%256 == 0 && ctx.Err() != nil {
				yield(Entry{}, ctx.Err())
				return
			}
			line, err := readLine(in)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(Entry{}, err)
				return
			}
			if !bytes.Contains(line, room) {
				continue
			}
			var e Entry
			if json.Unmarshal(line, &e) != nil || e.At.IsZero() || (q.Room != "" && !q.takes(&e)) {
				continue
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// readLine returns the next line, or nothing for one that is too long.
func readLine(in *bufio.Reader) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	whole := slices.Clone(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = in.ReadSlice('\n')
		if len(whole) <= maxLine {
			whole = append(whole, line...)
		}
	}
	if len(whole) > maxLine {
		whole = nil
	}
	return whole, err
}

// Rooms implements Reader.
func (f *files) Rooms(ctx context.Context) ([]RoomInfo, error) {
	rooms := map[string]*RoomInfo{}
	var failed error
	for e, err := range f.Entries(ctx, Query{}) {
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		r := rooms[e.Room]
		if r == nil {
			r = &RoomInfo{Room: e.Room, First: e.At, Last: e.At}
			rooms[e.Room] = r
		}
		r.Records++
		if e.IsComment() {
			r.Comments++
		}
		if e.At.Before(r.First) {
			r.First = e.At
		}
		if e.At.After(r.Last) {
			r.Last = e.At
		}
	}
	var out []RoomInfo
	for _, name := range slices.Sorted(maps.Keys(rooms)) {
		out = append(out, *rooms[name])
	}
	return out, failed
}
