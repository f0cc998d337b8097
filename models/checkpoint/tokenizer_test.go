package checkpoint_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models"
	"touchline/models/checkpoint"
)

// Files of a tokenizer are refused, or joined to valid JSON with all of their tokens.
func FuzzJoinTokenizer(f *testing.F) {
	var published [3][]byte
	for i, name := range []string{models.VocabName, models.MergesName, models.TokenizerConfigName} {
		var err error
		published[i], err = os.ReadFile(filepath.Join("..", "testdata", "qwen3-asr", "checkpoint", name))
		require.NoError(f, err)
	}
	f.Add(published[0], published[1], published[2])
	f.Add([]byte(`{"a":0}`), []byte("a a\r\n"), []byte(`{"added_tokens_decoder":{"1":{"content":"<x>"}}}`))
	f.Add([]byte(`{"a":-1}`), []byte("a"), []byte(`{"added_tokens_decoder":{"x":{}}}`))
	f.Add([]byte(`[]`), []byte(""), []byte(`null`))
	f.Fuzz(func(t *testing.T, vocab, merges, config []byte) {
		files := map[string][]byte{models.VocabName: vocab, models.MergesName: merges, models.TokenizerConfigName: config}
		content, err := checkpoint.JoinTokenizer(func(name string) ([]byte, error) { return files[name], nil })
		if err != nil {
			return
		}
		var joined struct {
			Added []checkpoint.AddedToken `json:"added_tokens"`
			Model struct {
				Vocab  map[string]int32
				Merges []string
			}
		}
		require.NoError(t, json.Unmarshal(content, &joined))
		require.NotEmpty(t, joined.Added)
		require.NotEmpty(t, joined.Model.Vocab)
	})
}

func TestJoinTokenizerFiles(t *testing.T) {
	t.Parallel()
	for missing, want := range map[string]string{
		models.VocabName: fs.ErrNotExist.Error(), models.MergesName: "merges.txt is missing, but vocab.json is there",
		models.TokenizerConfigName: "tokenizer_config.json is missing: it has the added tokens",
	} {
		_, err := checkpoint.JoinTokenizer(func(name string) ([]byte, error) {
			if name == missing {
				return nil, fs.ErrNotExist
			}
			return os.ReadFile(filepath.Join("..", "testdata", "qwen3-asr", "checkpoint", name))
		})
		require.ErrorContains(t, err, want)
	}
}
