//go:build integration

package file_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFFmpeg8 runs the tests of this package that depend on ffmpeg's options and messages with the version of scripts/ffmpeg8.txt.
func TestFFmpeg8(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(os.Getenv("TOUCHLINE_BIN"), "ffmpeg8")
	if _, err := os.Stat(filepath.Join(dir, "ffprobe")); err != nil {
		t.Skip("no ffmpeg 8 here: scripts/setup.sh test installs it")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^Test(PicturesAsTheyAreMeant|SoundThatCannotBeDecoded|FilesThatAreNoFilms|ReasonsOfFiles|HLS)$")
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "TOUCHLINE_BIN=")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}
