//go:build builtinassets

package console

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
)

// dist is the built page, which must exist when the program is compiled.
//
//go:embed all:web/dist
var dist embed.FS

// pageFiles returns the files of a folder, or else the page in the program.
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
