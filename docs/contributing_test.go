package docs_test

import (
	"encoding/json"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExamplesCompile builds each Go example of CONTRIBUTING.md as a package of this module, which exists in a build overlay only.
func TestExamplesCompile(t *testing.T) {
	root, err := filepath.Abs(moduleRoot)
	require.NoError(t, err)
	blocks := firstGroups("(?ms)^```go\n(.*?)^```$", read(t, "CONTRIBUTING.md"))
	require.Len(t, blocks, 4, "a source, an engine, a setting, a metric")

	dir := t.TempDir()
	overlay := map[string]map[string]string{"Replace": {}}
	build := []string{"build", "-overlay", filepath.Join(dir, "overlay.json")}
	for i, block := range blocks {
		formatted, err := format.Source([]byte(block))
		require.NoError(t, err)
		require.Equal(t, string(formatted), block, "gofmt")
		name := "example" + strconv.Itoa(i)
		file := filepath.Join(dir, name+".go")
		require.NoError(t, os.WriteFile(file, []byte(block), 0o600))
		overlay["Replace"][filepath.Join(root, "internal", name, "example.go")] = file
		build = append(build, "./internal/"+name)
	}
	text, err := json.Marshal(overlay)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o600))

	cmd := exec.CommandContext(t.Context(), "go", build...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
