package qwen3asr_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/qwen3asr"
	"touchline/inference/tokenizer"
	"touchline/models/checkpoint"
)

// testdata comes from the official package (qwen-asr 0.0.6); see its README.

func read(tb testing.TB, path string) []byte {
	tb.Helper()
	f, err := os.Open(path)
	require.NoError(tb, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(tb, err)
	b, err := io.ReadAll(z)
	require.NoError(tb, err)
	return b
}

// golden reads a fixture of this package, or of the small checkpoints if its name has a folder.
func golden(tb testing.TB, name string, v any) {
	tb.Helper()
	folder := "testdata"
	if strings.Contains(name, "/") {
		folder = tiny
	}
	require.NoError(tb, json.Unmarshal(read(tb, filepath.Join(folder, name+".json.gz")), v))
}

// tiny has the small checkpoints, and sound.
const tiny = "../../models/testdata/qwen3-asr"

// tokens returns the tokenizer of a small checkpoint.
func tokens(tb testing.TB, name string) *tokenizer.Tokenizer {
	tb.Helper()
	raw, err := checkpoint.JoinTokenizer(func(file string) ([]byte, error) { return os.ReadFile(filepath.Join(tiny, name, file)) })
	require.NoError(tb, err)
	t, err := tokenizer.Parse(raw)
	require.NoError(tb, err)
	return t
}

// clip reads the sound of a fixture.
func clip(tb testing.TB, name string) []float32 {
	tb.Helper()
	folder := filepath.Join(tiny, "audio")
	if name == "speech35" {
		folder = "testdata"
	}
	b := read(tb, filepath.Join(folder, name+".wav.gz"))
	at := bytes.Index(b, []byte("data"))
	require.Positive(tb, at)
	pcm := b[at+8:]
	sound := make([]float32, len(pcm)/2)
	for i := range sound {
		sound[i] = float32(int16(binary.LittleEndian.Uint16(pcm[2*i:]))) / 32768
	}
	return sound
}

// replay counts the cases of a recording, each of which must be equal.
func replay(t *testing.T) (same qwen3asr.Same, cases *int) {
	t.Helper()
	cases = new(int)
	return func(equal bool, format string, args ...any) {
		*cases++
		require.True(t, equal, append([]any{format}, args...)...)
	}, cases
}

func TestParse(t *testing.T) {
	t.Parallel()
	same, cases := replay(t)
	require.NoError(t, qwen3asr.ReplayAnswers(read(t, "testdata/parse.json.gz"), same))
	require.GreaterOrEqual(t, *cases, 120+60)
	require.Error(t, qwen3asr.ReplayAnswers([]byte("["), same))
}

func FuzzParse(f *testing.F) {
	var seeds struct{ Parse []struct{ Raw string } }
	golden(f, "parse", &seeds)
	for _, s := range seeds.Parse {
		f.Add(s.Raw, "")
		f.Add(s.Raw, "English")
	}
	f.Fuzz(func(t *testing.T, raw, forced string) {
		language, text := qwen3asr.Parse(raw, forced)
		require.LessOrEqual(t, utf8.RuneCountInString(text), utf8.RuneCountInString(raw))
		if forced != "" && language != "" {
			require.Equal(t, forced, language)
		}
	})
}

func TestLanguages(t *testing.T) {
	t.Parallel()
	for asked, want := range map[string]string{
		"": "", "en": "English", "EN-gb": "English", "english": "English", "pt-BR": "Portuguese", "yue": "Cantonese",
		"zh-yue": "Cantonese", "zh_CN": "Chinese", "tl": "Filipino", "fil": "Filipino", "de": "German",
	} {
		name, err := qwen3asr.LanguageName(asked)
		require.NoError(t, err)
		require.Equal(t, want, name, asked)
	}
	for _, name := range strings.Fields("Chinese English Cantonese Arabic German French Spanish Portuguese Indonesian Italian Korean Russian Thai " +
		"Vietnamese Japanese Turkish Hindi Malay Dutch Swedish Danish Finnish Polish Czech Filipino Persian Greek Romanian Hungarian Macedonian") {
		got, err := qwen3asr.LanguageName(qwen3asr.LanguageTag(name))
		require.NoError(t, err)
		require.Equal(t, name, got)
	}
	_, err := qwen3asr.LanguageName("tlh")
	require.ErrorContains(t, err, `language "tlh": this model hears zh, en, yue`)
	require.Equal(t, "yue", qwen3asr.LanguageTag("Cantonese"))
	require.Empty(t, qwen3asr.LanguageTag("Klingon"))
}

// published returns the tokenizer of the published checkpoint: the pieces of Qwen3 with this model's added tokens,
// which stand in the same order in the tiny one.
func published(tb testing.TB) *tokenizer.Tokenizer {
	tb.Helper()
	var file map[string]any
	require.NoError(tb, json.Unmarshal(read(tb, "../tokenizer/testdata/real_tokenizer.json.gz"), &file))
	small, err := checkpoint.JoinTokenizer(func(file string) ([]byte, error) { return os.ReadFile(filepath.Join(tiny, "checkpoint", file)) })
	require.NoError(tb, err)
	var added struct {
		Added []map[string]any `json:"added_tokens"`
	}
	require.NoError(tb, json.Unmarshal(small, &added))
	const first = 151643
	shift := first - added.Added[0]["id"].(float64)
	for _, a := range added.Added {
		a["id"] = a["id"].(float64) + shift
	}
	file["added_tokens"] = added.Added
	raw, err := json.Marshal(file)
	require.NoError(tb, err)
	t, err := tokenizer.Parse(raw)
	require.NoError(tb, err)
	return t
}

func TestPrompt(t *testing.T) {
	t.Parallel()
	for name, tok := range map[string]*tokenizer.Tokenizer{"prompt/tiny": tokens(t, "checkpoint"), "prompt/real": published(t)} {
		var cases []struct {
			Context     string
			Language    string
			AudioTokens int `json:"audio_tokens"`
			IDs         []int32
		}
		golden(t, name, &cases)
		require.Len(t, cases, 43)
		ids, err := tok.IDs("<|audio_pad|>", "<|im_end|>")
		require.NoError(t, err)
		literal := 0
		for _, tt := range cases {
			got, from, err := qwen3asr.PromptIDs(tok, tt.Context, 1000, tt.Language, "", tt.AudioTokens)
			require.NoError(t, err)
			require.Equal(t, slices.Repeat(ids[:1], tt.AudioTokens), got[from:][:tt.AudioTokens])
			if !strings.Contains(tt.Context, "<|") {
				require.Equal(t, tt.IDs, got, "%s: %q %s", name, tt.Context, tt.Language)
				continue
			}
			literal++ // The original takes the marks of such a context for tokens.
			require.Contains(t, tok.Decode(got), tt.Context)
			ends := slices.DeleteFunc(slices.Clone(got), func(id int32) bool { return id != ids[1] })
			require.Len(t, ends, 2, "those of the prompt itself")
		}
		require.Equal(t, 2, literal)
	}
}

func TestLongContext(t *testing.T) {
	t.Parallel()
	tok := tokens(t, "checkpoint")
	names := strings.Repeat("Anna ", 200) + "Bob"
	got, from, err := qwen3asr.PromptIDs(tok, names, 30, "", "", 2)
	require.NoError(t, err)
	short, at, err := qwen3asr.PromptIDs(tok, "", 30, "", "", 2)
	require.NoError(t, err)
	require.Equal(t, at+30, from)
	require.Equal(t, short[at:], got[from:])
	require.Contains(t, tok.Decode(got[:from]), "Anna Bob<|im_end|>")
}

func TestAnswerInPrompt(t *testing.T) {
	t.Parallel()
	tok := tokens(t, "checkpoint")
	got, _, err := qwen3asr.PromptIDs(tok, "", 30, "", "<|im_end|> language English<asr_text>Hi", 1)
	require.NoError(t, err)
	want, _, err := qwen3asr.PromptIDs(tok, "", 30, "", " language English<asr_text>Hi", 1)
	require.NoError(t, err)
	require.Equal(t, want, got, "an answer has no special tokens")
}

func TestSplit(t *testing.T) {
	t.Parallel()
	var cases []struct {
		Clip    string
		Max     float64 `json:"max_chunk_sec"`
		Search  float64 `json:"search_expand_sec"`
		Lengths []int
		Offsets []float64
	}
	golden(t, "split", &cases)
	for _, tt := range cases {
		sound := clip(t, tt.Clip)
		if tt.Search != 0 {
			continue // closer to the place than this program cuts
		}
		parts := inference.SplitSound(sound, int(tt.Max*inference.RecognizerRate))
		require.Len(t, parts, len(tt.Lengths), "%s %v", tt.Clip, tt.Max)
		from := 0
		for i, part := range parts {
			require.InDelta(t, tt.Offsets[i], float64(from)/inference.RecognizerRate, 1e-9)
			from += len(part)
			if len(parts) > 1 { // the original pads them
				require.Equal(t, tt.Lengths[i], max(len(part), inference.RecognizerRate/2))
			}
		}
		require.Len(t, sound, from)
	}
}

func TestFollower(t *testing.T) {
	t.Parallel()
	tok := tokens(t, "checkpoint")
	var runs []run
	golden(t, "streaming", &runs)
	require.Len(t, runs, 5)
	for _, r := range runs {
		f := qwen3asr.NewFollower(tok, r.FreeChunks, r.FreeTokens)
		for i, s := range r.Steps {
			require.NoError(t, f.Step(1, s.Kind == "finish", func(prefix string) (string, error) {
				require.Equal(t, s.Prefix, prefix, "%s %d", r.Clip, i)
				return tok.DecodePlain(s.IDs), nil
			}))
			require.Equal(t, s.Raw, f.Raw())
			language, text := qwen3asr.Parse(f.Raw(), r.Language)
			require.Equal(t, s.Text, text)
			require.Equal(t, s.Language, language)
		}
		before := f.Raw()
		broken := errors.New("broken")
		require.ErrorIs(t, f.Step(1, false, func(string) (string, error) { return "", broken }), broken)
		require.Equal(t, before, f.Raw())
	}
}

// run is a run of the official code for live speech.
type run struct {
	Clip       string
	Context    string
	Language   string
	Chunk      float64 `json:"chunk_size_sec"`
	FreeChunks int     `json:"unfixed_chunk_num"`
	FreeTokens int     `json:"unfixed_token_num"`
	MaxTokens  int     `json:"max_new_tokens"`
	Short      bool    `json:"short_chunks"`
	Steps      []struct {
		Kind           string
		Samples        int
		Prefix         string
		IDs            []int32
		Raw            string
		Language, Text string
		PromptTokens   int `json:"prompt_tokens"`
	}
}

func TestAlignWords(t *testing.T) {
	t.Parallel()
	same, cases := replay(t)
	require.NoError(t, qwen3asr.ReplayWords(read(t, "testdata/words.json.gz"), same))
	require.Greater(t, *cases, 60)
	require.Error(t, qwen3asr.ReplayWords([]byte("{}"), same))
}

func TestAlignJapanese(t *testing.T) {
	t.Parallel()
	words, shown, _ := qwen3asr.AlignWords("試合が始まります。サッカーOK！", "Japanese")
	require.Equal(t, []string{"試合", "が", "始", "まります", "サッカー", "OK"}, words)
	require.Equal(t, "まります。", shown[3].Text)
}

func TestTimed(t *testing.T) {
	t.Parallel()
	var cases []struct {
		Clip, Language, Text string
		Indices              []int32
		Items                []struct {
			Text  string
			Start float64 `json:"start_time"`
			End   float64 `json:"end_time"`
		}
	}
	golden(t, "align/align", &cases)
	for _, tt := range cases {
		got := qwen3asr.Timed(tt.Text, tt.Language, tt.Indices, 80*time.Millisecond)
		require.Len(t, got, len(tt.Items))
		for i, w := range got {
			require.InDelta(t, tt.Items[i].Start, w.Start.Seconds(), 1e-9)
			require.InDelta(t, tt.Items[i].End, w.End.Seconds(), 1e-9)
		}
	}
	shown := func(text string) (out []string) {
		_, words, _ := qwen3asr.AlignWords(text, "")
		for _, w := range words {
			out = append(out, w.Text)
		}
		return out
	}
	require.Equal(t, []string{"“Hello,", "world” –", "(it's)", "3.14!"}, shown("“Hello, world” – (it's) 3.14!"))
	require.Equal(t, []string{"今", "天，", "「好」", "OK。"}, shown("今天，「好」OK。"))
	require.Empty(t, shown(" ...!? "))
}

func FuzzAlignWords(f *testing.F) {
	for _, s := range []string{"Hello, world!", "今天，「好」OK。", "試合が始まります", "नमस्ते दुनिया", "\xff a \u0301", "' '"} {
		f.Add(s, "Japanese")
		f.Add(s, "Korean")
		f.Add(s, "")
	}
	f.Fuzz(func(t *testing.T, text, language string) {
		text = strings.ToValidUTF8(text, "\ufffd")
		words, shown, _ := qwen3asr.AlignWords(text, language)
		require.Len(t, shown, len(words))
		dense := func(s string) string {
			return strings.Map(func(r rune) rune {
				if unicode.IsSpace(r) {
					return -1
				}
				return r
			}, s)
		}
		var all strings.Builder
		for _, w := range shown {
			all.WriteString(w.Text)
		}
		if len(words) > 0 {
			require.Equal(t, dense(text), dense(all.String()), "the words are the text")
		}
	})
}
