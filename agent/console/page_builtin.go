//go:build builtinassets

package console

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
)

// dist is the page as make built it; it must be there before this is compiled.
//
//go:embed all:web/dist
var dist embed.FS

// pageFiles returns the page in the program, unless a folder is given.
func pageFiles(dir string) (fs.FS, error) {
	if dir != "" {
		return os.DirFS(dir), nil
	}
	files, err := fs.Sub(dist, "web/dist")
	if err != nil {
		return nil, fmt.Errorf("open the page in the program: %w", err)
	}
	return files, nil
}
