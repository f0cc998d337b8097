//go:build integration

package worlds_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/worlds"
)

// ffmpeg runs the command line tool and returns what it wrote to its standard output.
func ffmpeg(tb testing.TB, in []byte, args string) []byte {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), "ffmpeg",
		append([]string{"-hide_banner", "-loglevel", "error", "-y"}, strings.Fields(args)...)...)
	cmd.Stdin = bytes.NewReader(in)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(tb, cmd.Run(), "ffmpeg %s: %s", args, errs.String())
	return out.Bytes()
}

func TestCounterSurvivesEncoders(t *testing.T) {
	tests := []struct {
		name          string
		width, height int
		encoder       string
	}{
		{"VP8 360p", 640, 360, "-c:v libvpx -b:v 150k -deadline realtime -cpu-used 8"},
		{"VP8 720p", 1280, 720, "-c:v libvpx -b:v 400k -deadline realtime -cpu-used 8"},
		{"H264 360p", 640, 360, "-c:v libx264 -b:v 120k -maxrate 120k -bufsize 60k -preset ultrafast -tune zerolatency"},
		{"H264 720p", 1280, 720, "-c:v libx264 -b:v 400k -maxrate 400k -bufsize 200k -preset ultrafast -tune zerolatency"},
		{"VP9 360p", 640, 360, "-c:v libvpx-vp9 -b:v 120k -deadline realtime -cpu-used 8"},
		{"AV1 360p", 640, 360, "-c:v libaom-av1 -usage realtime -cpu-used 8 -b:v 120k"},
	}
	const frames = 24
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := world(t, worlds.Options{Seed: 2, Width: tt.width, Height: tt.height, FPS: 15, Counter: true})
			var raw []byte
			var want []uint32
			rng := rand.New(rand.NewPCG(1, 2))
			for n := range uint32(frames) {
				pic := w.Frame(n + 90)
				number := n + 90
				if n%2 == 1 {
					number = rng.Uint32() & worlds.CounterMax
					worlds.WriteCounter(pic, tt.width, tt.height, number)
				}
				raw = append(raw, pic...)
				want = append(want, number)
			}
			file := filepath.Join(t.TempDir(), "clip.mkv")
			ffmpeg(t, raw, fmt.Sprintf("-f rawvideo -pix_fmt yuv420p -s %dx%d -r 15 -i - %s -g 30 %s",
				tt.width, tt.height, tt.encoder, file))

			for _, wide := range []int{tt.width, 448} {
				high := wide * tt.height / tt.width
				out := ffmpeg(t, nil, fmt.Sprintf("-i %s -vf scale=%d:%d:flags=area -pix_fmt rgb24 -f rawvideo -",
					file, wide, high))
				require.Len(t, out, frames*wide*high*3)
				for i, number := range want {
					f := media.VideoFrame{Width: wide, Height: high, Pix: out[i*wide*high*3 : (i+1)*wide*high*3]}
					got, ok := worlds.ReadCounter(f)
					require.True(t, ok, "frame %d at %dx%d does not read", i, wide, high)
					require.Equal(t, number, got, "frame %d at %dx%d", i, wide, high)
				}
			}
		})
	}
}
