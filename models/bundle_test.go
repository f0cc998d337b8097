package models_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/models"
	"touchline/models/disk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// manifest returns a small valid manifest.
func manifest() *models.Manifest {
	port := []models.Port{{Name: "x", Type: models.Float32, Shape: []string{"B", "16"}}}
	sum := "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	return &models.Manifest{
		Format: 2, Name: "tiny", Creator: "test",
		Dims: models.Dims{
			Decoder: models.Decoder{
				Layers: 3, Hidden: 256, Heads: 6, KVHeads: 3, HeadDim: 64, FFN: 384, Vocab: 1362,
				Epsilon: 1e-6, RopeTheta: 1e6, MaxPositions: 8192,
			},
			Vision: &models.Vision{
				Layers: 2, Hidden: 96, Heads: 4, FFN: 200, Patch: 14, Grid: 70, Epsilon: 1e-6,
				Queries: 64, Out: 256, ResamplerHeads: 2, MaxSide: 1024,
			},
			Speech: &models.Speech{
				TTS: models.TTS{
					Layers: 3, Hidden: 64, Heads: 4, FFN: 160, Codes: 4250, TextRows: 1369,
					Epsilon: 1e-6, RopeTheta: 1e4, MaxPositions: 4096, AudioBOS: 1301, TextEOS: 1306,
				},
				Flow: models.Flow{
					Codes: 4300, Hidden: 32, Heads: 2, FFN: 64, Blocks: 2, UpBlocks: 2, Mel: 80, Speaker: 192, MaxPrompt: 100,
					DiT: models.DiT{Layers: 2, Hidden: 32, Heads: 2, HeadDim: 16, FFN: 128, Time: 256, Steps: 10, Guidance: 0.7},
				},
				Vocoder: models.Vocoder{Channels: 32, Pitch: 24},
			},
		},
		Tokens:    map[string]int32{"<|im_end|>": 1259},
		Stop:      []string{"<|im_end|>"},
		Forbidden: []int32{7, 8},
		Image: models.Image{
			MaxSlices: 9, ScaleResolution: 448, Patch: 14, Features: 64, Mean: [3]float64{.5, .5, .5}, Std: [3]float64{.5, .5, .5},
		},
		Graphs: []models.Graph{
			{
				Kind: models.KindEmbed, Weights: models.WeightsFloat32, Device: models.DeviceCPU,
				File: "embed-fp32-cpu.onnx", Data: []string{"embed-fp32-cpu.data"}, Inputs: port, Outputs: port,
			},
			{
				Kind: models.KindEmbed, Weights: models.WeightsFloat32, Device: models.DeviceCPU, Check: true,
				File: "embed-fp32-cpu.onnx", Inputs: port, Outputs: port,
			},
		},
		Voice: &models.Voice{Speaker: "campplus.onnx", Codes: "codes.onnx", Sound: "voice.wav"},
		Files: []models.File{
			{Name: "embed-fp32-cpu.onnx", SHA256: sum},
			{Name: "embed-fp32-cpu.data", SHA256: sum},
			{Name: "campplus.onnx", SHA256: sum},
			{Name: "codes.onnx", SHA256: sum},
			{Name: "voice.wav", SHA256: sum},
		},
	}
}

// silent returns a valid manifest of format 1.
func silent() *models.Manifest {
	m := manifest()
	m.Format, m.Dims.Speech, m.Voice = 1, nil, nil
	return m
}

// folder writes a bundle with the manifest and empty files.
func folder(tb testing.TB, m *models.Manifest) string {
	tb.Helper()
	dir := tb.TempDir()
	require.NoError(tb, models.WriteManifest(dir, m))
	for _, f := range m.Files {
		require.NoError(tb, os.WriteFile(filepath.Join(dir, f.Name), nil, 0o600))
	}
	return dir
}

