// Package scripts_test checks that what scripts, images and workflows download is fixed by a digest, and how long a start waits for it.
package scripts_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
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
	listed      = regexp.MustCompile(`",\s*"`) // between the words of a command in Python or Go
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
	commands := texts(t, "scripts/*.sh", "deploy/Dockerfile*", "Makefile", ".ci/run", ".github/workflows/*.yml")
	programs := texts(t, "*/*.py", "worlds/*/*.py", "*/*/testdata/*.py", "models/sight/pack/fetch.go")
	for _, text := range append(commands, programs...) {
		text = listed.ReplaceAllString(text, " ")
		assert.NotContains(t, text, "urllib")
		for line := range strings.Lines(text) {
			if pip.MatchString(line) {
				assert.Regexp(t, `--require-hashes|--only-binary=:all:", p\.Name`, line) // a wheel runs no code before package pack checks it
			}
			assert.NotRegexp(t, `\bnpm (install|i|exec)\b|\bnpx |\b(curl|wget) .*https://`, line)
			for _, m := range module.FindAllStringSubmatch(line, -1) {
				assert.Regexp(t, exact, m[1], line)
			}
		}
		if strings.Contains(text, "npm pack") {
			assert.Regexp(t, `npm pack .*\n.*sha256sum -c|(?s)npm pack .*(not right\(|p\.SHA256)`, text)
		}
		if strings.Contains(text, "/mediamtx@") {
			assert.Regexp(t, `(?m)^sum=h1:`, text)
		}
	}
}

// TestPhotosRunNoCode fetches photos with the clients of the registries. A source archive's setup.py does not run, and an archive with
// another sum is not opened.
func TestPhotosRunNoCode(t *testing.T) {
	for _, words := range [][]string{{"python3", "-m", "pip", "--version"}, {"npm", "--version"}} {
		if err := exec.Command(words[0], words[1:]...).Run(); err != nil {
			t.Skipf("%s: %v; make setup-test installs it", strings.Join(words, " "), err)
		}
	}
	script, err := os.ReadFile("../inference/sight/testdata/photos.py")
	require.NoError(t, err)
	photo, ran := []byte("a photo"), filepath.Join(t.TempDir(), "ran")
	source := archive(t, map[string][]byte{
		"album-1.0/photo.jpg": photo,
		"album-1.0/setup.py":  []byte("open(" + strconv.Quote(ran) + ", 'w')\nimport setuptools\nsetuptools.setup(name='album', version='1.0')\n"),
	})
	links := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(links, "album-1.0.tar.gz"), source, 0o600))
	packed := archive(t, map[string][]byte{
		"package/photo.jpg": photo, "package/package.json": []byte(`{"name": "album", "version": "1.0.0"}`),
	})
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/album.tgz" {
			_, _ = w.Write(packed)
			return
		}
		_, _ = fmt.Fprintf(w, `{"name": "album", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {"name": "album", "version": "1.0.0",
			"dist": {"tarball": "http://%s/album.tgz"}}}}`, r.Host)
	}))
	defer registry.Close()

	tests := []struct {
		name, entry, path string
		archive           []byte
	}{
		{"pip", `"registry": "PyPI", "name": "album", "version": "1.0", "source": true`, "album-1.0/photo.jpg", source},
		{"npm", `"registry": "npm", "name": "album", "version": "1.0.0"`, "package/photo.jpg", packed},
	}
	for _, tt := range tests {
		for _, other := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, another sum: %v", tt.name, other), func(t *testing.T) {
				sum := fmt.Sprintf("%x", sha256.Sum256(tt.archive))
				if other {
					sum = strings.Repeat("0", len(sum))
				}
				dir := t.TempDir()
				require.NoError(t, os.WriteFile(filepath.Join(dir, "photos.py"), script, 0o600))
				require.NoError(t, os.WriteFile(filepath.Join(dir, "photos.json"), fmt.Appendf(nil,
					`{"packages": [{%s, "sha256": "%s", "photos": [{"path": "%s", "sha256": "%x"}]}]}`,
					tt.entry, sum, tt.path, sha256.Sum256(photo)), 0o600))
				cmd := exec.Command("python3", filepath.Join(dir, "photos.py"), filepath.Join(dir, "to"))
				cmd.Env = append(os.Environ(), "PIP_NO_INDEX=1", "PIP_FIND_LINKS="+links, "npm_config_registry="+registry.URL,
					"npm_config_cache="+t.TempDir())
				out, err := cmd.CombinedOutput()
				assert.NoFileExists(t, ran, "setup.py ran")
				got, _ := os.ReadFile(filepath.Join(dir, "to/album", tt.path)) // nil if it is not there
				if other {
					require.Error(t, err)
					assert.Contains(t, string(out), sum, "the sum that was expected")
					assert.Nil(t, got)
					return
				}
				require.NoError(t, err, string(out))
				assert.Equal(t, photo, got)
			})
		}
	}
}

// archive packs files as npm and pip do.
func archive(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	w := tar.NewWriter(z)
	for name, content := range files {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Mode: 0o600}))
		_, err := w.Write(content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, z.Close())
	return packed.Bytes()
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
