package configs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"

	"touchline/agent"
	"touchline/internal/check"
)

// builtinNames returns the names in display order.
func builtinNames() []string {
	return []string{"default", "sports", "security", "nature", "descriptive"}
}

func builtinProfiles() ([]agent.Profile, error) {
	var out []agent.Profile
	for _, name := range builtinNames() {
		text, err := files.ReadFile("profiles/" + name + ".yaml")
		if err != nil {
			return nil, err
		}
		p, err := readProfile(name, text)
		if err != nil {
			return nil, fmt.Errorf("profile %s: %w", name, err)
		}
		out = append(out, p)
	}
	return out, nil
}

// readProfiles reads a file, or all *.yaml and *.yml files of a folder.
func readProfiles(path string) ([]agent.Profile, error) {
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
	var out []agent.Profile
	for _, path := range paths {
		text, err := readFile(path)
		if err != nil {
			return nil, err
		}
		p, err := readProfile(strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)), text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		out = append(out, p)
	}
	return out, nil
}

var profileName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,39}$`)

// readProfile reads a profile. name is the default name.
func readProfile(name string, text []byte) (agent.Profile, error) {
	var p agent.Profile
	if err := yaml.UnmarshalWithOptions(text, &p, yaml.Strict()); err != nil {
		return agent.Profile{}, err
	}
	if p.Name == "" {
		p.Name = name
	}
	p.Prompt, p.Suggestion, p.Label = strings.TrimSpace(p.Prompt), strings.TrimSpace(p.Suggestion), strings.TrimSpace(p.Label)
	var s check.Settings
	s.That(profileName.MatchString(p.Name), "name",
		"up to 40 lower-case letters, digits, - and _", fmt.Sprintf("%q", p.Name))
	chars := utf8.RuneCountInString
	s.That(p.Label != "" && chars(p.Label) <= 40, "label", "1 to 40 characters", chars(p.Label))
	s.That(p.Prompt != "" && chars(p.Prompt) <= 8000, "prompt", "1 to 8000 characters", chars(p.Prompt))
	s.That(chars(p.Suggestion) <= agent.MaxInstruction, "suggestion",
		fmt.Sprintf("at most %d characters", agent.MaxInstruction), chars(p.Suggestion))
	return p, s.Err()
}