func TestBundle(t *testing.T) {
	old, err := models.OpenBundle(folder(t, silent()))
	require.NoError(t, err)
	require.Equal(t, *silent(), old.Manifest)

	want := manifest()
	dir := folder(t, want)
	b, err := models.OpenBundle(dir)
	require.NoError(t, err)
	require.Equal(t, *want, b.Manifest)

	g, ok := b.Find(models.KindEmbed, models.WeightsFloat32, models.DeviceCPU)
	require.True(t, ok)
	require.False(t, g.Check)
	g, ok = b.FindCheck(models.KindEmbed, models.WeightsFloat32, models.DeviceCPU)
	require.True(t, ok)
	require.True(t, g.Check)
	_, ok = b.Find(models.KindEmbed, models.WeightsFloat16, models.DeviceCUDA)
	require.False(t, ok)
	require.NoError(t, disk.Verify(t.Context(), b, nil))
	require.Equal(t, int64(12), (&models.Manifest{Files: []models.File{{Size: 5}, {Size: 7}}}).Bytes())
}

func TestOpenBundleLooksForFiles(t *testing.T) {
	_, err := models.OpenBundle(t.TempDir())
	require.ErrorIs(t, err, models.ErrNoBundle)
	_, err = models.OpenBundle(filepath.Join(t.TempDir(), "nowhere"))
	require.ErrorIs(t, err, models.ErrNoBundle)

	dir := folder(t, manifest())
	require.NoError(t, os.Remove(filepath.Join(dir, "embed-fp32-cpu.onnx")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "embed-fp32-cpu.data"), []byte("more"), 0o600))
	_, err = models.OpenBundle(dir)
	require.ErrorContains(t, err, "embed-fp32-cpu.onnx: the file is missing")
	require.ErrorContains(t, err, "embed-fp32-cpu.data: expected 0 bytes, got 4")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "embed-fp32-cpu.onnx"), 0o700))
	_, err = models.OpenBundle(dir)
	require.ErrorContains(t, err, "embed-fp32-cpu.onnx: not a regular file")
}

func TestVerifyNamesDamagedFiles(t *testing.T) {
	m := manifest()
	for i := range m.Files {
		m.Files[i].Size = 5 << 20
	}
	dir := folder(t, m)
	content := make([]byte, 5<<20)
	for _, f := range m.Files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, f.Name), content, 0o600))
	}
	sum, err := disk.HashFile(t.Context(), filepath.Join(dir, m.Files[0].Name), nil)
	require.NoError(t, err)
	for i := range m.Files {
		m.Files[i].SHA256 = sum
	}
	require.NoError(t, models.WriteManifest(dir, m))
	b, err := models.OpenBundle(dir)
	require.NoError(t, err)

	var mu sync.Mutex
	var last int64
	require.NoError(t, disk.Verify(t.Context(), b, func(done, total int64) {
		mu.Lock()
		defer mu.Unlock()
		last = max(last, done)
		require.Equal(t, int64(25<<20), total)
	}))
	require.Equal(t, int64(25<<20), last)

	content[4<<20] ^= 1
	require.NoError(t, os.WriteFile(filepath.Join(dir, m.Files[1].Name), content, 0o600))
	require.NoError(t, os.Remove(filepath.Join(dir, m.Files[0].Name)))
	err = disk.Verify(t.Context(), b, nil)
	require.ErrorContains(t, err, m.Files[0].Name+": the file is missing")
	require.ErrorContains(t, err, m.Files[1].Name+": the content is damaged")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, disk.Verify(ctx, b, nil), context.Canceled)
}

