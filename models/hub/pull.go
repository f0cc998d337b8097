package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"touchline/models/disk"
)

const (
	// parallelFiles is the number of parallel files; their chunks share the connections.
	parallelFiles = 4
	// reserve is the space that stays free on the disk.
	reserve = 64 << 20
	// saveEvery is the number of new bytes after which a request saves the state.
	saveEvery = 16 << 20
)

// Pull downloads the files of a revision into dir and creates dir if needed.
// Files with the right content are kept. A file gets its final name only after
// its checksum was verified; the next Pull resumes an interrupted one. report, if
// not nil, is called several times a second by one goroutine. Pull returns
// within a second after the end of ctx.
func (c *Client) Pull(ctx context.Context, r Revision, dir string, report func(Progress)) error {
	if err := c.pull(ctx, r, dir, report); err != nil {
		return fmt.Errorf("download %s: %w", r.Model, err)
	}
	return nil
}

func (c *Client) pull(ctx context.Context, r Revision, dir string, report func(Progress)) error {
	if !validModel(r.Model) || !isHex(r.Commit, 40) {
		return fmt.Errorf("model %.100q at %.60q: not a revision returned by Files", r.Model, r.Commit)
	}
	for _, f := range r.Files {
		if !safePath(f.Path) {
			return fmt.Errorf("%.200q is outside the folder", f.Path)
		}
		if err := f.check(); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	lock, err := disk.LockFolder(dir)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()

	m := newMeter(c.options.Now, r.Bytes())
	var wg sync.WaitGroup
	metered, stop := context.WithCancel(ctx)
	wg.Go(func() { m.run(metered, report) })
	defer wg.Wait()
	defer stop()

	parts, err := c.remaining(ctx, r, dir, m)
	if err != nil {
		return err
	}
	if err := c.checkSpace(dir, parts); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelFiles)
	slots := make(chan struct{}, c.options.Connections)
	for _, p := range parts {
		group.Go(func() error {
			if err := c.pullFile(ctx, r, p, m, slots); err != nil {
				return fmt.Errorf("%s: %w", p.file.Path, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// remaining returns the incomplete files.
func (c *Client) remaining(ctx context.Context, r Revision, dir string, m *meter) ([]*part, error) {
	var parts []*part
	for _, f := range r.Files {
		path := filepath.Join(dir, filepath.FromSlash(f.Path))
		info, err := os.Stat(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err == nil && info.Mode().IsRegular() && info.Size() == f.Size {
			err := f.verify(ctx, path, func(n int64) { m.update(func(p *Progress) { p.Verified += n }) })
			if err == nil {
				// A program killed at the end of a download leaves the state behind.
				if err := os.Remove(path + stateSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return nil, err
				}
				m.update(func(p *Progress) { p.Done += f.Size; p.Files++ })
				continue
			}
			if _, ok := errors.AsType[*ChecksumError](err); !ok {
				return nil, err
			}
			m.update(func(p *Progress) { p.Verified -= f.Size })
		}
		p := loadPart(f, dir, c.options.Chunk)
		m.update(func(g *Progress) { g.Done += p.total })
		parts = append(parts, p)
	}
	return parts, nil
}

func (c *Client) checkSpace(dir string, parts []*part) error {
	var need int64
	for _, p := range parts {
		need += p.file.Size - p.total
		if need < 0 {
			return errors.New("the sum of the file sizes exceeds 64 bits")
		}
	}
	if need == 0 {
		return nil
	}
	free, err := c.options.Free(dir)
	if err != nil {
		return fmt.Errorf("read the free space of %s: %w", dir, err)
	}
	if free-reserve < need {
		return fmt.Errorf("%s: the download needs %.2f GB, %.2f GB are free (%d MB are reserved): make room or choose another folder",
			dir, float64(need)/1e9, float64(free)/1e9, reserve>>20)
	}
	return nil
}

// pullFile downloads and verifies a file and gives it its final name. After a
// wrong checksum it starts over once: the content of an earlier run may be
// damaged.
func (c *Client) pullFile(ctx context.Context, r Revision, p *part, m *meter, slots chan struct{}) (err error) {
	if err := p.open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	for again := false; ; again = true {
		err := c.fetch(ctx, r, p, m, slots)
		if err != nil {
			return errors.Join(err, p.save())
		}
		var read int64
		err = p.file.verify(ctx, p.path+partSuffix, func(n int64) {
			read += n
			m.update(func(g *Progress) { g.Verified += n })
		})
		if err == nil {
			break
		}
		if _, wrong := errors.AsType[*ChecksumError](err); !wrong {
			return errors.Join(err, p.save())
		}
		m.update(func(g *Progress) { g.Done -= p.total; g.Verified -= read })
		if err := errors.Join(p.reset(), p.save()); err != nil {
			return err
		}
		if again {
			return err
		}
	}
	if err := p.finish(); err != nil {
		return err
	}
	m.update(func(g *Progress) { g.Files++ })
	return nil
}

// errWhole is returned when the server sends the whole file for a range request.
var errWhole = errors.New("the server ignores ranges")

// fetch downloads the missing chunks of a file. The first response shows whether
// the server supports ranges; if not, it is read to its end.
func (c *Client) fetch(ctx context.Context, r Revision, p *part, m *meter, slots chan struct{}) error {
	one := func(ctx context.Context, i int, whole bool) error {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		err := c.try(ctx, func(ctx context.Context) (bool, error) { return c.request(ctx, r, p, i, whole, m) })
		if err != nil {
			return err
		}
		return p.save()
	}
	for i := p.next(); i >= 0; i = p.next() {
		if err := one(ctx, i, true); err != nil {
			return err
		}
		if !p.whole.Load() {
			break
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(c.options.Connections)
	for i := range p.have {
		if from, to := p.missing(i); from < to {
			group.Go(func() error { return one(ctx, i, false) })
		}
	}
	return group.Wait()
}

// request makes one request for the missing part of a chunk. whole accepts the
// whole file as the response.
func (c *Client) request(ctx context.Context, r Revision, p *part, i int, whole bool, m *meter) (further bool, err error) {
	from, to := p.missing(i)
	if from == to {
		return false, nil
	}
	resp, err := c.send(ctx, http.MethodGet, c.address(r, p.file.Path), http.Header{
		"Range":           {fmt.Sprintf("bytes=%d-%d", from, to-1)},
		"Accept-Encoding": {"identity"},
	})
	if err != nil {
		if e, ok := errors.AsType[*StatusError](err); ok && e.Status == http.StatusRequestedRangeNotSatisfiable {
			return false, &permanentError{fmt.Errorf("the server has less than the %d bytes of the file list: %w", p.file.Size, err)}
		}
		return false, err
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Encoding") != "" {
		return false, fmt.Errorf("unexpected Content-Encoding %.20q", resp.Header.Get("Content-Encoding"))
	}
	at, end := from, to
	if resp.StatusCode == http.StatusOK {
		if from != 0 || to != p.file.Size {
			if !whole {
				return false, errWhole
			}
			p.whole.Store(true)
			at, end = 0, p.file.Size
		}
	} else {
		first, last, size, err := contentRange(resp.Header.Get("Content-Range"))
		if err != nil {
			return false, err
		}
		if first != from || last < first || last >= to || size >= 0 && size != p.file.Size {
			return false, fmt.Errorf("expected bytes %d-%d of %d, got Content-Range %q", from, to-1, p.file.Size, resp.Header.Get("Content-Range"))
		}
		end = last + 1
	}
	if resp.ContentLength >= 0 && resp.ContentLength != end-at {
		return false, fmt.Errorf("expected %d bytes, got Content-Length %d", end-at, resp.ContentLength)
	}
	further, err = receive(resp.Body, p, at, end, m)
	if err == nil && end < to && resp.StatusCode == http.StatusPartialContent {
		err = fmt.Errorf("the server sent bytes up to %d instead of %d", end, to)
	}
	return further, err
}

// receive reads bytes [at, end) of the file. further reports whether any were new.
func receive(body io.Reader, p *part, at, end int64, m *meter) (further bool, err error) {
	buf := make([]byte, 256<<10)
	var unsaved int64
	for at < end {
		n, err := body.Read(buf[:min(int64(len(buf)), end-at)])
		if n > 0 {
			fresh, err := p.write(buf[:n], at)
			if err != nil {
				return further, err
			}
			m.received(fresh)
			further = further || fresh > 0
			at += int64(n)
			if unsaved += fresh; unsaved >= saveEvery {
				unsaved = 0
				if err := p.save(); err != nil {
					return further, &permanentError{err}
				}
			}
		}
		if at == end {
			break
		}
		if err == io.EOF {
			return further, fmt.Errorf("the connection ended %d bytes early: %w", end-at, io.ErrUnexpectedEOF)
		}
		if err != nil {
			return further, err
		}
	}
	if n, _ := body.Read(buf[:1]); n > 0 {
		return further, errors.New("the server sent more bytes than requested")
	}
	return further, nil
}

// contentRange parses "bytes 0-99/1234"; size is -1 for "*".
func contentRange(v string) (first, last, size int64, err error) {
	bad := fmt.Errorf("Content-Range: expected bytes first-last/size, got %.60q", v)
	rest, ok := strings.CutPrefix(v, "bytes ")
	span, total, ok2 := strings.Cut(rest, "/")
	a, b, ok3 := strings.Cut(span, "-")
	if !ok || !ok2 || !ok3 {
		return 0, 0, -1, bad
	}
	first, err1 := strconv.ParseInt(a, 10, 64)
	last, err2 := strconv.ParseInt(b, 10, 64)
	size, err3 := int64(-1), error(nil)
	if total != "*" {
		size, err3 = strconv.ParseInt(total, 10, 64)
	}
	if err1 != nil || err2 != nil || err3 != nil || first < 0 || last < first || total != "*" && size <= last {
		return 0, 0, -1, bad
	}
	return first, last, size, nil
}
