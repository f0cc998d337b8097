//go:build integration

package audioapi_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/engine"
	"touchline/inference/qwen3asr"
	"touchline/inference/vad"
	"touchline/internal/wav"
)

// official reads what the official package says of the small checkpoint.
func official(t *testing.T, name string, v any) {
	t.Helper()
	f, err := os.Open("../../inference/qwen3asr/testdata/" + name + ".json.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	require.NoError(t, json.NewDecoder(z).Decode(v))
}

// TestOfficialRecordings: the service answers with the texts of the official package, and with the times of the aligner.
func TestOfficialRecordings(t *testing.T) {
	keeper := small(t, func(o *qwen3asr.Options) { o.Aligner = converted(t, "aligner") })
	srv, _ := served(t, keeper, keeper, vad.Loud()) // most clips are no speech
	var all struct {
		Cases []struct {
			Clip, Context, Text string
			Language            string  `json:"language_in"`
			Padded              *string `json:"text_padded100"`
		}
	}
	official(t, "transcribe", &all)
	heard := 0
	for _, c := range all.Cases {
		if c.Clip == "click" || c.Clip == "vowel" || c.Clip == "speech35" {
			continue // of less than half a second, which the engine pads; a test of the engine has the long one
		}
		if c.Padded != nil {
			c.Text = *c.Padded
		}
		sound := recorded(t, c.Clip)
		status, body := upload(t, srv, transcriptions, wav.Encode(sound, inference.RecognizerRate), map[string]string{
			"model": "whisper-1", "language": c.Language, "prompt": c.Context, "response_format": "verbose_json",
			"timestamp_granularities[]": "word",
		})
		require.Equal(t, http.StatusOK, status, body)
		var got struct {
			Text  string
			Words []struct {
				Word       string
				Start, End float64
			}
		}
		require.NoError(t, json.Unmarshal([]byte(body), &got))
		if c.Clip == "silence" {
			c.Text = "" // it is not asked
		}
		require.Equal(t, strings.TrimSpace(c.Text), strings.TrimSpace(got.Text), "%s %q %s", c.Clip, c.Context, c.Language)
		heard++
		engine, ok := keeper.Loaded().(*qwen3asr.Engine)
		require.True(t, ok)
		if c.Language == "" {
			continue // the times depend on the language, which the model made up
		}
		words, err := engine.Align(t.Context(), sound, c.Text, c.Language)
		require.NoError(t, err)
		require.Len(t, got.Words, len(words))
		for i, w := range words {
			require.InDelta(t, w.Start.Seconds(), got.Words[i].Start, 0.001)
			require.InDelta(t, w.End.Seconds(), got.Words[i].End, 0.001)
		}
	}
	require.Greater(t, heard, 10)
}

// stepped tells when its utterances have heard a piece of sound.
type stepped struct {
	*engine.Recognizer

	heard chan int // samples
}

func (s stepped) Listen(ctx context.Context, h inference.Hearing) (inference.Utterance, error) {
	u, err := s.Recognizer.Listen(ctx, h)
	return steppedUtterance{u, s.heard}, err
}

type steppedUtterance struct {
	inference.Utterance

	heard chan int
}

func (u steppedUtterance) Hear(ctx context.Context, sound []float32) (inference.Transcript, error) {
	t, err := u.Utterance.Hear(ctx, sound)
	u.heard <- len(sound)
	return t, err
}

// TestOfficialLiveSpeech: a live session gets the texts of the official streaming, step by step.
func TestOfficialLiveSpeech(t *testing.T) {
	var runs []struct {
		Clip, Context, Language string
		Chunk                   float64 `json:"chunk_size_sec"`
		FreeChunks              int     `json:"unfixed_chunk_num"`
		FreeTokens              int     `json:"unfixed_token_num"`
		MaxTokens               int     `json:"max_new_tokens"`
		Short                   bool    `json:"short_chunks"`
		Steps                   []struct {
			Kind, Text string
			Samples    int
		}
		heard chan int
	}
	const every, message = inference.RecognizerRate / 2, inference.RecognizerRate / 50
	official(t, "streaming", &runs)
	tried := 0
	for i, r := range runs {
		if r.Short || r.Context != "" {
			continue // chunks too short for this engine; the socket takes no context
		}
		tried++
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			keeper := small(t, func(o *qwen3asr.Options) {
				o.Official, o.Step, o.FreeSteps, o.FreeTokens, o.StepTokens = true, time.Duration(r.Chunk*1e9), r.FreeChunks, r.FreeTokens, r.MaxTokens
			})
			r.heard = make(chan int, 8)
			srv, _ := served(t, keeper, stepped{keeper, r.heard}, vad.Loud())
			c := dial(t, srv, "/ws/transcribe?use_server_vad=0&language="+r.Language)
			require.Equal(t, "connected", c.next()["status"])
			sound, heard, want := recorded(t, r.Clip), 0, []string{}
			for from := 0; from < len(sound); from += message {
				c.sound(sound[from:min(from+message, len(sound))])
				// A step at a time, as live speech comes: of several that have come, the model hears the last one only.
				if from+message <= len(sound) && (from+message)/vad.FrameSamples*vad.FrameSamples/every > heard/every {
					heard += <-r.heard
				}
			}
			for _, s := range r.Steps {
				if s.Kind == "finish" || s.Samples <= heard {
					want = append(want, strings.TrimSpace(s.Text))
				}
			}
			c.say(map[string]any{"action": "flush"})
			var got []string
			for _, m := range c.until("is_final", true) {
				got = append(got, strings.TrimSpace(m["text"].(string)))
			}
			if len(want) < len(r.Steps) { // the last step, which ends with the sound, is one with the final
				want, got = want[:len(want)-1], got[:len(got)-1]
			}
			require.Equal(t, slices.Compact(want), slices.Compact(got))
			require.Greater(t, len(got), 3)
		})
	}
	require.Greater(t, tried, 1)
}
