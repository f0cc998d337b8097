//go:build integration

package film_test

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/worlds"
	"touchline/worlds/film"
)

// TestWorld writes a film, and reads back its pictures and their records.
func TestWorld(t *testing.T) {
	dir := t.TempDir()
	video, truth := filepath.Join(dir, "out.mp4"), filepath.Join(dir, "truth.jsonl")
	w := film.Command{World: worlds.Match, Seed: 7, Seconds: 4, Width: 320, Height: 180, FPS: 15, BitRate: 400_000, Video: video, Truth: truth}
	require.NoError(t, w.Run(t.Context()))

	out, err := exec.CommandContext(t.Context(), "ffprobe", "-v", "error", "-count_frames", "-select_streams", "v",
		"-show_entries", "stream=codec_name,width,height,r_frame_rate,nb_read_frames", "-of", "csv=p=0", video).Output()
	require.NoError(t, err)
	require.Equal(t, "h264,320,180,15/1,60", strings.TrimSpace(string(out)))

	f, err := os.Open(truth)
	require.NoError(t, err)
	defer f.Close()
	kinds := map[string]int{}
	n := uint32(0)
	for s := bufio.NewScanner(f); s.Scan(); n++ {
		var x worlds.Truth
		require.NoError(t, json.Unmarshal(s.Bytes(), &x))
		require.Equal(t, n, x.Frame)
		for _, e := range x.Events {
			kinds[e.Kind()]++
		}
	}
	require.Equal(t, uint32(60), n)
	require.Equal(t, 1, kinds["kick_off"])
}
