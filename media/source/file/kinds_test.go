//go:build integration

package file_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/source"
	"touchline/media/source/file"
)

// maker is the ffmpeg that makes the clips of the tests; another version may play them.
func maker() string {
	if _, err := os.Stat("/usr/bin/ffmpeg"); err == nil {
		return "/usr/bin/ffmpeg"
	}
	return "ffmpeg"
}

// ffmpeg runs the maker in a folder.
func ffmpeg(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), maker(), append([]string{"-v", "error", "-nostdin", "-y"}, args...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}

// turn copies an MP4 file with its picture turned, counterclockwise: ffmpeg's option for it differs between 5 and 6.
func turn(t *testing.T, dir, from, angle, to string) {
	t.Helper()
	parts := map[string][4]int32{"90": {0, -1, 1, 0}, "180": {-1, 0, 0, -1}, "270": {0, 1, -1, 0}}[angle]
	clip, err := os.ReadFile(filepath.Join(dir, from))
	require.NoError(t, err)
	header := bytes.Index(clip, []byte("tkhd")) // of the first track, the picture's
	require.Positive(t, header)
	for i, place := range []int{0, 4, 12, 16} { // in a matrix of three columns
		binary.BigEndian.PutUint32(clip[header+44+place:], uint32(parts[i]<<16))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, to), clip, 0o600))
}

// pixel returns the colour at a place of the first picture, in parts of its size.
func pixel(t *testing.T, f media.EncodedFrame, x, y float64) [3]int {
	t.Helper()
	format := map[media.Codec]string{media.H264: "h264", media.H265: "hevc"}[f.Codec]
	crop := "crop=2:2:iw*" + strconv.FormatFloat(x, 'f', 3, 64) + ":ih*" + strconv.FormatFloat(y, 'f', 3, 64)
	cmd := exec.CommandContext(t.Context(), maker(), "-v", "error", "-f", format, "-i", "pipe:0", "-frames:v", "1",
		"-vf", "scale=in_range=tv:out_range=pc,format=rgb24,"+crop, "-f", "rawvideo", "pipe:1")
	cmd.Stdin = bytes.NewReader(f.Data)
	out, err := cmd.Output()
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(out), 3)
	return [3]int{int(out[0]), int(out[1]), int(out[2])}
}

// corners is a picture with red, green, blue and white quarters.
const corners = "color=red:s=160x90:r=25:d=3[a];color=0x00ff00:s=160x90:r=25:d=3[b];color=blue:s=160x90:r=25:d=3[c];" +
	"color=white:s=160x90:r=25:d=3[d];[a][b]hstack[x];[c][d]hstack[y];[x][y]vstack,format=yuv420p"

func requireColour(t *testing.T, want, got [3]int) {
	t.Helper()
	for i := range want {
		require.InDelta(t, want[i], got[i], 24, "want %v, got %v", want, got)
	}
}

var (
	red   = [3]int{255, 0, 0}
	green = [3]int{0, 255, 0}
	blue  = [3]int{0, 0, 255}
	white = [3]int{255, 255, 255}
)

// hdr returns the arguments for a picture, red on the left and white on the right, with a transfer curve.
func hdr(curve string) []string {
	return []string{
		"-f", "lavfi", "-i", "color=red:s=160x180:r=10:d=2", "-f", "lavfi", "-i", "color=white:s=160x180:r=10:d=2",
		"-filter_complex", "[0][1]hstack,format=gbrp,zscale=tin=709:min=gbr:pin=709:rin=pc:t=linear:m=gbr:p=709:npl=203,format=gbrpf32le," +
			"zscale=tin=linear:min=gbr:pin=709:p=2020:t=" + curve + ":m=2020_ncl:r=tv:npl=203,format=yuv420p10le",
		"-c:v", "libx265", "-preset", "ultrafast", "-x265-params",
		"log-level=none:pools=1:colorprim=bt2020:transfer=" + curve + ":colormatrix=bt2020nc",
		"-color_primaries", "bt2020", "-color_trc", curve, "-colorspace", "bt2020nc", "-tag:v", "hvc1",
	}
}

