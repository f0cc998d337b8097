//go:build !builtinassets

package console

import (
	"io/fs"
	"os"
)

// defaultWebDir is where make puts the page, seen from the repository's root.
const defaultWebDir = "agent/console/web/dist"

// pageFiles reads the page from disk, each time it is asked for.
func pageFiles(dir string) (fs.FS, error) {
	if dir == "" {
		dir = defaultWebDir
	}
	return os.DirFS(dir), nil
}
