// Package profiles holds the built-in prompt profiles, each a YAML file.
package profiles

import (
	"embed"
	"fmt"

	"touchline/agent/prompt"
)

//go:embed *.yaml
var files embed.FS

// names returns the names in display order.
func names() []string {
	return []string{"default", "sports", "security", "nature", "descriptive"}
}

// BuiltIn returns the built-in profiles in display order.
func BuiltIn() ([]prompt.Profile, error) {
	var out []prompt.Profile
	for _, name := range names() {
		text, err := files.ReadFile(name + ".yaml")
		if err != nil {
			return nil, err
		}
		p, err := prompt.ReadProfile(name, text)
		if err != nil {
			return nil, fmt.Errorf("profile %s: %w", name, err)
		}
		out = append(out, p)
	}
	return out, nil
}
