package tokenizer_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"

	"touchline/inference/tokenizer"
)

// testdata comes from the official code (tokenizers 0.21.4): "real" is the
// published tokenizer, "tiny" one of 1,362 tokens with the same rules.

func read(tb testing.TB, name string) []byte {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(tb, err)
	if strings.HasSuffix(name, ".gz") {
		z, err := gzip.NewReader(bytes.NewReader(b))
		require.NoError(tb, err)
		b, err = io.ReadAll(z)
		require.NoError(tb, err)
	}
	return b
}

func golden(tb testing.TB, name string, v any) {
	tb.Helper()
	require.NoError(tb, json.Unmarshal(read(tb, name), v))
}

// loaded caches the results of load.
var loaded sync.Map

func load(tb testing.TB, which string) *tokenizer.Tokenizer {
	tb.Helper()
	if t, ok := loaded.Load(which); ok {
		return t.(*tokenizer.Tokenizer)
	}
	t, err := tokenizer.Parse(read(tb, which+"_tokenizer.json.gz"))
	require.NoError(tb, err)
	loaded.Store(which, t)
	return t
}

// both runs a test with the tiny and the real tokenizer.
func both(t *testing.T, f func(t *testing.T, which string, tok *tokenizer.Tokenizer)) {
	t.Helper()
	for _, which := range []string{"tiny", "real"} {
		t.Run(which, func(t *testing.T) { f(t, which, load(t, which)) })
	}
}

func TestEncode(t *testing.T) {
	both(t, func(t *testing.T, which string, tok *tokenizer.Tokenizer) {
		t.Helper()
		var cases []struct {
			Text string  `json:"text"`
			IDs  []int32 `json:"ids"`
		}
		golden(t, which+"_encode.json.gz", &cases)
		require.Len(t, cases, map[string]int{"tiny": 260, "real": 420}[which])
		for range 2 { // the second time from the cache
			for _, tt := range cases {
				require.Equal(t, tt.IDs, append([]int32{}, tok.Encode(tt.Text)...), "%q", tt.Text)
			}
		}
	})
}

func TestDecode(t *testing.T) {
	both(t, func(t *testing.T, which string, tok *tokenizer.Tokenizer) {
		t.Helper()
		var cases []struct {
			IDs   []int32 `json:"ids"`
			Text  string  `json:"text"`
			Plain string  `json:"text_skip_special"`
		}
		golden(t, which+"_decode.json.gz", &cases)
		require.Len(t, cases, 160)
		for _, tt := range cases {
			require.Equal(t, tt.Text, tok.Decode(tt.IDs), "%v", tt.IDs)
			require.Equal(t, tt.Plain, tok.DecodePlain(tt.IDs), "%v", tt.IDs)
		}
	})
}

func TestStream(t *testing.T) {
	both(t, func(t *testing.T, which string, tok *tokenizer.Tokenizer) {
		t.Helper()
		var cases []struct {
			Chunks   [][]int32 `json:"chunks"`
			Finished []bool    `json:"finished"`
			Out      []string  `json:"out"`
		}
		golden(t, which+"_stream.json", &cases)
		require.Len(t, cases, 40)
		for _, tt := range cases {
			s := tok.NewStream(false)
			var out []string
			for i, ids := range tt.Chunks {
				text := s.Next(ids...)
				if tt.Finished[i] {
					text += s.End()
				}
				out = append(out, text)
			}
			require.Equal(t, tt.Out, out, "%v", tt.Chunks)
		}
	})
}

