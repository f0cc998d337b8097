//go:build !builtinassets

package console

import (
	"io/fs"
	"os"
)

// defaultWebDir is the built page, relative to the repository's root.
const defaultWebDir = "agent/console/web/dist"

// pageFiles returns the files of a folder, or else of defaultWebDir.
func pageFiles(dir string) (fs.FS, error) {
	if dir == "" {
		dir = defaultWebDir
	}
	return os.DirFS(dir), nil
}
