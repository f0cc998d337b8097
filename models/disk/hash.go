package disk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"
)

// HashFiles returns the SHA-256 of files in a folder by name, computed on all
// cores. The error names each file that cannot be read. progress, if not nil, is
// called by one goroutine at a time with the bytes read so far.
func HashFiles(ctx context.Context, dir string, names []string, progress func(done, total int64)) (map[string]string, error) {
	var total, done int64
	for _, name := range names {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
			total += info.Size()
		}
	}
	var (
		mu    sync.Mutex
		group errgroup.Group
		sums  = make(map[string]string, len(names))
		errs  = make([]error, len(names))
	)
	read := func(n int64) {
		mu.Lock()
		defer mu.Unlock()
		if done += n; progress != nil {
			progress(done, total)
		}
	}
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, name := range names {
		group.Go(func() error {
			sum, err := HashFile(ctx, filepath.Join(dir, name), read)
			if err != nil {
				errs[i] = fmt.Errorf("%s: %w", name, err)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			sums[name] = sum
			return nil
		})
	}
	_ = group.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return sums, errors.Join(errs...)
}

// HashFile returns the SHA-256 of a file in hexadecimal digits. read, if not
// nil, is called with the size of each piece read.
func HashFile(ctx context.Context, path string, read func(n int64)) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return Hash(ctx, sha256.New(), f, read)
}

// Hash adds the rest of r to h and returns the sum in hexadecimal digits. read is
// as in HashFile.
func Hash(ctx context.Context, h hash.Hash, r io.Reader, read func(n int64)) (string, error) {
	piece := make([]byte, 1<<20)
	for {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		n, err := r.Read(piece)
		h.Write(piece[:n])
		if read != nil && n > 0 {
			read(int64(n))
		}
		if errors.Is(err, io.EOF) {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
}
