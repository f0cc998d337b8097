// Package docs_test checks the documentation against the files that it describes.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const moduleRoot = ".."

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{moduleRoot}, path...)...))
	require.NoError(t, err)
	return string(text)
}

// firstGroups returns the first group of each match of a pattern.
func firstGroups(pattern, text string) []string {
	var found []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

// TestOperatingListsEveryAlert compares the table of alerts with the rules, in order.
func TestOperatingListsEveryAlert(t *testing.T) {
	rules := firstGroups(`(?m)^ *- alert: (\w+)$`, read(t, "deploy", "prometheus", "alerts.yml"))
	require.NotEmpty(t, rules)
	require.Equal(t, rules, firstGroups("(?m)^\\| `(Touchline\\w+)` \\|", read(t, "docs", "operating.md")))
}

// TestLinks follows the relative links of the documents, fragments included.
func TestLinks(t *testing.T) {
	docs, err := filepath.Glob(filepath.Join(moduleRoot, "docs", "*.md"))
	require.NoError(t, err)
	for _, name := range []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "deploy/README.md"} {
		docs = append(docs, filepath.Join(moduleRoot, name))
	}
	for _, doc := range docs {
		text, err := os.ReadFile(doc)
		require.NoError(t, err)
		for _, link := range firstGroups(`\]\(([^)\s]+)\)`, string(text)) {
			if strings.Contains(link, "://") {
				continue
			}
			path, fragment, _ := strings.Cut(link, "#")
			target := doc
			if path != "" {
				target = filepath.Join(filepath.Dir(doc), path)
			}
			_, err := os.Stat(target)
			if !assert.NoError(t, err, "%s links to %s", doc, link) || fragment == "" { //nolint:testifylint // reports all broken links
				continue
			}
			linked, err := os.ReadFile(target)
			require.NoError(t, err)
			assert.Contains(t, anchors(string(linked)), fragment, "%s links to %s", doc, link)
		}
	}
}

// anchors returns the fragments by which a Markdown file's headings can be linked to.
func anchors(text string) []string {
	var found []string
	for _, heading := range firstGroups(`(?m)^#+ (.*)$`, text) {
		heading = regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(heading), "")
		found = append(found, strings.ReplaceAll(heading, " ", "-"))
	}
	return found
}
