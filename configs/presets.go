package configs

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/goccy/go-yaml"

	"touchline/agent/settings"
)

//go:embed presets/*.yaml detail/*.yaml
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

// live returns the presets as settings that can change while a bot runs: the settings whose paths a preset's file has.
func live() []settings.Preset {
	var out []settings.Preset
	set := presetSets()[0]
	for _, name := range set.names() {
		if name == settings.Auto {
			continue
		}
		c, err := Load("", []string{set.variable + "=" + name})
		if err != nil {
			continue // It is embedded.
		}
		var file map[string]any
		if text, err := set.read(name); err != nil || yaml.Unmarshal(text, &file) != nil {
			continue // as above
		}
		inForce := settings.InForce{Agent: c.Agent.Config, Pacing: c.Pacing, Media: c.Media, Inference: c.Inference.Config}
		out = append(out, settings.Preset{Name: name, Settings: inForce.Read().Only(func(s settings.Setting) bool {
			return has(file, strings.Split(s.Path, "."))
		})})
	}
	return out
}

// has reports whether a YAML file has a path.
func has(tree map[string]any, path []string) bool {
	v, ok := tree[path[0]]
	if len(path) == 1 || !ok {
		return ok
	}
	below, ok := v.(map[string]any)
	return ok && has(below, path[1:])
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
