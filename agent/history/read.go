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
	"time"
)

// closedFile is a file that is no longer written to.
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

// closedFile describes an entry of the folder; ok is false for other files.
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
		if !q.From.IsZero() { // files closed before have no such entries
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

// yieldLast reads the files from the newest back until it has enough entries.
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
			if part = append(part, e); len(part) > 2*(q.Last-n) { // rarely, as each trim copies
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

// open opens the growing file and lists the closed ones, as of one moment: with a
// rotation in between, entries would be read twice or never.
func (f *files) open() (*os.File, []closedFile, error) {
	path := filepath.Join(f.dir, currentName)
	pause := time.NewTicker(5 * time.Millisecond)
	defer pause.Stop()
	for range 20 {
		current, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) { // during a rotation, or no history
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

// lines reads entries, one per line, and skips lines that cannot be parsed.
func lines(ctx context.Context, r io.Reader, q Query) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		// Lines of other rooms, which are most of a large store, are skipped without parsing.
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

// readLine returns the next line; nil for one that is too long.
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
