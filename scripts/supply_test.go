// Package scripts_test checks that what scripts, images and workflows download is fixed by a digest, and how long a start waits for it.
package scripts_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// texts are the files that match the patterns, below the module's root: without comments, and with lines that a backslash joins in one.
func texts(t *testing.T, patterns ...string) []string {
	t.Helper()
	comments, joined := regexp.MustCompile(`(?m)^\s*#.*\n`), regexp.MustCompile(`\\\n\s*`)
	var all []string
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join("..", pattern))
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			all = append(all, joined.ReplaceAllString(comments.ReplaceAllString(string(text), ""), ""))
		}
	}
	return all
}

// lines are the lines of these files, without their indent.
func lines(t *testing.T, patterns ...string) []string {
	t.Helper()
	var all []string
	for line := range strings.Lines(strings.Join(texts(t, patterns...), "")) {
		all = append(all, strings.TrimSpace(line))
	}
	return all
}

var (
	imageDigest = regexp.MustCompile(`@sha256:[0-9a-f]{64}\b`)
	from        = regexp.MustCompile(`^FROM (\S+)(?: AS (\S+))?$`)
	image       = regexp.MustCompile(`^image: (\S+)`)
	action      = regexp.MustCompile(`^- uses: \S+@[0-9a-f]{40}\b`)
	requirement = regexp.MustCompile(`^\S+==\S+( ;.*)?( +--hash=sha256:[0-9a-f]{64})+$`)
	pip         = regexp.MustCompile(`\bpip"? (install|download) `)
	module      = regexp.MustCompile(`[\w.-]+\.\w+/\S+@([^\s")]+)`)
	exact       = regexp.MustCompile(`^(v\d+\.\d+\.\d+\S*|\$\S+)$`)
)

func TestImagesHaveDigests(t *testing.T) {
	stages := map[string]bool{}
	for _, line := range lines(t, "deploy/Dockerfile*") {
		if m := from.FindStringSubmatch(line); m != nil {
			assert.True(t, stages[m[1]] || imageDigest.MatchString(m[1]), line)
			stages[m[2]] = true
		}
		assert.NotRegexp(t, `--from=\S+[:/]`, line)
	}
	require.NotEmpty(t, stages)
	for _, line := range lines(t, "deploy/compose.yaml") {
		if m := image.FindStringSubmatch(line); m != nil && !strings.HasPrefix(m[1], "touchline:") {
			assert.Regexp(t, imageDigest, line)
		}
	}
	for _, line := range lines(t, ".github/workflows/*.yml") {
		if strings.Contains(line, "uses:") {
			assert.Regexp(t, action, line)
		}
	}
}

// TestPackagesHaveDigests looks at each command of a package client. Go modules have exact versions: the go command checks their sums.
func TestPackagesHaveDigests(t *testing.T) {
	for _, line := range lines(t, "scripts/*.txt") {
		assert.Regexp(t, requirement, line)
	}
	for _, text := range texts(t, "scripts/*.sh", "deploy/Dockerfile*", "Makefile") {
		for line := range strings.Lines(text) {
			if pip.MatchString(line) {
				assert.Contains(t, line, "--require-hashes")
			}
			assert.NotRegexp(t, `\bnpm (install|i|exec)\b|\bnpx |\b(curl|wget) .*https://`, line)
			for _, m := range module.FindAllStringSubmatch(line, -1) {
				assert.Regexp(t, exact, m[1], line)
			}
		}
		if strings.Contains(text, "npm pack") {
			assert.Regexp(t, `npm pack .*\n.*sha256sum -c`, text)
		}
		if strings.Contains(text, "/mediamtx@") {
			assert.Regexp(t, `(?m)^sum=h1:`, text)
		}
	}
}

func TestLockFilesHaveDigests(t *testing.T) {
	for _, file := range []string{"agent/console/web", "internal/e2e/stockfront/web"} {
		text, err := os.ReadFile(filepath.Join("..", file, "package-lock.json"))
		require.NoError(t, err)
		var lock struct {
			Packages map[string]struct {
				Integrity string
				Link      bool
			}
		}
		require.NoError(t, json.Unmarshal(text, &lock))
		require.NotEmpty(t, lock.Packages)
		for name, p := range lock.Packages {
			assert.True(t, name == "" || p.Link || strings.HasPrefix(p.Integrity, "sha512-"), "%s: %s", file, name)
		}
	}
}
