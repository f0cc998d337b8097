package console_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/configs"
)

// TestDocsNameRealVariables: who copies a name from the documents sets a setting.
func TestDocsNameRealVariables(t *testing.T) {
	t.Parallel()
	known := []string{configs.FileVariable}
	for _, v := range configs.Variables() {
		known = append(known, v.Name)
	}
	// Some flags of the program have a variable, too.
	flag := regexp.MustCompile(`env:"(TOUCHLINE_[A-Z0-9_]*)"`)
	sources, err := filepath.Glob("../../cmd/touchline/*.go")
	require.NoError(t, err)
	for _, file := range sources {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, got := range flag.FindAllStringSubmatch(string(text), -1) {
			known = append(known, got[1])
		}
	}
	files, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	name := regexp.MustCompile(`TOUCHLINE_[A-Z0-9_]*`)
	for _, file := range append(files, "../../README.md") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, got := range name.FindAllString(string(text), -1) {
			if strings.HasSuffix(got, "_") {
				// The beginning of several, as in TOUCHLINE_...
				require.True(t, slices.ContainsFunc(known, func(v string) bool { return strings.HasPrefix(v, got) }), "%s: %s", file, got)
				continue
			}
			require.Contains(t, known, got, file)
		}
	}
}