// TestPicturesAsTheyAreMeant: right way up, right shape, right colours, the right track.
func TestPicturesAsTheyAreMeant(t *testing.T) {
	dir := t.TempDir()
	source4 := append([]string{"-f", "lavfi", "-i", corners}, x264...)
	ffmpeg(t, dir, append(source4, "plain.mp4")...)
	ffmpeg(t, dir, "-f", "lavfi", "-i", "color=blue:s=200x200", "-frames:v", "1", "cover.jpg")
	for _, angle := range []string{"90", "180", "270"} {
		turn(t, dir, "plain.mp4", angle, "turned"+angle+".mp4")
	}
	ffmpeg(t, dir, append(source4, "-vf", "setsar=2", "wide.mp4")...)
	ffmpeg(t, dir, append(hdr("arib-std-b67"), "hlg.mp4")...)
	ffmpeg(t, dir, append(hdr("smpte2084"), "pq.mp4")...)
	ffmpeg(t, dir, "-i", "pq.mp4", "-c", "copy", "-bsf:v", "hevc_metadata=colour_primaries=2", "unnamed.ts")
	ffmpeg(t, dir, "-i", "cover.jpg", "-i", "plain.mp4", "-map", "0", "-map", "1", "-c", "copy", "-disposition:v:0", "attached_pic", "cover.mkv")
	ffmpeg(t, dir, "-i", "cover.jpg", "-i", "plain.mp4", "-map", "0", "-map", "1", "-c", "copy", "-disposition:v:0", "attached_pic", "cover.mp4")
	ffmpeg(t, dir, "-f", "lavfi", "-i", "color=blue:s=640x360:r=25:d=3", "-i", "plain.mp4", "-map", "0:v", "-map", "1:v", "-c:v", "libx264",
		"-pix_fmt", "yuv420p", "-g", "25", "-disposition:v:0", "0", "-disposition:v:1", "default", "second.mkv")
	tests := []struct {
		name   string
		w, h   int
		places map[[2]float64][3]int
	}{
		{"plain.mp4", 320, 180, map[[2]float64][3]int{{.2, .2}: red, {.8, .2}: green, {.2, .8}: blue, {.8, .8}: white}},
		{"turned270.mp4", 180, 320, map[[2]float64][3]int{{.2, .2}: blue, {.8, .2}: red, {.2, .8}: white, {.8, .8}: green}},
		{"turned180.mp4", 320, 180, map[[2]float64][3]int{{.2, .2}: white, {.8, .2}: blue, {.2, .8}: green, {.8, .8}: red}},
		{"turned90.mp4", 180, 320, map[[2]float64][3]int{{.2, .2}: green, {.8, .2}: white, {.2, .8}: red, {.8, .8}: blue}},
		{"wide.mp4", 640, 180, map[[2]float64][3]int{{.2, .2}: red, {.8, .8}: white}},
		{"hlg.mp4", 320, 180, map[[2]float64][3]int{{.2, .5}: red, {.8, .5}: white}},
		{"pq.mp4", 320, 180, map[[2]float64][3]int{{.2, .5}: red, {.8, .5}: white}},
		{"unnamed.ts", 320, 180, map[[2]float64][3]int{{.2, .5}: red, {.8, .5}: white}},
		{"cover.mkv", 320, 180, map[[2]float64][3]int{{.2, .2}: red, {.8, .8}: white}},
		{"cover.mp4", 320, 180, map[[2]float64][3]int{{.2, .2}: red, {.8, .8}: white}},
		{"second.mkv", 320, 180, map[[2]float64][3]int{{.2, .2}: red, {.8, .8}: white}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			frames, _, err := play(t, filepath.Join(dir, tt.name), 3, nil)
			require.ErrorIs(t, err, errEnough)
			require.Equal(t, [2]int{tt.w, tt.h}, [2]int{frames[0].Width, frames[0].Height})
			for at, want := range tt.places {
				requireColour(t, want, pixel(t, frames[0], at[0], at[1]))
			}
		})
	}
}

