package tokenizer_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/tokenizer"
	"touchline/models/checkpoint"
)

const recognizer = "../../models/testdata/qwen3-asr/"

// joined returns the tokenizer of a recognizer, which is published without tokenizer.json.
func joined(t *testing.T, file func(name string) ([]byte, error)) *tokenizer.Tokenizer {
	t.Helper()
	content, err := checkpoint.JoinTokenizer(file)
	require.NoError(t, err)
	tk, err := tokenizer.Parse(content)
	require.NoError(t, err)
	return tk
}

func TestJoinedTokenizer(t *testing.T) {
	t.Parallel()
	tk := joined(t, func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(recognizer, "checkpoint", name)) })
	comparePrompts(t, tk, "tiny")
}

// The real vocabulary and merges are those of MiniCPM-o 4.5; the added tokens are the tiny
// ones with other ids.
func TestJoinedRealTokenizer(t *testing.T) {
	if testing.Short() {
		t.Skip("11 MB of JSON")
	}
	t.Parallel()
	var published struct {
		Model struct {
			Vocab  map[string]int32
			Merges [][]string
		}
	}
	golden(t, "real_tokenizer.json.gz", &published)
	var config struct {
		Added map[string]checkpoint.AddedToken `json:"added_tokens_decoder"`
	}
	content, err := os.ReadFile(recognizer + "checkpoint/tokenizer_config.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, &config))
	const first, tinyFirst = 151643, 956
	shifted := map[string]checkpoint.AddedToken{}
	for id, token := range config.Added {
		n, err := strconv.Atoi(id)
		require.NoError(t, err)
		shifted[strconv.Itoa(n-tinyFirst+first)] = token
	}
	var merges strings.Builder
	merges.WriteString("#version: 0.2\n")
	for _, m := range published.Model.Merges {
		merges.WriteString(strings.Join(m, " ") + "\n")
	}
	vocab, err := json.Marshal(published.Model.Vocab)
	require.NoError(t, err)
	added, err := json.Marshal(map[string]any{"added_tokens_decoder": shifted})
	require.NoError(t, err)
	files := map[string][]byte{"vocab.json": vocab, "merges.txt": []byte(merges.String()), "tokenizer_config.json": added}
	tk := joined(t, func(name string) ([]byte, error) { return files[name], nil })
	require.Equal(t, 151705, tk.Size())
	comparePrompts(t, tk, "real")
}

func comparePrompts(t *testing.T, tk *tokenizer.Tokenizer, which string) {
	t.Helper()
	var prompts []struct {
		Prompt      string
		AudioTokens int `json:"audio_tokens"`
		IDs         []int32
	}
	golden(t, "../"+recognizer+"prompt/"+which+".json.gz", &prompts)
	require.Len(t, prompts, 43)
	const pad = "<|audio_pad|>"
	for _, p := range prompts {
		text := strings.Replace(p.Prompt, pad, strings.Repeat(pad, p.AudioTokens), 1)
		require.Equal(t, p.IDs, tk.Encode(text), p.Prompt)
	}
	var pieces []struct {
		Text, Decoded string
		Plain         string `json:"decoded_skip_special"`
		IDs           []int32
	}
	golden(t, "../"+recognizer+"prompt/"+which+"_pieces.json.gz", &pieces)
	require.NotEmpty(t, pieces)
	for _, p := range pieces {
		require.Equal(t, p.IDs, tk.Encode(p.Text), p.Text)
		if which == "tiny" {
			require.Equal(t, p.Decoded, tk.Decode(p.IDs))
			require.Equal(t, p.Plain, tk.DecodePlain(p.IDs))
		}
	}
}
