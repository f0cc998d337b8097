package configs

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

//go:embed presets/*.yaml detail/*.yaml profiles/*.yaml
var files embed.FS

// presetSet is a folder of presets, selected by name.
type presetSet struct {
	key      string // the setting with the name
	variable string // its environment variable
	folder   string
}

// presetSets returns the sets in the order of their application.
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