func TestList(t *testing.T) {
	root := t.TempDir()
	put := func(name string, m *models.Manifest) {
		dir := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o700))
		require.NoError(t, os.Rename(folder(t, m), dir))
	}
	put("a", manifest())
	put("publisher/b", manifest())
	put(".hidden", manifest())
	require.NoError(t, os.MkdirAll(filepath.Join(root, "x", "y", "z"), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "broken"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "broken", models.ManifestName), []byte("{"), 0o600))
	found, err := disk.List(root)
	require.NoError(t, err)
	var names []string
	for _, l := range found {
		name, err := filepath.Rel(root, l.Dir)
		require.NoError(t, err)
		names = append(names, name)
		require.Equal(t, l.Err == nil, l.Manifest != nil)
	}
	require.Equal(t, []string{"a", "broken", "publisher/b"}, names)
	require.ErrorContains(t, found[1].Err, "manifest.json: byte 1: expected JSON")

	found, err = disk.List(filepath.Join(root, "a"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	_, err = disk.List(filepath.Join(root, "nowhere"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// badManifests are changes to the valid manifest with their errors.
var badManifests = []struct {
	change func(m *models.Manifest)
	want   string
}{
	{func(m *models.Manifest) { m.Name = "" }, `name: must be 1 to 256 characters, is ""`},
	{func(m *models.Manifest) { m.Dims.Decoder.Layers = 0 }, "dims.decoder.layers: must be a number from 1 to 4096, is 0"},
	{func(m *models.Manifest) { m.Dims.Decoder.HeadDim = 40 }, "dims.decoder.head_dim: must be a multiple of 16, is 40"},
	{func(m *models.Manifest) { m.Dims.Decoder.KVHeads = 4 }, "dims.decoder.heads: must be a multiple of kv_heads, is 6"},
	{func(m *models.Manifest) { m.Dims.Decoder.Vocab = 1 << 40 }, "dims.decoder.vocab: must be a number from 1"},
	{func(m *models.Manifest) { m.Dims.Decoder.Epsilon = 0 }, "dims.decoder.epsilon: must be a number above 0, is 0"},
	{func(m *models.Manifest) { m.Dims.Vision.Heads = 5 }, "dims.vision.hidden: must be a multiple of heads, is 96"},
	{func(m *models.Manifest) { m.Dims.Vision.Out = 512 }, "dims.vision.out: must be dims.decoder.hidden (256), is 512"},
	{func(m *models.Manifest) { m.Dims.Speech.TTS.Heads = 3 }, "dims.speech.tts.hidden: must be a multiple of 16*heads, is 64"},
	{func(m *models.Manifest) { m.Dims.Speech.TTS.TextEOS = 1369 }, "dims.speech.tts.text_eos: must be a row below text_rows (1369), is 1369"},
	{func(m *models.Manifest) { m.Dims.Speech.Flow.UpBlocks = 0 }, "dims.speech.flow.up_blocks: must be a number from 1"},
	{func(m *models.Manifest) { m.Dims.Speech.Flow.Heads = 3 }, "dims.speech.flow.hidden: must be a multiple of 2*heads, is 32"},
	{func(m *models.Manifest) { m.Dims.Speech.Flow.DiT.Time = 7 }, "dims.speech.flow.dit.time: must be even, is 7"},
	{func(m *models.Manifest) { m.Dims.Speech.Flow.DiT.Guidance = -1 }, "dims.speech.flow.dit.guidance: must be a number from 0 to 100, is -1"},
	{func(m *models.Manifest) { m.Dims.Speech.Vocoder.Channels = 36 }, "dims.speech.vocoder.channels: must be a multiple of 8, is 36"},
	{func(m *models.Manifest) { m.Graphs[0].Kind, m.Dims.Speech = models.KindTTS, nil }, "graphs[0].kind: must be another kind without dims.speech"},
	{func(m *models.Manifest) { m.Format = 1 }, "format: must be 2 with these dims, is 1"},
	{func(m *models.Manifest) { m.Task = models.TaskRecognition }, `task: must be "" by the dims, is "recognition"`},
	{hears(func(*models.Hearing) {}), `task: must be "recognition" by the dims, is ""`},
	{hears(func(*models.Hearing) {}), "format: must be 3 with these dims, is 2"},
	{hears(func(h *models.Hearing) { h.Heads = 3 }), "dims.hearing.hidden: must be a multiple of 2*heads, is 64"},
	{hears(func(h *models.Hearing) { h.Out = 64 }), "dims.hearing.out: must be dims.decoder.hidden (256), is 64"},
	{hears(func(h *models.Hearing) { h.Mel = 127 }), "dims.hearing.mel: must be a multiple of 8, is 127"},
	{hears(func(h *models.Hearing) { h.Window = 0 }), "dims.hearing.window"},
	{hears(func(h *models.Hearing) { h.Classes = 5 }), "dims.hearing.step_ms: must be 1 to 10000 with classes, else 0, is 0"},
	{func(m *models.Manifest) { m.Graphs[0].Kind = models.KindHearing }, "graphs[0].kind: must be another kind without dims.hearing"},
	{func(m *models.Manifest) { m.Dims.Speech = nil }, "voice: must be present with dims.speech, and only with it, is true"},
	{func(m *models.Manifest) { m.Voice = nil }, "voice: must be present with dims.speech, and only with it, is false"},
	{func(m *models.Manifest) { m.Voice.Speaker = "" }, `voice.speaker: must be a name in files, is ""`},
	{func(m *models.Manifest) { m.Voice.Codes = "x" }, `voice.codes: must be a name in files, is "x"`},
	{func(m *models.Manifest) { m.Voice.Sound = "../x" }, `voice.sound: must be a name in files, is "../x"`},
	{func(m *models.Manifest) { m.Image.Patch = 16 }, "image.patch: must be dims.vision.patch (14), is 16"},
	{func(m *models.Manifest) { m.Image.Std[1] = 0 }, "image.std[1]: must be a number above 0, is 0"},
	{func(m *models.Manifest) { m.Tokens["x"] = 1362 }, `tokens["x"]: must be an id below dims.decoder.vocab (1362), is 1362`},
	{func(m *models.Manifest) { m.Forbidden[0] = -1 }, "forbidden[0]: must be an id below"},
	{func(m *models.Manifest) { m.Stop = []string{"<eos>"} }, `stop[0]: must be a name in tokens, is "<eos>"`},
	{func(m *models.Manifest) { m.Stop = nil }, "stop: must be at least one token, is empty"},
	{func(m *models.Manifest) { m.StopSpeech = []string{"y"} }, `stop_speech[0]: must be a name in tokens, is "y"`},
	{func(m *models.Manifest) { m.Files[0].Name = "../../etc/passwd" }, `files[0].name: must be a plain file name, is "../../etc/passwd"`},
	{func(m *models.Manifest) { m.Files[0].Name = "/abs" }, "files[0].name: must be a plain file name"},
	{func(m *models.Manifest) { m.Files[0].Name = `a\b` }, "files[0].name: must be a plain file name"},
	{func(m *models.Manifest) { m.Files[0].Name = "manifest.json" }, "files[0].name: must be a file other than the manifest"},
	{func(m *models.Manifest) { m.Files[1].Name = m.Files[0].Name }, "files[1].name: must be unique"},
	{func(m *models.Manifest) { m.Files[1].Size = -1 }, "files[1].size: must be a file size, is -1"},
	{func(m *models.Manifest) { m.Files[1].SHA256 = "abc" }, `files[1].sha256: must be 64 hexadecimal digits, is "abc"`},
	{func(m *models.Manifest) { m.Graphs[0].Kind = "audio" }, `graphs[0].kind: must be one of ["decoder" "vision" "embed" "a network of speech or hearing"], is "audio"`},
	{func(m *models.Manifest) { m.Graphs[0].Device = "tpu" }, `graphs[0].device: must be one of`},
	{func(m *models.Manifest) { m.Graphs[0].Weights = "int2" }, `graphs[0].weights: must be one of`},
	{func(m *models.Manifest) { m.Graphs[0].File = "other.onnx" }, `graphs[0].file: must be a name in files, is "other.onnx"`},
	{func(m *models.Manifest) { m.Graphs[0].File = "embed-fp32-cpu.data" }, "graphs[0].file: must be an .onnx file"},
	{func(m *models.Manifest) { m.Graphs[0].Data[0] = "x" }, `graphs[0].data[0]: must be a name in files, is "x"`},
	{func(m *models.Manifest) { m.Graphs[1].Check = false }, "graphs[1].kind: must be unique"},
	{func(m *models.Manifest) { m.Graphs[0].Kind, m.Dims.Vision = models.KindVision, nil }, "graphs[0].kind: must be another kind without dims.vision"},
	{func(m *models.Manifest) { m.Graphs[0].Head = 5 }, "graphs[0].head: must be 4, 8 or 16 bits, is 5"},
	{func(m *models.Manifest) { m.Graphs[0].Block = 33 }, "graphs[0].block: must be a power of two up to 256, is 33"},
	{func(m *models.Manifest) { m.Graphs[0].WeightBytes = -4 }, "graphs[0].weight_bytes: must be at least 0, is -4"},
	{func(m *models.Manifest) { m.Graphs[0].Inputs = nil }, "graphs[0].inputs: must be at least one, is empty"},
	{func(m *models.Manifest) { m.Graphs[0].Inputs[0].Name = "" }, "graphs[0].inputs[0].name: must be unique and not empty"},
	{func(m *models.Manifest) { m.Graphs[0].Outputs[0].Shape[1] = "-3" }, `graphs[0].outputs[0].shape[1]: must be a size or a name, is "-3"`},
	{func(m *models.Manifest) {
		m.Graphs[0].Inputs = []models.Port{{Name: "x", Type: models.Float16, Shape: []string{"B"}}}
		m.Graphs[1].Inputs = []models.Port{{Name: "x", Type: models.BFloat16, Shape: []string{"B"}}}
	}, "graphs[1].inputs: must be of the float type of the graphs before, is bfloat16"},
	{func(m *models.Manifest) { m.Format = 6 }, "graphs[0].table: must be the place of its table of embeddings, is missing"},
	{func(m *models.Manifest) { m.Graphs[0].Tensors = []models.Tensor{{Type: models.Int8}} }, "graphs[0].tensors: must be only of a decoder in int4 for cuda"},
	{table(func(t *models.Tensor) { t.File = "voice.wav" }), `graphs[0].table.file: must be a name in the graph's data, is "voice.wav"`},
	{table(func(t *models.Tensor) { t.Shape = t.Shape[:1] }), "graphs[0].table.shape: must be two positive sizes, is [3]"},
	{table(func(t *models.Tensor) { t.Shape[1]++ }), "graphs[0].table.offset: must be a place of the whole tensor in its file, is 16"},
	{tensors(func(g *models.Graph) { g.Tensors = nil }), "graphs[0].tensors: must be the places of its weights, is missing"},
	{tensors(func(g *models.Graph) { g.Check = true }), "graphs[0].tensors: must be only of a decoder in int4 for cuda"},
	{tensors(func(g *models.Graph) { g.Tensors[0].File = "voice.wav" }), `graphs[0].tensors[0].file: must be a name in the graph's data, is "voice.wav"`},
	{tensors(func(g *models.Graph) { g.Tensors[1].Name = "" }), `graphs[0].tensors[1].name: must be not empty, is ""`},
	{tensors(func(g *models.Graph) { g.Tensors[1].Name = "a" }), `graphs[0].tensors[1].name: must be unique, is "a"`},
	{tensors(func(g *models.Graph) { g.Tensors[1].Shape = nil }), "graphs[0].tensors[1].shape: must be positive sizes, is []"},
	{tensors(func(g *models.Graph) { g.Tensors[1].Shape[0] = -2 }), "graphs[0].tensors[1].shape: must be positive sizes, is [-2 5]"},
	{tensors(func(g *models.Graph) { g.Tensors[1].Shape = []int64{1 << 40, 1 << 40} }), "graphs[0].tensors[1].shape: must be positive sizes"},
	{tensors(func(g *models.Graph) { g.Tensors[1].Offset = -1 }), "graphs[0].tensors[1].offset: must be a place of the whole tensor in its file, is -1"},
	{tensors(func(g *models.Graph) { g.Tensors[1].Offset++ }), "graphs[0].tensors[1].offset: must be a place of the whole tensor in its file, is 21"},
}

// table adds a table of [3,2] numbers, which ends with its file.
func table(change func(*models.Tensor)) func(*models.Manifest) {
	return func(m *models.Manifest) {
		g := &m.Graphs[0]
		m.Files[1].Size = 40
		g.Table = &models.Tensor{Name: "table", File: g.Data[0], Offset: 16, Type: models.Float32, Shape: []int64{3, 2}}
		change(g.Table)
	}
}

// tensors makes the first graph a decoder in int4 for CUDA with two tensors, which fill its data file.
func tensors(change func(*models.Graph)) func(*models.Manifest) {
	return func(m *models.Manifest) {
		m.Format, m.Files[1].Size = models.FormatVersion, 40
		g := &m.Graphs[0]
		m.Graphs = m.Graphs[:1]
		g.Kind, g.Weights, g.Device = models.KindDecoder, models.WeightsInt4, models.DeviceCUDA
		g.Tensors = []models.Tensor{
			{Name: "a", File: g.Data[0], Type: models.Float16, Shape: []int64{10}},
			{Name: "b", File: g.Data[0], Offset: 20, Type: models.Uint8, Shape: []int64{4, 5}},
		}
		change(g)
	}
}

func TestTensor(t *testing.T) {
	m := manifest()
	tensors(func(*models.Graph) {})(m)
	require.NoError(t, m.Validate())
	b, ok := m.Graphs[0].Tensor("b")
	require.True(t, ok)
	require.Equal(t, m.Graphs[0].Tensors[1], b)
	require.Equal(t, int64(20), b.Bytes())
	_, ok = m.Graphs[0].Tensor("c")
	require.False(t, ok)
}

// hears adds an encoder of sound.
func hears(change func(*models.Hearing)) func(*models.Manifest) {
	return func(m *models.Manifest) {
		m.Dims.Hearing = &models.Hearing{
			Layers: 2, Hidden: 64, Heads: 2, FFN: 96, Channels: 8, Out: 256, Mel: 128, Chunk: 100, Window: 8, Epsilon: 1e-5,
		}
		change(m.Dims.Hearing)
	}
}

func TestManifestRules(t *testing.T) {
	for _, tt := range badManifests {
		m := manifest()
		tt.change(m)
		require.ErrorContains(t, m.Validate(), tt.want)
		require.Error(t, models.WriteManifest(t.TempDir(), m), tt.want)
		text, err := json.Marshal(m)
		require.NoError(t, err)
		_, err = models.ParseManifest(text)
		require.ErrorContains(t, err, tt.want)
	}
}

func TestParseManifestRefuses(t *testing.T) {
	good, err := json.Marshal(manifest())
	require.NoError(t, err)
	tests := []struct{ text, want string }{
		{"", "expected JSON"},
		{"null", "format: missing"},
		{"[]", "expected a manifest"},
		{"{}", "format: missing"},
		{`{"format":"x"}`, "format: expected int, got a JSON string"},
		{`{"format":8,"new":{}}`, "this program reads formats 1 to 7, the bundle has 8: use a newer program"},
		{`{"format":0}`, "the bundle has 0: convert the checkpoint again"},
		{`{"format":1,"colour":1}`, `unknown field "colour"`},
		{strings.Replace(string(good), `"hidden":256`, `"hidden":"wide"`, 1), "dims.decoder.hidden: expected int, got a JSON string"},
		{strings.Replace(string(good), `"float32"`, `"float13"`, 1), `got "float13"`},
		{string(good) + "{}", "after top-level value"},
		{string(good[:len(good)/2]), "expected JSON"},
	}
	for _, tt := range tests {
		_, err := models.ParseManifest([]byte(tt.text))
		require.ErrorContains(t, err, tt.want)
	}
	var format *models.FormatError
	_, err = models.ParseManifest([]byte(`{"format":8}`))
	require.ErrorAs(t, err, &format)
	require.Equal(t, 8, format.Format)

	m, dir := manifest(), t.TempDir()
	m.Format = 8
	require.ErrorAs(t, models.WriteManifest(dir, m), &format)
	require.NoFileExists(t, filepath.Join(dir, models.ManifestName))
}

func FuzzParseManifest(f *testing.F) {
	good, err := json.Marshal(manifest())
	require.NoError(f, err)
	f.Add(good)
	for _, tt := range badManifests {
		m := manifest()
		tt.change(m)
		text, err := json.Marshal(m)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := models.ParseManifest(text)
		if err != nil {
			return
		}
		for _, file := range m.Files {
			require.True(t, filepath.IsLocal(file.Name))
			require.Equal(t, filepath.Base(file.Name), file.Name)
		}
		again, err := json.Marshal(m)
		require.NoError(t, err)
		_, err = models.ParseManifest(again)
		require.NoError(t, err)
	})
}
