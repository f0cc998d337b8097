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
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Names in a folder. The name of a closed file has the time of its closing.
const (
	databaseName = "history.db"
	currentName  = "history.jsonl"
	lockName     = "history.lock"
	closedPrefix = "history-"
	closedTime   = "20060102T150405.000Z"
	plainSuffix  = ".jsonl"
	packedSuffix = ".jsonl.gz"
)

// maxLine bounds a line, in bytes. Written lines are a hundred times shorter.
const maxLine = 1 << 20

// folder is the read-only history of earlier versions in JSON lines: one growing file and closed ones, most of them
// compressed.
type folder struct{ dir string }

// files lists the files, oldest first. If a file exists compressed and uncompressed, it lists the compressed one.
func (f folder) files() ([]string, error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, err
	}
	byTime := map[time.Time]string{}
	var current []string
	for _, e := range entries {
		stem, closed := strings.CutPrefix(e.Name(), closedPrefix)
		plain, packed := strings.CutSuffix(stem, packedSuffix)
		plain = strings.TrimSuffix(plain, plainSuffix)
		at, err := time.Parse(closedTime, plain)
		switch {
		case e.Name() == currentName:
			current = []string{currentName}
		case !closed || err != nil || !packed && byTime[at] != "":
		default:
			byTime[at] = e.Name()
		}
	}
	var out []string
	for _, at := range slices.SortedFunc(maps.Keys(byTime), time.Time.Compare) {
		out = append(out, byTime[at])
	}
	return append(out, current...), nil
}

// Entries implements Reader.
func (f folder) Entries(ctx context.Context, q Query) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		names, err := f.files()
		if err == nil && len(names) == 0 {
			err = fmt.Errorf("no history in the folder %s: it has no %s", f.dir, databaseName)
		}
		if err != nil {
			yield(Entry{}, err)
			return
		}
		var last []Entry // with q.Last, the newest ones so far
		for _, name := range names {
			for line, err := range f.lines(ctx, name) {
				e, ok := line.entry()
				switch {
				case err == nil && (!ok || !q.takes(&e)):
				case err == nil && q.Last > 0:
					if last = append(last, e); len(last) >= 2*q.Last {
						last = slices.Clone(last[len(last)-q.Last:])
					}
				case !yield(e, err):
					return
				}
			}
		}
		for _, e := range last[max(0, len(last)-q.Last):] {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// line is a line of a file; nil for a line that is too long.
type line []byte

// entry returns the entry of a line. ok is false if it has none.
func (l line) entry() (e Entry, ok bool) {
	return e, json.Unmarshal(l, &e) == nil && !e.At.IsZero()
}

// lines reads the complete lines of a file. A yielded error ends the file.
func (f folder) lines(ctx context.Context, name string) iter.Seq2[line, error] {
	return func(yield func(line, error) bool) {
		fail := func(err error) { yield(nil, fmt.Errorf("read %s: %w", filepath.Join(f.dir, name), err)) }
		file, err := os.Open(filepath.Join(f.dir, name))
		if err != nil {
			fail(err)
			return
		}
		defer func() { _ = file.Close() }()
		var r io.Reader = file
		if strings.HasSuffix(name, packedSuffix) {
			if r, err = gzip.NewReader(file); err != nil {
				fail(err)
				return
			}
		}
		in := bufio.NewReaderSize(r, 64<<10)
		for n := 0; ; n++ {
			if n%256 == 0 && ctx.Err() != nil {
				fail(ctx.Err())
				return
			}
			text, err := readLine(in)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				fail(err)
				return
			}
			if !yield(bytes.TrimSpace(text), nil) {
				return
			}
		}
	}
}

// readLine returns the next line; nil for a line that is too long.
func readLine(in *bufio.Reader) ([]byte, error) {
	text, err := in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return text, err
	}
	whole := slices.Clone(text)
	for errors.Is(err, bufio.ErrBufferFull) {
		text, err = in.ReadSlice('\n')
		if len(whole) <= maxLine {
			whole = append(whole, text...)
		}
	}
	if len(whole) > maxLine {
		whole = nil
	}
	return whole, err
}

// Rooms implements Reader.
func (f folder) Rooms(ctx context.Context) ([]RoomInfo, error) {
	rooms := map[string]*RoomInfo{}
	var failed error
	for e, err := range f.Entries(ctx, Query{Everything: true}) {
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

// Close implements Reader.
func (folder) Close() error { return nil }
