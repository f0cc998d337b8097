package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"touchline/models"
)

// qwenSplit is the expression by which Qwen2's tokenizer splits text before the merges.
const qwenSplit = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// AddedToken is a token that is matched in a text before it is split. Special tokens are markup,
// which is not shown.
type AddedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// TokenizerJSON returns tokenizer.json of a tokenizer of Qwen2. A merge is two pieces
// with a space between them.
func TokenizerJSON(vocab map[string]int32, merges []string, added []AddedToken) ([]byte, error) {
	type object = map[string]any
	bytes := func(prefix, trim, regex bool) object {
		return object{"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": trim, "use_regex": regex}
	}
	if merges == nil {
		merges = []string{}
	}
	return json.Marshal(object{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added,
		"normalizer": object{"type": "NFC"},
		"pre_tokenizer": object{"type": "Sequence", "pretokenizers": []object{
			{"type": "Split", "pattern": object{"Regex": qwenSplit}, "behavior": "Isolated", "invert": false},
			bytes(false, true, false),
		}},
		"post_processor": bytes(true, false, true),
		"decoder":        bytes(true, true, true),
		"model": object{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": "", "end_of_word_suffix": "",
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": merges,
		},
	})
}

// JoinTokenizer returns tokenizer.json, assembled from vocab.json, merges.txt and the added tokens
// of tokenizer_config.json, for a checkpoint of a Qwen2 tokenizer without it. The error is
// fs.ErrNotExist if vocab.json is missing.
func JoinTokenizer(file func(name string) ([]byte, error)) ([]byte, error) {
	content, err := file(models.VocabName)
	if err != nil {
		return nil, err
	}
	vocab, err := parseVocab(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", models.VocabName, err)
	}
	if content, err = file(models.MergesName); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is missing, but %s is there", models.MergesName, models.VocabName)
	} else if err != nil {
		return nil, err
	}
	merges, err := parseMerges(string(content))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", models.MergesName, err)
	}
	if content, err = file(models.TokenizerConfigName); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is missing: it has the added tokens of %s", models.TokenizerConfigName, models.VocabName)
	} else if err != nil {
		return nil, err
	}
	added, err := parseAdded(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", models.TokenizerConfigName, err)
	}
	return TokenizerJSON(vocab, merges, added)
}

func parseVocab(content []byte) (map[string]int32, error) {
	var vocab map[string]int32
	if err := json.Unmarshal(content, &vocab); err != nil {
		return nil, jsonError(err)
	}
	if len(vocab) == 0 {
		return nil, errors.New("no pieces")
	}
	for piece, id := range vocab {
		if id < 0 || id >= maxSize {
			return nil, fmt.Errorf("%q: the id must be from 0 to %d, is %d", piece, maxSize-1, id)
		}
	}
	return vocab, nil
}

// parseMerges parses a line of two pieces for each merge, after a header.
func parseMerges(content string) ([]string, error) {
	merges := []string{}
	for i, line := range strings.Split(content, "\n") {
		line = strings.TrimSuffix(line, "\r")
		if line == "" || i == 0 && strings.HasPrefix(line, "#version") {
			continue
		}
		left, right, ok := strings.Cut(line, " ")
		if !ok || left == "" || right == "" || strings.Contains(right, " ") {
			return nil, fmt.Errorf("line %d: expected two pieces, got %.80q", i+1, line)
		}
		merges = append(merges, line)
	}
	return merges, nil
}

// parseAdded reads added_tokens_decoder, sorted by ids.
func parseAdded(content []byte) ([]AddedToken, error) {
	var config struct {
		Added map[string]AddedToken `json:"added_tokens_decoder"`
		Class string                `json:"tokenizer_class"`
	}
	if err := json.Unmarshal(content, &config); err != nil {
		return nil, jsonError(err)
	}
	switch config.Class {
	case "", "Qwen2Tokenizer", "Qwen2TokenizerFast":
	default:
		return nil, fmt.Errorf("tokenizer_class: must be Qwen2Tokenizer, is %.40q", config.Class)
	}
	if len(config.Added) == 0 {
		return nil, errors.New("added_tokens_decoder: missing or empty")
	}
	var added []AddedToken
	for id, token := range config.Added {
		n, err := strconv.ParseInt(id, 10, 32)
		if err != nil || n < 0 || n >= maxSize {
			return nil, fmt.Errorf("added_tokens_decoder: %.40q: expected an id", id)
		}
		if token.Content == "" {
			return nil, fmt.Errorf("added_tokens_decoder[%d]: content is missing", n)
		}
		token.ID = int32(n)
		added = append(added, token)
	}
	slices.SortFunc(added, func(a, b AddedToken) int { return int(a.ID) - int(b.ID) })
	return added, nil
}
