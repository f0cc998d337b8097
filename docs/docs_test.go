// Package docs_test checks the documentation against the files that it describes.
package docs_test

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/agent/settings"
)

const moduleRoot = ".."

var update = flag.Bool("update", false, "write the generated parts of the documents")

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

// sources returns the Go files outside tests, by path.
func sources(t *testing.T) map[string]string {
	t.Helper()
	return goFiles(t, func(name string) bool { return !strings.HasSuffix(name, "_test.go") })
}

// goFiles returns the Go files that pass a filter, by path.
func goFiles(t *testing.T, filter func(name string) bool) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir(moduleRoot, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "bin"):
			return fs.SkipDir
		case strings.HasSuffix(path, ".go") && filter(d.Name()):
			found[path] = read(t, strings.TrimPrefix(path, moduleRoot))
		}
		return nil
	}))
	return found
}

// documents returns the text of all documents in docs.
func documents(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("*.md")
	require.NoError(t, err)
	var all strings.Builder
	for _, f := range files {
		all.WriteString(read(t, "docs", f))
	}
	return all.String()
}

// TestEveryMetricIsDocumented looks for each metric's name in the documents, whole or as "_rest" after another of its family.
func TestEveryMetricIsDocumented(t *testing.T) {
	text, metrics := documents(t), 0
	documented := func(prefix, name string) bool {
		metrics++
		if strings.Contains(text, prefix+name) || prefix != "" && strings.Contains(text, "`"+name) {
			return true
		}
		for rest, more := name, true; more; _, rest, more = strings.Cut(rest, "_") {
			if strings.Contains(text, "`_"+rest) {
				return true
			}
		}
		return false
	}
	for path, code := range sources(t) {
		for _, name := range firstGroups(`"(touchline_\w*[a-z])"`, code) {
			assert.True(t, documented("", name), "%s: %s", path, name)
		}
		prefixes := firstGroups(`"(touchline_\w*_)"`, code)
		for _, name := range firstGroups(`\.(?:Counter|Gauge)\("([a-z]\w*)"`, code) {
			if !strings.HasPrefix(name, "touchline_") && len(prefixes) > 0 {
				found := false
				for _, prefix := range prefixes {
					found = found || documented(prefix, name)
				}
				assert.True(t, found, "%s: %s", path, name)
			}
		}
	}
	require.Greater(t, metrics, 80)
}

// TestFieldNamesTests: each test that the table of inputs from the field names exists.
func TestFieldNamesTests(t *testing.T) {
	defined := map[string]bool{}
	for _, code := range goFiles(t, func(name string) bool { return strings.HasSuffix(name, "_test.go") }) {
		for _, name := range firstGroups(`(?m)^func ((?:Test|Fuzz)\w+)\(`, code) {
			defined[name] = true
		}
	}
	named := firstGroups(`\b((?:Test|Fuzz)[A-Z]\w+)`, read(t, "docs", "field.md"))
	require.Greater(t, len(named), 80)
	for _, name := range named {
		assert.True(t, defined[name], name)
	}
}

// TestFuzzTargetsAreListed compares the table of fuzz targets with the tests.
func TestFuzzTargetsAreListed(t *testing.T) {
	var defined, named []string
	for path, code := range goFiles(t, func(name string) bool { return strings.HasSuffix(name, "_test.go") }) {
		folder := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), filepath.Clean(moduleRoot)+"/"))
		for _, name := range firstGroups(`(?m)^func (Fuzz\w+)\(`, code) {
			defined = append(defined, folder+": "+name)
		}
	}
	_, section, _ := strings.Cut(read(t, "docs", "architecture.md"), "\n## Fuzz targets\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, m := range regexp.MustCompile("`([\\w/-]+)`: (Fuzz\\w+(?:, Fuzz\\w+)*)").FindAllStringSubmatch(section, -1) {
		for name := range strings.SplitSeq(m[2], ", ") {
			named = append(named, m[1]+": "+name)
		}
	}
	require.Greater(t, len(defined), 80)
	require.ElementsMatch(t, defined, named)
}

// TestErrorsAreThoseOfTheProgram looks for each text of the table of errors in the code, in pieces between its placeholders.
func TestErrorsAreThoseOfTheProgram(t *testing.T) {
	_, section, _ := strings.Cut(read(t, "docs", "models.md"), "\n## Errors\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var code strings.Builder
	for _, text := range sources(t) {
		code.WriteString(strings.ReplaceAll(text, `" + ManifestName + "`, "manifest.json"))
	}
	pieces := 0
	for _, cell := range firstGroups(`(?m)^\| (`+"`.*?`"+`) \|`, section) {
		for _, text := range firstGroups("`([^`]*)`", cell) {
			for _, piece := range regexp.MustCompile(`\b[NM]\b|\bDIR\b|\.\.\.|"NAME"|: `).Split(text, -1) {
				if piece = strings.Trim(piece, " ,:"); len(piece) >= 5 {
					pieces++
					assert.Contains(t, code.String(), piece, "no error has this text")
				}
			}
		}
	}
	require.Greater(t, pieces, 20)
}

// settingsTable returns the table of the settings that change at run time.
func settingsTable() string {
	var b strings.Builder
	b.WriteString("| setting | values | in the settings file | what it sets |\n|---|---|---|---|\n")
	for _, s := range settings.Table() {
		values := map[string]string{settings.Switch: "true or false", settings.Text: "text", settings.List: "list", settings.Choice: "the name of a preset"}[s.Kind]
		if n := len(s.Options); n > 0 {
			values = strings.Join(s.Options[:n-1], ", ") + " or " + s.Options[n-1]
		}
		if s.Min != nil {
			values = fmt.Sprintf("%s to %s", strconv.FormatFloat(*s.Min, 'f', -1, 64), strconv.FormatFloat(*s.Max, 'f', -1, 64))
			if s.Unit != "" {
				values += " " + s.Unit
			}
		}
		path := ""
		if s.Path != "" {
			path = "`" + s.Path + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", s.Name, values, path, s.About)
	}
	return b.String()
}

// TestSettingsTable compares the table of docs/tuning.md with the program's. With -update it writes the program's.
func TestSettingsTable(t *testing.T) {
	const begin, end = "<!-- settings begin -->\n", "<!-- settings end -->"
	text := read(t, "docs", "tuning.md")
	before, rest, _ := strings.Cut(text, begin)
	table, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	if *update {
		require.NoError(t, os.WriteFile("tuning.md", []byte(before+begin+settingsTable()+end+after), 0o600))
		return
	}
	require.Equal(t, settingsTable(), table, "run: go test ./docs -run TestSettingsTable -update")
}

// TestLinks follows the relative links of the documents, fragments included.
func TestLinks(t *testing.T) {
	docs, err := filepath.Glob(filepath.Join(moduleRoot, "docs", "*.md"))
	require.NoError(t, err)
	for _, name := range []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "deploy/README.md"} {
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
