//go:build integration

package scripts_test

import (
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestVulnWithoutADatabase: an answer that nobody gave is no clean one.
func TestVulnWithoutADatabase(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "./vuln.sh", "file://"+filepath.Join(t.TempDir(), "nothing")).CombinedOutput()
	failed, ok := errors.AsType[*exec.ExitError](err)
	require.True(t, ok, "%v: %s", err, out)
	require.Equal(t, 3, failed.ExitCode(), string(out))
	require.Contains(t, string(out), "vuln: no database at file://")
}

// TestLibrariesOfTheSBOM: the packages that are not Go's are listed with their digests.
func TestLibrariesOfTheSBOM(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "./libraries.py").Output()
	require.NoError(t, err)
	var list struct {
		BOMFormat  string
		Components []struct {
			PURL   string
			Hashes []struct{ Content string }
		}
	}
	require.NoError(t, json.Unmarshal(out, &list))
	require.Equal(t, "CycloneDX", list.BOMFormat)
	named := map[string]bool{}
	for _, c := range list.Components {
		named[c.PURL] = true
		require.NotEmpty(t, c.Hashes, c.PURL)
		for _, h := range c.Hashes {
			require.Len(t, h.Content, 64, c.PURL)
		}
	}
	require.Len(t, named, len(lines(t, "scripts/runtime.txt"))+2, "and the two packages of sight")
}