// TestInterlaced: a transcoded picture whose fields are of two times is not combed.
func TestInterlaced(t *testing.T) {
	dir := t.TempDir()
	ffmpeg(t, dir, "-f", "lavfi", "-i", "color=black:s=320x180:r=50:d=3,geq=lum='if(lt(mod(X+16*N\\,160)\\,80)\\,235\\,16)':cb=128:cr=128,tinterlace=interleave_top",
		"-c:v", "mpeg2video", "-flags", "+ildct+ilme", "-q:v", "2", "fields.mpg")
	frames, _, err := play(t, filepath.Join(dir, "fields.mpg"), 10, nil)
	require.ErrorIs(t, err, errEnough)
	var stream []byte
	for _, f := range frames {
		stream = append(stream, f.Data...)
	}
	cmd := exec.CommandContext(t.Context(), maker(), "-v", "error", "-f", "h264", "-i", "pipe:0", "-f", "rawvideo", "-pix_fmt", "gray", "pipe:1")
	cmd.Stdin = bytes.NewReader(stream)
	out, err := cmd.Output()
	require.NoError(t, err)
	combed := 0
	picture := out[5*320*180:][:320*180]
	for i := range picture[2*320:] {
		if a, b, c := int(picture[i]), int(picture[i+320]), int(picture[i+640]); (a-b)*(c-b) > 80*80 {
			combed++
		}
	}
	require.Less(t, combed, 320*180/100)
}

// TestSoundThatCannotBeDecoded: the picture is played without it.
func TestSoundThatCannotBeDecoded(t *testing.T) {
	dir := t.TempDir()
	ffmpeg(t, dir, append(append([]string{"-f", "lavfi", "-i", corners, "-f", "lavfi", "-i", "sine=d=3"}, x264...), "-c:a", "pcm_s16le", "sound.mov")...)
	b, err := os.ReadFile(filepath.Join(dir, "sound.mov"))
	require.NoError(t, err)
	unknown := bytes.Replace(b, []byte("sowt"), []byte("apac"), 1)
	require.NotEqual(t, b, unknown)
	path := filepath.Join(dir, "unknown.mov")
	require.NoError(t, os.WriteFile(path, unknown, 0o600))
	_, _, err = play(t, path, 10, nil)
	require.ErrorIs(t, err, errEnough)
}