func TestLookup(t *testing.T) {
	both(t, func(t *testing.T, _ string, tok *tokenizer.Tokenizer) {
		t.Helper()
		end, ok := tok.ID("<|im_end|>")
		require.True(t, ok)
		require.True(t, tok.Special(end))
		require.Equal(t, "<|im_end|>", tok.Name(end))
		require.Equal(t, []byte("<|im_end|>"), tok.Piece(end))
		think, ok := tok.ID("<think>")
		require.True(t, ok)
		require.False(t, tok.Special(think))
		require.Greater(t, tok.Size(), int(end))
		_, err := tok.IDs("<unk>", "<nope>", "<no>")
		require.ErrorContains(t, err, `expected tokens ["<nope>" "<no>"] in tokenizer.json`)
		for _, id := range []int32{-1, 1 << 30, int32(tok.Size())} {
			require.Empty(t, tok.Name(id))
			require.Nil(t, tok.Piece(id))
			require.False(t, tok.Special(id))
			require.Empty(t, tok.Decode([]int32{id}))
		}
	})
}

func TestLongWords(t *testing.T) {
	both(t, func(t *testing.T, _ string, tok *tokenizer.Tokenizer) {
		t.Helper()
		rng := rand.New(rand.NewPCG(1, 1))
		words := []string{"the", "ing", "a", "aa", "über", "你好", "世界", "😀", "e", "z", "tion", "\u0301"}
		for n := range 60 {
			var b strings.Builder
			for range 5 + n*3 {
				b.WriteString(words[rng.IntN(len(words))])
			}
			require.Equal(t, tok.MergeByDefinition(b.String()), tok.MergeLong(b.String()))
			if b.Len() <= 48 {
				require.Equal(t, tok.MergeByDefinition(b.String()), tok.MergeShort(b.String()))
			}
		}
		// 128 kB of one letter: quadratic time would be noticed.
		long := strings.Repeat("a", 1<<17)
		ids := tok.Encode(long)
		require.Equal(t, long, tok.Decode(ids))
	})
}

func TestUnusualText(t *testing.T) {
	tok := load(t, "tiny")
	require.Equal(t, tok.Encode("a\ufffdb\ufffd"), tok.Encode("a\xe2\x82b\xff"))
	// Letters that are missing in this Go release's tables.
	require.Equal(t, []string{"\U0002ebf0a"}, tokenizer.Words("\U0002ebf0a"))
	require.Equal(t, []string{"\U0001e5f1", "\U0001e5f2"}, tokenizer.Words("\U0001e5f1\U0001e5f2"))
	require.Equal(t, []string{"it", "'ſ", " we", "'LL", " '", "ſt"}, tokenizer.Words("it'ſ we'LL 'ſt"))
	require.Equal(t, []string{"a", "  ", " b", " \n\n", "\tc", "  "}, tokenizer.Words("a   b \n\n\tc  "))
	require.Equal(t, []string{"1", "2", ".", " 3", "!?\r\n", "x"}, fix(tokenizer.Words("12. 3!?\r\nx")))
}

// fix joins the space before a number, which is a separate word.
func fix(words []string) []string {
	var out []string
	for _, w := range words {
		if n := len(out); n > 0 && out[n-1] == " " {
			out[n-1] += w
			continue
		}
		out = append(out, w)
	}
	return out
}

