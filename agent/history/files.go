package history

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Names in the folder. A closed file is named by the time of its closing, so
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

// maxLine bounds a line that is read, in bytes; written lines are a hundred times shorter.
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
	file        *os.File // the growing one
	size        int64
	born        time.Time // of its first entry
	last        time.Time // of its last entry when it was opened, zero if it has none
}

// openFiles opens a folder for writing and repairs it after a crash.
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

// mend finishes the interrupted compression of the last process.
func (f *files) mend() error {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		switch {
		case strings.HasPrefix(name, closedPrefix) && strings.HasSuffix(name, tempSuffix):
			// pack has removed it if its file came first.
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

// openCurrent opens the growing file and cuts off an incomplete last line.
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
		// The next attempt writes the whole batch again.
		return errors.Join(err, f.file.Truncate(f.size))
	}
	f.size += int64(b.Len())
	return nil
}

// rotate closes the growing file and begins another.
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

// closedName returns a name that sorts after the existing ones.
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

// expire implements store. It removes whole closed files, by the time of their closing.
func (f *files) expire(before time.Time) error {
	return f.remove(func(c closedFile, _ int64) bool { return c.closed.Before(before) })
}

// trim removes the oldest closed files while the folder is larger than max_bytes.
func (f *files) trim() error {
	return f.remove(func(_ closedFile, total int64) bool { return total > int64(f.cfg.MaxBytes) })
}

// remove removes closed files, oldest first, while surplus returns true for the next
// one and the size of the folder in bytes.
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
		// Closing alone is not enough: a child process between its fork and its exec has the
		// descriptor too.
		err = errors.Join(err, syscall.Flock(int(f.lock.Fd()), syscall.LOCK_UN), f.lock.Close())
	}
	return err
}
