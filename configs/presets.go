package configs

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

//go:embed default.yaml presets/*.yaml detail/*.yaml profiles/*.yaml
var files embed.FS

// DefaultFile returns the documented default.yaml, to begin a file of one's own with.
func DefaultFile() []byte {
	text, err := files.ReadFile("default.yaml")
	if err != nil {
		return nil // It is embedded.
	}
	return text
}

// presetSet is a folder of settings that belong together, chosen by one name.
type presetSet struct {
	key      string // the setting that chooses
	variable string // the same from outside
	folder   string
}

// presetSets are in the order they are applied.
func presetSets() [2]presetSet {
	return [2]presetSet{
		{key: "preset", variable: Prefix + "PRESET", folder: "presets"},
		{key: "detail", variable: Prefix + "DETAIL", folder: "detail"},
	}
}

func (s presetSet) read(name string) ([]byte, error) {
	if name == "" || strings.ContainsAny(name, `/\.`) {
		return nil, fmt.Errorf("%s %q: %w", s.key, name, fs.ErrNotExist)
	}
	return files.ReadFile(path.Join(s.folder, name+".yaml"))
}

func (s presetSet) names() []string {
	entries, err := files.ReadDir(s.folder)
	if err != nil {
		return nil // It is embedded.
	}
	var out []string
	for _, e := range entries {
		out = append(out, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return out
}

// Presets lists the names that Preset takes.
func Presets() []string { return presetSets()[0].names() }

// Details lists the names that Detail takes.
func Details() []string { return presetSets()[1].names() }
