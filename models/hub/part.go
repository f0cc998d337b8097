package hub

import (
	"context"
	"crypto/sha1" //nolint:gosec // git names files by it
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"touchline/models/disk"
)

// A partial download is two files next to its final name: the content so far,
// with holes, and its state.
const (
	partSuffix  = ".part"
	stateSuffix = ".part.json"
)

// part is a partial download.
type part struct {
	file  File
	path  string // the final name
	chunk int64

	mu    sync.Mutex
	out   *os.File
	have  []int64     // bytes from the start of each chunk
	total int64       // of have
	whole atomic.Bool // the server ignores ranges

	saving sync.Mutex
}

// state is saved between runs.
type state struct {
	Hash  string  `json:"hash"`
	Size  int64   `json:"size"`
	Chunk int64   `json:"chunk"`
	Have  []int64 `json:"have"`
}

// loadPart reads the state of a partial download and writes nothing. A state that
// does not match the file is ignored.
func loadPart(f File, dir string, chunk int64) *part {
	p := &part{file: f, path: filepath.Join(dir, filepath.FromSlash(f.Path)), chunk: chunk}
	p.forget()
	content, err := os.ReadFile(p.path + stateSuffix)
	if err != nil {
		return p
	}
	var s state
	if json.Unmarshal(content, &s) != nil || s.Hash != f.SHA256+f.Blob || s.Size != f.Size || s.Chunk < 1 ||
		int64(len(s.Have)) != chunks(f.Size, s.Chunk) {
		return p
	}
	info, err := os.Lstat(p.path + partSuffix)
	if err != nil || !info.Mode().IsRegular() {
		return p
	}
	was := part{file: f, chunk: s.Chunk}
	var total int64
	for i, n := range s.Have {
		from, to := was.bounds(i)
		if n < 0 || n > to-from || n > 0 && from+n > info.Size() {
			return p
		}
		total += n
	}
	p.chunk, p.have, p.total = s.Chunk, s.Have, total
	return p
}

func (p *part) forget() {
	p.have, p.total = make([]int64, chunks(p.file.Size, p.chunk)), 0
}

func chunks(size, chunk int64) int64 { return (size + chunk - 1) / chunk }

// bounds returns the range of a chunk.
func (p *part) bounds(i int) (from, to int64) {
	from = int64(i) * p.chunk
	return from, min(from+p.chunk, p.file.Size)
}

// missing returns the missing range of a chunk.
func (p *part) missing(i int) (from, to int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	from, to = p.bounds(i)
	return from + p.have[i], to
}

// next returns the first incomplete chunk, or -1.
func (p *part) next() int {
	for i := range p.have {
		if from, to := p.missing(i); from < to {
			return i
		}
	}
	return -1
}

// open creates the content file.
func (p *part) open() (err error) {
	if err := os.MkdirAll(filepath.Dir(p.path), 0o755); err != nil {
		return err
	}
	p.out, err = os.OpenFile(p.path+partSuffix, os.O_CREATE|os.O_WRONLY, 0o644)
	return err
}

// write writes bytes at offset at and returns the number of new ones.
func (p *part) write(data []byte, at int64) (fresh int64, err error) {
	if _, err := p.out.WriteAt(data, at); err != nil {
		return 0, &permanentError{err}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	end := at + int64(len(data))
	for i := at / p.chunk; i < int64(len(p.have)) && i*p.chunk < end; i++ {
		from, to := p.bounds(int(i))
		// Only bytes that continue the chunk count.
		if n := min(end, to) - from; at <= from+p.have[i] && n > p.have[i] {
			fresh += n - p.have[i]
			p.have[i] = n
		}
	}
	p.total += fresh
	return fresh, nil
}

// save writes the state for a later run.
func (p *part) save() error {
	p.saving.Lock()
	defer p.saving.Unlock()
	p.mu.Lock()
	content, err := json.Marshal(state{Hash: p.file.SHA256 + p.file.Blob, Size: p.file.Size, Chunk: p.chunk, Have: p.have})
	p.mu.Unlock()
	if err != nil {
		return err
	}
	temp := p.path + stateSuffix + ".tmp"
	if err := os.WriteFile(temp, content, 0o644); err != nil {
		return err
	}
	return os.Rename(temp, p.path+stateSuffix)
}

// close closes the content file; a later run can resume.
func (p *part) close() error {
	if p.out == nil {
		return nil
	}
	err := p.out.Close()
	p.out = nil
	return err
}

// finish gives the verified file its final name.
func (p *part) finish() error {
	if err := p.out.Truncate(p.file.Size); err != nil {
		return err
	}
	if err := errors.Join(p.out.Sync(), p.close()); err != nil {
		return err
	}
	if err := os.Rename(p.path+partSuffix, p.path); err != nil {
		return err
	}
	if err := os.Remove(p.path + stateSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// reset discards the downloaded content.
func (p *part) reset() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget()
	return p.out.Truncate(0)
}

// ChecksumError is returned when a file does not match its published checksum.
type ChecksumError struct{ File, Want, Got string }

func (e *ChecksumError) Error() string {
	return fmt.Sprintf("%s: checksum: expected %s, got %s", e.File, e.Want, e.Got)
}

// verify compares a file with its published checksum. It calls read with the size of each piece.
func (f File) verify(ctx context.Context, name string, read func(n int64)) error {
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	want, h := f.SHA256, sha256.New()
	if want == "" {
		want, h = f.Blob, sha1.New() //nolint:gosec // as above
		fmt.Fprintf(h, "blob %d\x00", f.Size)
	}
	// A partial download may have garbage after its end.
	got, err := disk.Hash(ctx, h, io.LimitReader(in, f.Size), read)
	if err != nil {
		return err
	}
	if !strings.EqualFold(got, want) {
		return &ChecksumError{File: f.Path, Want: want, Got: got}
	}
	return nil
}
