package configs

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"touchline/agent"
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

// live returns the presets as settings that can change while a bot runs.
func live() []agent.Preset {
	var out []agent.Preset
	set := presetSets()[0]
	for _, name := range set.names() {
		if name == agent.PresetAuto {
			continue
		}
		c, err := Load("", []string{set.variable + "=" + name})
		if err != nil {
			continue // It is embedded.
		}
		out = append(out, agent.Preset{Name: name, Settings: agent.Settings{
			CaptureFPS: &c.Media.CaptureFPS, Frames: &c.Agent.Frames, Stride: &c.Agent.Stride, ChangeThreshold: &c.Agent.ChangeThreshold,
			MinInterval: new(c.Pacing.MinInterval.Seconds()), PauseAfter: new(c.Pacing.PauseAfter.Seconds()),
			SpeechMaxTokens: &c.Inference.Voice.MaxTokens,
		}})
	}
	return out
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
