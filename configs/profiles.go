package configs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"touchline/agent/prompt"
)

// readProfiles reads a file, or all *.yaml and *.yml files of a folder.
func readProfiles(path string) ([]prompt.Profile, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	paths := []string{path}
	if info.IsDir() {
		paths = nil
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".yaml" || ext == ".yml") {
				paths = append(paths, filepath.Join(path, e.Name()))
			}
		}
		if len(paths) == 0 {
			return nil, fmt.Errorf("%s: the folder has no profiles (*.yaml)", path)
		}
	}
	var out []prompt.Profile
	for _, path := range paths {
		text, err := readFile(path)
		if err != nil {
			return nil, err
		}
		p, err := prompt.ReadProfile(strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)), text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		out = append(out, p)
	}
	return out, nil
}
