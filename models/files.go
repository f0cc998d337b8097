package models

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// ReadFile reads a file of at most limit bytes.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s: larger than %d bytes", path, limit)
	}
	return b, nil
}

// Cache returns the folder for bundles that programs make themselves: in the user's cache, or in the folder of temporary files if there
// is no home or it is not writable.
func Cache() string {
	if cache, err := os.UserCacheDir(); err == nil {
		cache = filepath.Join(cache, "touchline")
		if os.MkdirAll(cache, 0o755) == nil {
			return cache
		}
	}
	return filepath.Join(os.TempDir(), "touchline")
}
