package synth_test

import (
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/inference/conformance/synth"
	"touchline/inference/tokenizer"
	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/nano"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func source(tb testing.TB, name string) *synth.Source {
	tb.Helper()
	shape, err := synth.Find(name)
	require.NoError(tb, err)
	s, err := synth.New(shape, 1)
	require.NoError(tb, err)
	return s
}

func TestRowsAreAlwaysTheSame(t *testing.T) {
	s := source(t, "tiny")
	for _, name := range []string{"llm.lm_head.weight", "vpm.encoder.layers.1.mlp.fc1.bias", "resampler.proj", "vpm.encoder.layers.0.mlp.fc2.weight"} {
		info, ok := s.Info(name)
		require.True(t, ok)
		rows, cols := info.Rows(), info.Cols()
		all := make([]float32, rows*cols)
		require.NoError(t, s.Rows(all, name, 0, rows))
		for from := 0; from < rows; from += 7 {
			to := min(from+3, rows)
			part := make([]float32, (to-from)*cols)
			require.NoError(t, s.Rows(part, name, from, to))
			require.Equal(t, all[from*cols:to*cols], part)
		}
		for _, x := range all {
			require.Equal(t, x, models.BFloat16FromBits(models.BFloat16Bits(x)))
		}
	}
	shape, err := synth.Find("tiny")
	require.NoError(t, err)
	other, err := synth.New(shape, 2)
	require.NoError(t, err)
	a, b := make([]float32, 256), make([]float32, 256)
	require.NoError(t, s.Rows(a, "llm.lm_head.weight", 0, 1))
	require.NoError(t, other.Rows(b, "llm.lm_head.weight", 0, 1))
	require.NotEqual(t, a, b)
	require.NoError(t, s.Rows(b, "llm.model.embed_tokens.weight", 0, 1))
	require.NotEqual(t, a, b)

	require.ErrorContains(t, s.Rows(a, "llm.lm_head.weight", 1362, 1363), "rows must be within 0 to 1362")
	require.ErrorContains(t, s.Rows(a, "nothing", 0, 1), `no tensor "nothing"`)
}

// TestPacked: the int4 form of a matrix has the values that Rows returns, rounded.
func TestPacked(t *testing.T) {
	shape, err := synth.Find("tiny")
	require.NoError(t, err)
	const name = "llm.model.layers.1.mlp.down_proj.weight"
	_, ok := source(t, "tiny").Packed(name)
	require.False(t, ok)
	shape.AWQ = true
	s, err := synth.New(shape, 1)
	require.NoError(t, err)
	for _, other := range []string{"llm.lm_head.weight", "llm.model.layers.1.input_layernorm.weight", "resampler.proj", "nothing"} {
		_, ok := s.Packed(other)
		require.False(t, ok, other)
	}
	p, ok := s.Packed(name)
	require.True(t, ok)
	n, k, block := p.Dims()
	require.Equal(t, []int{256, 384, 128}, []int{n, k, block})
	const from, rows = 7, 5
	blocks := k / block
	quants, scales, zeros := make([]byte, rows*k/2), make([]uint16, rows*blocks), make([]byte, rows*(blocks+1)/2)
	require.NoError(t, p.Rows(quants, scales, zeros, from, from+rows))
	want := make([]float32, rows*k)
	require.NoError(t, s.Rows(want, name, from, from+rows))
	var off, sum float64
	for i, w := range want {
		b := i % k / block
		q, zero := quants[i/2]>>(4*(i%2))&15, zeros[i/k*((blocks+1)/2)+b/2]>>(4*(b%2))&15
		got := (float32(q) - float32(zero)) * models.Float16FromBits(scales[i/k*blocks+b])
		off, sum = off+math.Pow(float64(got-w), 2), sum+math.Pow(float64(w), 2)
	}
	require.Less(t, math.Sqrt(off/sum), 0.15)
	require.Error(t, p.Rows(nil, nil, nil, 0, n+1))
}

func TestDistribution(t *testing.T) {
	s := source(t, "tiny")
	tests := []struct {
		name      string
		from, to  int
		mean, std float64
	}{
		{"llm.model.embed_tokens.weight", 0, 1362, 0, 1},
		{"llm.lm_head.weight", 0, 1256, 0, 2. / 16},
		{"llm.lm_head.weight", 1256, 1362, 0, 2. / 16 / 8},
		{"llm.model.norm.weight", 0, 256, 1, 0.1},
		{"llm.model.layers.0.mlp.down_proj.weight", 0, 256, 0, 2 / math.Sqrt(384*6)},
	}
	for _, tt := range tests {
		info, _ := s.Info(tt.name)
		w := make([]float32, (tt.to-tt.from)*info.Cols())
		require.NoError(t, s.Rows(w, tt.name, tt.from, tt.to))
		var sum, squares, next float64
		for i, x := range w {
			d := float64(x) - tt.mean
			sum += d
			squares += d * d
			next += d * (float64(w[(i+1)%len(w)]) - tt.mean)
		}
		n := float64(len(w))
		slack := 6 / math.Sqrt(n)
		require.InDelta(t, 0, sum/n/tt.std, slack, tt.name)
		require.InDelta(t, 1, math.Sqrt(squares/n)/tt.std, slack, tt.name)
		require.InDelta(t, 0, next/n/tt.std/tt.std, slack, tt.name) // neighbours are independent
	}
}