// TestFilesThatAreNoFilms: stills and clips of a few pictures are played without a program for each, the first picture of a file
// comes at once whatever its key frames, and a file waits for its next picture.
func TestFilesThatAreNoFilms(t *testing.T) {
	dir := t.TempDir()
	ffmpeg(t, dir, "-f", "lavfi", "-i", "testsrc2=s=320x180", "-frames:v", "1", "still.png")
	ffmpeg(t, dir, "-i", "still.png", "still.jpg")
	ffmpeg(t, dir, "-i", "still.png", "still.webp")
	ffmpeg(t, dir, "-i", "still.png", "name-%03d.bmp")
	require.NoError(t, os.Rename(filepath.Join(dir, "name-001.bmp"), filepath.Join(dir, "name-%03d.bmp")))
	ffmpeg(t, dir, "-f", "lavfi", "-i", "color=red:s=2x2,format=rgb24,crop=1:1", "-frames:v", "1", "dot.gif")
	ffmpeg(t, dir, append(append([]string{"-f", "lavfi", "-i", "testsrc2=s=320x180:r=25"}, x264...), "-frames:v", "1", "one.mp4")...)
	ffmpeg(t, dir, append(append([]string{"-f", "lavfi", "-i", "testsrc2=s=320x180:r=25"}, x264...), "-frames:v", "2", "two.mp4")...)
	ffmpeg(t, dir, append(append([]string{"-f", "lavfi", "-i", "testsrc2=s=320x180:r=1/3:d=12"}, x264...), "slides.mp4")...)
	ffmpeg(t, dir, "-f", "lavfi", "-i", "testsrc2=s=320x180:r=25:d=6", "-c:v", "libx264", "-preset", "ultrafast", "-bf", "0", "-g", "250",
		"-sc_threshold", "0", "-pix_fmt", "yuv420p", "long-gop.mp4")
	ffmpeg(t, dir, "-f", "lavfi", "-i", "testsrc2=s=320x180:r=25:d=6", "-c:v", "libx264", "-preset", "ultrafast", "-bf", "2", "-g", "25",
		"-pix_fmt", "yuv420p", "b-frames.avi")
	ffmpeg(t, dir, "-i", "b-frames.avi", "-c", "copy", "b-frames.h264")
	ffmpeg(t, dir, append(append([]string{"-f", "lavfi", "-i", "testsrc2=s=320x180:r=25:d=3"}, x264...), "whole.flv")...)
	whole, err := os.ReadFile(filepath.Join(dir, "whole.flv"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cut.flv"), whole[:len(whole)*9/10], 0o600))
	for _, tt := range []struct {
		name        string
		keys, least int // key frames and pictures in 4 s
		most        int
	}{
		{"still.png", 3, 3, 5},
		{"still.jpg", 3, 3, 5},
		{"still.webp", 3, 3, 5},
		{"name-%03d.bmp", 3, 3, 5},
		{"dot.gif", 3, 3, 5},
		{"one.mp4", 3, 3, 5},
		{"two.mp4", 3, 6, 10},
		{"slides.mp4", 3, 3, 6},
		{"long-gop.mp4", 3, 50, 110},
		{"b-frames.avi", 3, 50, 110},
		{"b-frames.h264", 3, 50, 110},
		{"cut.flv", 3, 50, 110},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a, err := source.ParseAddress(filepath.Join(dir, tt.name))
			require.NoError(t, err)
			var starts atomic.Int64
			clip, err := file.New(file.Options{
				Access: source.Access{Address: a, Allow: source.AllowEverything(), Now: time.Now},
				Loop:   true,
			})
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var frames []media.EncodedFrame
			keys := 0
			_ = clip.Pull(ctx, source.Sink{Started: func() { starts.Add(1) }, Frame: func(f media.EncodedFrame) {
				if frames = append(frames, f); f.KeyFrame {
					keys++
				}
				if f.PTS >= 3*time.Second {
					stop()
				}
			}})
			require.GreaterOrEqual(t, keys, tt.keys)
			require.GreaterOrEqual(t, len(frames), tt.least)
			require.LessOrEqual(t, len(frames), tt.most)
			require.LessOrEqual(t, starts.Load(), int64(2))
			for i, f := range frames[1:] {
				require.Greater(t, f.PTS, frames[i].PTS)
				require.Zero(t, f.Epoch)
			}
		})
	}
}

// TestOpenGOP: pictures at which a decoder can start are key frames, also in a recording that begins within a group and has no IDR picture.
func TestOpenGOP(t *testing.T) {
	dir := t.TempDir()
	ffmpeg(t, dir, "-f", "lavfi", "-i", "testsrc2=s=320x180:r=25:d=6", "-c:v", "libx264", "-preset", "ultrafast", "-bf", "2", "-g", "25",
		"-x264-params", "open-gop=1:b-adapt=0", "-pix_fmt", "yuv420p", "whole.ts")
	b, err := os.ReadFile(filepath.Join(dir, "whole.ts"))
	require.NoError(t, err)
	const packet = 188
	cut := slices.Concat(b[:3*packet], b[len(b)/packet/3*packet:]) // the tables, and two thirds
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cut.ts"), cut, 0o600))
	for name, least := range map[string]int{"whole.ts": 3, "cut.ts": 2} {
		frames, _, err := play(t, filepath.Join(dir, name), 75, nil)
		require.ErrorIs(t, err, errEnough)
		keys := 0
		for _, f := range frames {
			if f.KeyFrame {
				keys++
			}
		}
		require.GreaterOrEqual(t, keys, least, name)
	}
}
