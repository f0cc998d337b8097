//go:build integration

package audioapi_test

import (
	"context"
	"iter"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/audioapi"
	"touchline/inference"
	"touchline/inference/live/livetest"
	"touchline/media/codec/codectest"
)

// recording makes a file of 3 s of noise and tones with ffmpeg.
func recording(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	args = append([]string{"-v", "error", "-f", "lavfi", "-i", "sine=440:d=3,volume=8dB"}, args...)
	out, err := exec.CommandContext(t.Context(), "ffmpeg", append(args, file)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	return b
}

// meter hears how loud a sound is.
type meter struct{ *livetest.Recognizer }

func (meter) Transcribe(_ context.Context, sound []float32, _ inference.Hearing) iter.Seq2[inference.Transcript, error] {
	return func(yield func(inference.Transcript, error) bool) {
		sum := 0.0
		for _, v := range sound {
			sum += float64(v * v)
		}
		text := "quiet"
		if sum > 0.001*float64(len(sound)) {
			text = "loud"
		}
		yield(inference.Transcript{Text: text, Final: true}, nil)
	}
}

// TestCodecs: recordings of every usual format are heard whole; others are refused with a reason.
func TestCodecs(t *testing.T) {
	r := meter{&livetest.Recognizer{}}
	srv, _ := transcribe(t, r, func(o *audioapi.TranscriberOptions) {
		o.Decode, o.Config.MaxDuration = audioapi.NewDecoder(codectest.Program()), 20*time.Second
	})
	seconds := regexp.MustCompile(`"duration":([0-9.]+)`)
	fields := map[string]string{"model": "test", "response_format": "verbose_json"}
	for name, args := range map[string][]string{
		"a.mp3": {"-ac", "2"}, "a.m4a": {}, "a.ogg": {"-c:a", "libopus"}, "v.ogg": {"-c:a", "libvorbis"}, "a.flac": {"-ar", "96000"}, "a.webm": {"-c:a", "libopus"},
		"a.mp4": {"-f", "lavfi", "-i", "testsrc=d=3:s=64x64", "-c:v", "mpeg4"}, "a.aac": {}, "a.aiff": {}, "a.mka": {"-ac", "6", "-c:a", "flac"},
		"a.wma": {}, "a.au": {}, "a.ac3": {}, "a.eac3": {}, "ulaw.wav": {"-c:a", "pcm_mulaw", "-ar", "8000"},
		"alaw.wav": {"-c:a", "pcm_alaw", "-ar", "8000"}, "ms.wav": {"-c:a", "adpcm_ms"}, "ima.wav": {"-c:a", "adpcm_ima_wav"},
		"mp3.wav": {"-c:a", "libmp3lame"}, "gsm.wav": {"-c:a", "libgsm_ms", "-ar", "8000"}, "g726.wav": {"-c:a", "g726", "-ar", "8000"},
		"ac3.wav": {"-c:a", "ac3"}, "ulaw.au": {"-c:a", "pcm_mulaw"}, "wide.wav": {"-c:a", "pcm_f64le"}, "yamaha.wav": {"-c:a", "adpcm_yamaha"},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := upload(t, srv, transcriptions, recording(t, name, args...), fields)
			require.Equal(t, http.StatusOK, status, body)
			length, err := strconv.ParseFloat(seconds.FindStringSubmatch(body)[1], 64)
			require.NoError(t, err)
			require.InDelta(t, 3, length, 0.15)
			require.Contains(t, body, `"text":"loud`)
		})
	}
	mp4 := recording(t, "cut.mp4")
	long := recording(t, "long.mp3", "-af", "apad=pad_dur=30")
	for name, tt := range map[string]struct {
		file   []byte
		status int
		want   string
	}{
		"a truncated mp4":  {mp4[:len(mp4)/2], 422, "open the file"},
		"text":             {[]byte(strings.Repeat("no sound at all ", 1000)), 422, "open the file"},
		"a playlist":       {[]byte("#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n"), 422, "open the file"},
		"a list of files":  {[]byte("ffconcat version 1.0\nfile '/etc/passwd'\n"), 422, "open the file"},
		"a video alone":    {recording(t, "v.mkv", "-f", "lavfi", "-i", "testsrc=d=1:s=64x64", "-map", "1", "-c:v", "mpeg4"), 422, "open the file"},
		"longer than most": {long, 413, "at most 20s of sound"},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := upload(t, srv, transcriptions, tt.file, fields)
			require.Equal(t, tt.status, status, body)
			require.Contains(t, body, tt.want)
		})
	}
	half := recording(t, "half.mp3")
	status, body := upload(t, srv, transcriptions, half[:len(half)/2], fields)
	require.Equal(t, http.StatusOK, status, "what is there is heard")
	require.Regexp(t, `"duration":1\.[45]`, body)
}