// speaking returns a checkpoint with a voice.
func speaking(tb testing.TB, name string) *synth.Source {
	tb.Helper()
	shape, err := synth.Find(name)
	require.NoError(tb, err)
	s, err := synth.New(shape.WithSpeech(), 1)
	require.NoError(tb, err)
	return s
}

// TestFolder writes the checkpoint and reads it like a published one.
func TestFolder(t *testing.T) {
	for name, s := range map[string]*synth.Source{
		"silent": source(t, "tiny"), "speaking": speaking(t, "tiny"), "recognizer": source(t, "tiny-asr"), "aligner": source(t, "tiny-aligner"),
	} {
		t.Run(name, func(t *testing.T) { testFolder(t, s) })
	}
}

func testFolder(t *testing.T, s *synth.Source) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "x")
	var written atomic.Int64
	require.NoError(t, s.Write(t.Context(), dir, s.Bytes()+1, func(n int) { written.Add(int64(n)) }))
	require.Equal(t, s.Bytes(), written.Load())
	sharded := filepath.Join(t.TempDir(), "tiny")
	require.NoError(t, s.Write(t.Context(), sharded, 2<<20, nil))
	for _, dir := range []string{dir, sharded} {
		c, err := checkpoint.Open(dir)
		require.NoError(t, err)
		require.Equal(t, s.Names(), c.Names())
		for _, name := range s.Names() {
			want, _ := s.Info(name)
			got, ok := c.Info(name)
			require.True(t, ok)
			require.Equal(t, want, got)
			a, b := make([]float32, want.Rows()*want.Cols()), make([]float32, want.Rows()*want.Cols())
			require.NoError(t, s.Rows(a, name, 0, want.Rows()))
			require.NoError(t, c.Rows(b, name, 0, want.Rows()))
			require.Equal(t, a, b, name)
		}
		want, err := s.Describe()
		require.NoError(t, err)
		got, err := c.Describe()
		require.NoError(t, err)
		require.Contains(t, want.Source.Path, "synth:tiny")
		require.Empty(t, got.Source.Skipped)
		want.Source, got.Source, want.Name, got.Name = models.Origin{}, models.Origin{}, "", ""
		require.Equal(t, want, got)
		if v := got.Voice; v != nil {
			for _, name := range []string{v.Speaker, v.Codes, v.Sound} {
				require.Equal(t, content(t, s, name), content(t, c, name))
			}
			_, _, err = c.OpenFile("flow.pt")
			require.ErrorIs(t, err, fs.ErrNotExist)
			_, _, err = s.OpenFile("../config.json")
			require.ErrorIs(t, err, fs.ErrNotExist)
		}
		require.NoError(t, c.Close())
	}
	require.Error(t, s.Write(t.Context(), dir, 1, nil), "the folder is there already")
}

