//go:build integration

package audioapi_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media/codec/codectest"
)

func TestMain(m *testing.M) { codectest.Main(m) }

// probe decodes a file with ffmpeg, and returns its codec, its rate and the length of its sound.
func probe(t *testing.T, name string, body []byte) (codec string, rate int, length time.Duration) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, body, 0o600))
	out, err := exec.CommandContext(t.Context(), "ffprobe", "-v", "error", "-show_entries", "stream=codec_name,sample_rate,channels",
		"-of", "csv=p=0", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
	fields := strings.Split(strings.TrimSpace(string(out)), ",")
	require.Len(t, fields, 3, "%s", out)
	require.Equal(t, "1", fields[2])
	rate, err = strconv.Atoi(fields[1])
	require.NoError(t, err)
	pcm, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-i", file, "-f", "s16le", "-ar", "24000", "-").Output()
	require.NoError(t, err)
	require.Greater(t, loudness(pcm), 0.1, "it is the tone")
	return fields[0], rate, time.Duration(len(pcm)/2) * time.Second / 24000
}

// loudness is the root mean square of s16le, of full scale.
func loudness(pcm []byte) float64 {
	sum := 0.0
	for i := 0; i+1 < len(pcm); i += 2 {
		v := float64(int16(uint16(pcm[i])|uint16(pcm[i+1])<<8)) / 32768
		sum += v * v
	}
	return math.Sqrt(sum / float64(len(pcm)/2))
}

// TestFormats decodes each format with ffmpeg.
func TestFormats(t *testing.T) {
	srv := serve(t, &speaker{})
	const body = `{"model": "tts-1", "voice": "alloy", "input": "One two three four five six seven eight."`
	want := 8 * wordTime
	for _, tt := range []struct {
		format, kind, codec string
		rate                int
		more                time.Duration // of a codec's frames and delay
	}{
		{"", "audio/mpeg", "mp3", 24000, 120 * time.Millisecond},
		{"mp3", "audio/mpeg", "mp3", 24000, 120 * time.Millisecond},
		{"aac", "audio/aac", "aac", 24000, 120 * time.Millisecond},
		{"opus", "audio/ogg", "opus", 48000, time.Millisecond},
		{"wav", "audio/wav", "pcm_s16le", 24000, time.Millisecond},
		{"pcm", "audio/pcm", "", 24000, time.Millisecond},
	} {
		t.Run(tt.format, func(t *testing.T) {
			all := body
			if tt.format != "" {
				all += `, "response_format": "` + tt.format + `"`
			}
			res := post(t, srv, all+`, "speed": 1.0, "stream_format": "audio"}`)
			require.Equal(t, http.StatusOK, res.StatusCode)
			require.Equal(t, tt.kind, res.Header.Get("Content-Type"))
			sound, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			if tt.format == "pcm" {
				require.Equal(t, want.Seconds(), float64(len(sound))/48000)
				require.Greater(t, loudness(sound), 0.1)
				return
			}
			codec, rate, length := probe(t, "sound."+tt.format, sound)
			require.Equal(t, tt.codec, codec)
			require.Equal(t, tt.rate, rate)
			require.GreaterOrEqual(t, length, want-time.Millisecond)
			require.LessOrEqual(t, length, want+tt.more)

			events := post(t, srv, all+`, "stream_format": "sse"}`)
			require.Equal(t, "text/event-stream", events.Header.Get("Content-Type"))
			require.InDelta(t, len(sound), len(ofEvents(t, events.Body)), 200)
		})
	}
}

// ofEvents returns the sound of a stream of events, which must be whole.
func ofEvents(t *testing.T, body io.Reader) (sound []byte) {
	t.Helper()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	last := ""
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			require.Empty(t, lines.Text())
			continue
		}
		var e struct{ Type, Audio string }
		require.NoError(t, json.Unmarshal([]byte(data), &e))
		b, err := base64.StdEncoding.DecodeString(e.Audio)
		require.NoError(t, err)
		sound, last = append(sound, b...), e.Type
	}
	require.Equal(t, "speech.audio.done", last)
	return sound
}

// TestSoundIsStreamed: the first sound comes before the text is spoken to its end, in every format.
func TestSoundIsStreamed(t *testing.T) {
	for _, format := range []string{"pcm", "wav", "opus", "mp3", "aac"} {
		t.Run(format, func(t *testing.T) {
			heard := make(chan struct{})
			srv := serve(t, &speaker{before: func(ctx context.Context, word int) error {
				if word == 3 {
					select {
					case <-heard:
					case <-ctx.Done():
					}
				}
				return ctx.Err()
			}})
			res := post(t, srv, `{"model": "m", "voice": "ash", "input": "One two three four five", "response_format": "`+format+`"}`)
			_, err := io.ReadFull(res.Body, make([]byte, 1000))
			require.NoError(t, err)
			close(heard)
			_, err = io.Copy(io.Discard, res.Body)
			require.NoError(t, err)
		})
	}
}