func TestBadFiles(t *testing.T) {
	good := string(read(t, "tiny_tokenizer.json.gz"))
	tests := []struct {
		name, old, new, want string
	}{
		{"empty", good, "", "parse JSON"},
		{"truncated", good[len(good)/2:], "", "parse JSON"},
		{"array", good, "[]", "parse JSON"},
		{"nothing", good, "{}", `model.type: expected BPE, got ""`},
		{"other model", `"type": "BPE"`, `"type": "Unigram"`, `model.type: expected BPE, got "Unigram"`},
		{"other normalizer", `"type": "NFC"`, `"type": "NFKC"`, `normalizer.type: expected NFC or no normalizer, got "NFKC"`},
		{"other split", `|\\p{N}|`, `|\\p{N}{1,3}|`, "pre_tokenizer.pretokenizers[0].pattern: expected the Qwen2 expression"},
		{"fallback", `"byte_fallback": false`, `"byte_fallback": true`, "model.byte_fallback: expected false, got true"},
		{"id type", `"<unk>": 1067`, `"<unk>": "x"`, "parse JSON"},
		{"negative id", `"<unk>": 1067`, `"<unk>": -1`, `expected ids from 0 to`},
		{"huge id", `"<unk>": 1067`, `"<unk>": 2000000000`, `expected ids from 0 to 2097151, "<unk>" has 2000000000`},
		{"two ids", `"<unk>": 1067`, `"<unk>": 5000`, `expected one id for "<unk>", got 5000 and 1067`},
		{"two pieces", `"<unk>": 1067`, `"<unk>": 0`, "expected one token for id 0"},
		{"no byte", `"!": 0`, `"!!!!": 0`, `expected a piece for each byte, 0x21 ('!') has none`},
		{"lstrip", `"lstrip": false`, `"lstrip": true`, "expected single_word, lstrip and rstrip to be false"},
	}
	compact := func(s string) string {
		var b bytes.Buffer
		if json.Compact(&b, []byte(s)) != nil {
			return s
		}
		return b.String()
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file, old, insert := good, tt.old, tt.new
			if len(old) < 100 {
				file = compact(good)
				old, insert = strings.ReplaceAll(old, `": `, `":`), strings.ReplaceAll(insert, `": `, `":`)
			}
			require.Contains(t, file, old)
			_, err := tokenizer.Parse([]byte(strings.Replace(file, old, insert, 1)))
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// TestVariants parses variants of the file format.
func TestVariants(t *testing.T) {
	var file map[string]any
	golden(t, "tiny_tokenizer.json.gz", &file)
	model := file["model"].(map[string]any)
	var merges []any
	for _, m := range model["merges"].([]any) {
		p := m.([]any)
		merges = append(merges, p[0].(string)+" "+p[1].(string))
	}
	model["merges"] = merges
	for _, a := range file["added_tokens"].([]any) {
		a.(map[string]any)["normalized"] = true
	}
	b, err := json.Marshal(file)
	require.NoError(t, err)
	other, err := tokenizer.Parse(b)
	require.NoError(t, err)
	tok := load(t, "tiny")
	for _, s := range []string{"Hello <|im_end|>world<image></image>", "e\u0301 <unk>", ""} {
		require.Equal(t, tok.Encode(s), other.Encode(s))
	}
	for _, m := range []any{"nospace", []string{"a"}, 7, []string{"no", "such"}} {
		model["merges"] = []any{m}
		b, err := json.Marshal(file)
		require.NoError(t, err)
		_, err = tokenizer.Parse(b)
		require.ErrorContains(t, err, "expected")
	}
	// An added token of one byte, and one that is a prefix of another.
	model["merges"] = merges
	last := file["added_tokens"].([]any)
	at := float64(tok.Size())
	for i, s := range []string{"@", "@b", "@bcd"} {
		last = append(last, map[string]any{"id": at + float64(i), "content": s})
	}
	last[len(last)-3].(map[string]any)["id"] = model["vocab"].(map[string]any)["@"]
	file["added_tokens"] = last
	b, err = json.Marshal(file)
	require.NoError(t, err)
	more, err := tokenizer.Parse(b)
	require.NoError(t, err)
	single, _ := more.ID("@")
	require.Equal(t, []int32{single, int32(at) + 1, int32(at) + 2, single}, more.Encode("@@b@bcd@"))
	model["merges"], model["ignore_merges"] = []any{}, true
	b, err = json.Marshal(file)
	require.NoError(t, err)
	whole, err := tokenizer.Parse(b)
	require.NoError(t, err)
	require.Len(t, whole.Encode("user"), 1)
	require.Len(t, whole.Encode("userx"), 5)
}

func TestConcurrentUse(t *testing.T) {
	tok := load(t, "tiny")
	want := tok.Encode(sample)
	done := make(chan bool)
	for range 4 {
		go func() {
			ok := true
			for range 50 {
				got := tok.Encode(sample)
				ok = ok && len(got) == len(want)
			}
			done <- ok
		}()
	}
	for range 4 {
		require.True(t, <-done)
	}
}

func FuzzRoundTrip(f *testing.F) {
	tok := load(f, "tiny")
	for _, s := range []string{"", " ", "a\r\n b", "it's 12 <|im_end|> 你好", "e\u0301\u0327", "\xff\xe2\x82", "<image", "ſ'ſ'S  \n x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ids := tok.Encode(s)
		want := norm.NFC.String(strings.ToValidUTF8(s, "\ufffd"))
		got := tok.Decode(ids)
		if utf8.ValidString(s) && !strings.Contains(s, "<") && got != want {
			t.Fatalf("%q became %q", want, got)
		}
		if !utf8.ValidString(got) {
			t.Fatalf("%q is not UTF-8", got)
		}
		if words := tokenizer.Words(s); strings.Join(words, "") != s {
			t.Fatalf("%q split into %q", s, words)
		}
		if len(s) > 1 && len(s) <= 48 && utf8.ValidString(s) {
			require.Equal(t, tok.MergeByDefinition(s), tok.MergeShort(s))
			require.Equal(t, tok.MergeByDefinition(s), tok.MergeLong(s))
		}
	})
}

func FuzzStream(f *testing.F) {
	tok := load(f, "tiny")
	f.Add([]byte{0, 200, 1, 190, 2, 171, 3}, uint8(2))
	f.Add([]byte("\xe4\xbd\xa0\xe5\xa5"), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, step uint8) {
		// Pairs of bytes as ids, over all tokens.
		var ids []int32
		for i := 0; i+1 < len(b); i += 2 {
			ids = append(ids, (int32(b[i])<<8|int32(b[i+1]))%int32(tok.Size()+3))
		}
		for _, plain := range []bool{false, true} {
			want := tok.Decode(ids)
			if plain {
				want = tok.DecodePlain(ids)
			}
			s := tok.NewStream(plain)
			var got strings.Builder
			for rest := ids; len(rest) > 0; {
				n := min(len(rest), int(step)%5+1)
				text := s.Next(rest[:n]...)
				if strings.HasSuffix(text, "\ufffd") {
					t.Fatalf("%q was not held back", text)
				}
				got.WriteString(text)
				rest = rest[n:]
			}
			got.WriteString(s.End())
			if got.String() != want {
				t.Fatalf("got %q, want %q", got.String(), want)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"added_tokens":[{"id":3,"content":"x"}],"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{"a":0},"merges":[["a","a"],"a b"]}}`))
	f.Fuzz(func(_ *testing.T, b []byte) {
		tok, err := tokenizer.Parse(b)
		if err == nil {
			tok.Decode(tok.Encode("Any text, 12 <unk> 你好"))
		}
	})
}

const sample = "Striker number 9 drives the ball low into the corner - what a goal! 2:1 after 67 minutes, and the home fans are on their feet. " +
	"Der Torwart war chancenlos; das Spiel läuft weiter. 进球了！"

func BenchmarkEncode(b *testing.B) {
	tok := load(b, "real")
	var ids []int32
	for b.Loop() {
		ids = tok.AppendEncode(ids[:0], sample)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(ids)), "ns/token")
}

func BenchmarkEncodeUncached(b *testing.B) {
	tok := load(b, "real")
	var n int
	for b.Loop() {
		tok.ForgetWords()
		n = len(tok.Encode(sample))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/token")
}

func BenchmarkStream(b *testing.B) {
	tok := load(b, "real")
	ids := tok.Encode(sample)
	s := tok.NewStream(true)
	for b.Loop() {
		for _, id := range ids {
			s.Next(id)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(ids)), "ns/token")
}

func BenchmarkParse(b *testing.B) {
	file := read(b, "real_tokenizer.json.gz")
	for b.Loop() {
		if _, err := tokenizer.Parse(file); err != nil {
			b.Fatal(err)
		}
	}
}