// content reads a file of a voice.
func content(t *testing.T, s interface {
	OpenFile(name string) (io.ReadCloser, int64, error)
}, name string,
) []byte {
	t.Helper()
	f, size, err := s.OpenFile(name)
	require.NoError(t, err)
	b, err := io.ReadAll(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Len(t, b, int(size))
	return b
}

// TestTokenizer: the engine's tokenizer accepts the generated one.
func TestTokenizer(t *testing.T) {
	for _, name := range []string{"tiny", "minicpm-o-4.5"} {
		s := source(t, name)
		m, err := s.Describe()
		require.NoError(t, err)
		require.NoError(t, m.Validate())
		text, err := s.File("tokenizer.json")
		require.NoError(t, err)
		tok, err := tokenizer.Parse(text)
		require.NoError(t, err)
		for token, id := range m.Tokens {
			got, ok := tok.ID(token)
			require.True(t, ok)
			require.Equal(t, id, got)
		}
		vocab := m.Dims.Decoder.Vocab
		for id := range vocab {
			require.NotEmpty(t, tok.Decode([]int32{int32(id)}), "id %d", id)
		}
		const said = "<|im_start|>user\nWhat happens, é?<|im_end|>\n"
		ids := tok.Encode(said)
		require.Equal(t, said, tok.Decode(ids))
		require.Equal(t, m.Tokens["<|im_start|>"], ids[0])
		marks := map[string]bool{}
		for _, mark := range ":#@*()[]&/$" {
			marks[string(mark)] = true
		}
		for _, id := range m.Forbidden[:len(m.Forbidden)-1] {
			require.True(t, marks[tok.Decode([]int32{id})])
		}
		_, err = tokenizer.NewBuilder(tok, m.Image.Features)
		require.NoError(t, err)
	}
}

// TestMerges: with a trained tokenizer's merges English takes its tokens; a small vocabulary has no room for them.
func TestMerges(t *testing.T) {
	merges, err := nano.Merges()
	require.NoError(t, err)
	const said = "player number 9 scores a goal"
	for name, most := range map[string]int{"tiny": len(said), "minicpm-o-4.5": 10} {
		shape, err := synth.Find(name)
		require.NoError(t, err)
		s, err := synth.New(shape.WithMerges(merges), 1)
		require.NoError(t, err)
		text, err := s.File("tokenizer.json")
		require.NoError(t, err)
		tok, err := tokenizer.Parse(text)
		require.NoError(t, err)
		ids := tok.Encode(said)
		require.Equal(t, said, tok.Decode(ids))
		require.LessOrEqual(t, len(ids), most, name)
		m, err := s.Describe()
		require.NoError(t, err)
		for token, id := range m.Tokens {
			got, ok := tok.ID(token)
			require.True(t, ok)
			require.Equal(t, id, got)
		}
	}
}

// TestWordsAreRead: of a published model of speech recognition, an answer has as many tokens when it is read again.
func TestWordsAreRead(t *testing.T) {
	s := source(t, "qwen3-asr-0.6b")
	text, err := checkpoint.JoinTokenizer(s.File)
	require.NoError(t, err)
	tok, err := tokenizer.Parse(text)
	require.NoError(t, err)
	m, err := s.Describe()
	require.NoError(t, err)
	var ids []int32
	for id := int32(256); id < m.Tokens["<|endoftext|>"]; id += 97 {
		if strings.HasPrefix(tok.Decode([]int32{id}), " ") {
			ids = append(ids, id)
		}
	}
	require.Greater(t, len(ids), 1500)
	require.Equal(t, ids, tok.Encode(tok.Decode(ids)))
}

func TestRealShape(t *testing.T) {
	s := source(t, "minicpm-o-4.5")
	require.InDelta(t, 17.5e9, float64(s.Bytes()), 0.3e9)
	info, ok := s.Info("llm.model.layers.35.mlp.down_proj.weight")
	require.True(t, ok)
	require.Equal(t, models.TensorInfo{Type: models.BFloat16, Shape: []int{4096, 12288}}, info)
	_, ok = s.Packed("llm.model.layers.35.mlp.down_proj.weight")
	require.False(t, ok)
	var speech, flow, vocoder int64
	voiced := speaking(t, "minicpm-o-4.5")
	for _, name := range voiced.Names() {
		info, _ := voiced.Info(name)
		n := int64(info.Rows() * info.Cols() * info.Type.Size())
		switch part, _, _ := strings.Cut(name, "."); part {
		case "tts":
			speech += n
		case "flow":
			flow += n
		case "hift":
			vocoder += n
		}
	}
	require.InDelta(t, 0.65e9, float64(speech), 0.03e9) // an unused table is smaller than the published one
	require.InDelta(t, 595, float64(flow>>20), 2)       // as the published files, in MiB
	require.InDelta(t, 80, float64(vocoder>>20), 2)
	_, err := synth.Find("huge")
	require.ErrorContains(t, err, `must be one of minicpm-o-4.5, tiny, qwen3-asr-0.6b`)
	require.Equal(t, int64(2*(186376192+155582464+440467456)), source(t, "qwen3-asr-0.6b").Bytes())
	require.Equal(t, int64(2*(317477504+311164928+1409410048)), source(t, "qwen3-asr-1.7b").Bytes())
	aligner := source(t, "qwen3-aligner-0.6b")
	require.Equal(t, int64(2*(316427904+155713536+440467456+5120000)), aligner.Bytes())
	m, err := aligner.Describe()
	require.NoError(t, err)
	require.Equal(t, int32(151676), m.Tokens[m.Template.AudioPad])
	require.Equal(t, int32(151705), m.Tokens[m.Template.Timestamp])
}

func TestTooSmallVocabulary(t *testing.T) {
	shape, err := synth.Find("tiny")
	require.NoError(t, err)
	shape.Decoder.Vocab = 300
	_, err = synth.New(shape, 1)
	require.ErrorContains(t, err, "vocab: must hold 256 bytes and 106 special tokens, is 300")
}

func BenchmarkRows(b *testing.B) {
	s := source(b, "minicpm-o-4.5")
	const rows, cols = 64, 4096
	w := make([]float32, rows*cols)
	b.SetBytes(2 * rows * cols) // as bfloat16
	for b.Loop() {
		if err := s.Rows(w, "llm.model.layers.7.mlp.gate_proj.weight", 64, 64+rows); err != nil {
			b.Fatal(err)
		}
	}
}
