package models

import (
	"slices"
	"strconv"
)

// FormatVersion is the newest bundle format that this code writes and reads. It
// reads all older ones too. Format 2 added the voice (Dims.Speech, Voice), format 3
// speech recognition (Task, Dims.Hearing), format 4 a vocoder for the end of a speech
// (KindVocoderTail), format 5 decoders on CUDA whose norms must compute in float32, format 6 the places
// of the tables that the engines read (Graph.Table), format 7 those of all weights of the int4 decoder for CUDA
// (Graph.Tensors).
const FormatVersion = 7

// ManifestName is the manifest's file name in a bundle.
const ManifestName = "manifest.json"

// Names of a tokenizer's files.
const (
	TokenizerName       = "tokenizer.json"
	TokenizerConfigName = "tokenizer_config.json"
	VocabName           = "vocab.json"
	MergesName          = "merges.txt"
)

// Manifest describes a bundle. It has all parameters of the model, so that the engine's code has no
// constants of a model.
type Manifest struct {
	Format  int    `json:"format"`
	Name    string `json:"name"`
	Creator string `json:"creator"` // program and version
	// Task is the model's purpose.
	Task   Task   `json:"task,omitempty"`
	Source Origin `json:"source"`
	Dims   Dims   `json:"dims"`
	// Tokens are the special tokens by name, as the tokenizer has them
	// ("<|im_end|>": 151645). Empty without a tokenizer.
	Tokens map[string]int32 `json:"tokens,omitempty"`
	// Stop names the tokens that end an answer; StopSpeech the tokens that end speech.
	Stop       []string `json:"stop,omitempty"`
	StopSpeech []string `json:"stop_speech,omitempty"`
	// Forbidden lists the ids that speech must not use (bad_token_ids and punctuation), or, for
	// TaskRecognition, the ids without a token.
	Forbidden []int32  `json:"forbidden,omitempty"`
	Template  Template `json:"template"`
	// Languages are the English names of the languages that TaskRecognition knows.
	Languages []string `json:"languages,omitempty"`
	Image     Image    `json:"image"`
	Voice     *Voice   `json:"voice,omitempty"` // nil without Dims.Speech
	Graphs    []Graph  `json:"graphs"`
	Files     []File   `json:"files"`
	// Missing lists the parts that the checkpoint lacks ("vision", "speech", "token2wav", "tokenizer").
	Missing []string `json:"missing,omitempty"`
	// Random marks synthetic weights, whose answers are meaningless.
	Random bool `json:"random,omitempty"`
}

// Task is a model's purpose.
type Task string

// The tasks.
const (
	TaskCommentary  Task = ""            // writes about pictures
	TaskRecognition Task = "recognition" // transcribes speech
	TaskAligner     Task = "aligner"     // finds the times of the words of a known text
)

// Origin is the source of a checkpoint.
type Origin struct {
	Path     string `json:"path"`               // folder, or hub name
	Revision string `json:"revision,omitempty"` // of the hub
	// Files maps file names to the SHA-256 of their content.
	Files map[string]string `json:"files,omitempty"`
	// Skipped lists the parts that were left out, each with its reason.
	Skipped []string `json:"skipped,omitempty"`
}

// Dims are the sizes of the networks, from the checkpoint's config.json.
type Dims struct {
	Decoder Decoder `json:"decoder"`
	Vision  *Vision `json:"vision,omitempty"` // nil without a vision tower
	Speech  *Speech `json:"speech,omitempty"` // nil without a voice
	// Hearing is the audio encoder, nil without one.
	Hearing *Hearing `json:"hearing,omitempty"`
}

// Format returns the oldest bundle format that supports the networks.
func (d Dims) Format() int {
	switch {
	case d.Hearing != nil:
		return 3
	case d.Speech != nil:
		return 2
	}
	return 1
}

// Task returns the task of the networks.
func (d Dims) Task() Task {
	switch {
	case d.Hearing == nil:
		return TaskCommentary
	case d.Hearing.Classes > 0:
		return TaskAligner
	}
	return TaskRecognition
}

// Hearing is the audio encoder of Qwen3-ASR and Qwen3-ForcedAligner: convolutions over chunks of a
// mel spectrogram (100 frames a second), and a transformer over windows of chunks. Its rows replace
// embeddings of the decoder. Tensors have the prefix "audio_tower.".
type Hearing struct {
	Layers   int     `json:"layers"`
	Hidden   int     `json:"hidden"`
	Heads    int     `json:"heads"`
	FFN      int     `json:"ffn"`
	Channels int     `json:"channels"` // of the convolutions
	Out      int     `json:"out"`      // width of the rows, the decoder's
	Mel      int     `json:"mel"`      // bins of the spectrogram
	Chunk    int     `json:"chunk"`    // frames of a chunk
	Window   int     `json:"window"`   // chunks of a window
	Epsilon  float64 `json:"epsilon"`  // of LayerNorm
	// Classes is the number of times that an aligner can return, StepMS milliseconds apart. 0 for
	// recognition.
	Classes int `json:"classes,omitempty"`
	StepMS  int `json:"step_ms,omitempty"`
}

// halved returns the rows of frames after the three convolutions of stride 2.
func halved(frames int) int { return (frames + 7) / 8 }

// ChunkRows returns the rows of a whole chunk.
func (h Hearing) ChunkRows() int { return halved(h.Chunk) }

// Rows returns the rows of a number of frames: only the last chunk may be short.
func (h Hearing) Rows(frames int) int {
	return frames/h.Chunk*h.ChunkRows() + halved(frames%h.Chunk)
}

// Decoder is a Qwen3 language model.
type Decoder struct {
	Layers    int     `json:"layers"`
	Hidden    int     `json:"hidden"`
	Heads     int     `json:"heads"`
	KVHeads   int     `json:"kv_heads"`
	HeadDim   int     `json:"head_dim"`
	FFN       int     `json:"ffn"`
	Vocab     int     `json:"vocab"`
	Epsilon   float64 `json:"epsilon"`    // of RMSNorm
	RopeTheta float64 `json:"rope_theta"` // base of the rotary embedding
	// MaxPositions is the length of the graph's rotary tables, and so of the longest cache.
	MaxPositions int  `json:"max_positions"`
	TiedHead     bool `json:"tied_head,omitempty"` // lm_head is the embedding table
}

// Vision is a SigLIP tower and its resampler.
type Vision struct {
	Layers  int     `json:"layers"` // number of layers that run
	Hidden  int     `json:"hidden"`
	Heads   int     `json:"heads"`
	FFN     int     `json:"ffn"`
	Patch   int     `json:"patch"`   // edge in pixels
	Grid    int     `json:"grid"`    // positions per axis of the position table
	Epsilon float64 `json:"epsilon"` // of LayerNorm

	Queries        int `json:"queries"`         // embeddings per image
	Out            int `json:"out"`             // their width, the decoder's
	ResamplerHeads int `json:"resampler_heads"` // each Out/ResamplerHeads wide
	// MaxSide is the maximum number of patches along one axis of an image.
	MaxSide int `json:"max_side"`
}

// Speech is the model's own voice: a language model writes speech codes (25 a
// second), the flow turns them into a mel spectrogram (50 frames a second), and
// the vocoder into sound (24,000 samples a second). Tensors have the names of the
// published files, with a prefix each: "tts." (as in the checkpoint), "flow."
// (flow.pt) and "hift." (hift.pt without its "generator.").
type Speech struct {
	TTS     TTS     `json:"tts"`
	Flow    Flow    `json:"flow"`
	Vocoder Vocoder `json:"vocoder"`
}

// TTS is the Llama language model over speech codes, with as many key as query
// heads. Its input is text of the decoder: ids and hidden states (Decoder.Hidden
// wide).
type TTS struct {
	Layers    int     `json:"layers"`
	Hidden    int     `json:"hidden"`
	Heads     int     `json:"heads"`
	FFN       int     `json:"ffn"`
	Codes     int     `json:"codes"`      // the last one ends speech
	TextRows  int     `json:"text_rows"`  // of the text's embedding table
	Epsilon   float64 `json:"epsilon"`    // of RMSNorm
	RopeTheta float64 `json:"rope_theta"` // base of the rotary embedding
	// MaxPositions is the length of the graph's rotary tables, and so of the longest cache.
	MaxPositions int `json:"max_positions"`
	// AudioBOS and TextEOS are rows of the text's embedding table: the first
	// precedes the codes of a piece of text, the second ends the text.
	AudioBOS int `json:"audio_bos"`
	TextEOS  int `json:"text_eos"`
}

// HeadDim returns the width of an attention head.
func (t TTS) HeadDim() int { return t.Hidden / t.Heads }

// Flow turns codes into a mel spectrogram: an encoder of conformer blocks, and a
// flow matching network.
type Flow struct {
	Codes    int `json:"codes"` // rows of the code table
	Hidden   int `json:"hidden"`
	Heads    int `json:"heads"`
	FFN      int `json:"ffn"`
	Blocks   int `json:"blocks"`    // at 25 rows a second
	UpBlocks int `json:"up_blocks"` // at 50 rows a second
	Mel      int `json:"mel"`       // bins of the spectrogram
	Speaker  int `json:"speaker"`   // width of a voice's speaker embedding
	// MaxPrompt is the number of codes of the longest voice prompt: it is the
	// length of the encoder's position tables.
	MaxPrompt int `json:"max_prompt"`
	DiT       DiT `json:"dit"`
}

// DiT is the flow matching network: a transformer that runs once per Euler step,
// for two rows per voice, with and without its condition.
type DiT struct {
	Layers  int `json:"layers"`
	Hidden  int `json:"hidden"`
	Heads   int `json:"heads"`
	HeadDim int `json:"head_dim"` // Heads*HeadDim may differ from Hidden
	FFN     int `json:"ffn"`
	Time    int `json:"time"`  // width of the embedding of the time
	Steps   int `json:"steps"` // Euler steps
	// Guidance is the rate of classifier-free guidance.
	Guidance float64 `json:"guidance"`
}

// Vocoder is HiFT: a network that predicts the pitch and one that predicts the
// spectrum of the sound (480 samples per frame of Flow.Mel bins).
type Vocoder struct {
	Channels int `json:"channels"` // after the first convolution; each of the three stages halves them
	Pitch    int `json:"pitch"`    // of the pitch predictor's convolutions
}

// Template holds the pieces of the chat template (Qwen2 ChatML).
type Template struct {
	System    string `json:"system,omitempty"`    // "<|im_start|>system\n"
	User      string `json:"user,omitempty"`      // "<|im_start|>user\n"
	Assistant string `json:"assistant,omitempty"` // "<|im_start|>assistant\n"
	End       string `json:"end,omitempty"`       // "<|im_end|>\n"
	NoThink   string `json:"no_think,omitempty"`  // "<think>\n\n</think>\n\n"
	Speech    string `json:"speech,omitempty"`    // "<|tts_bos|>"

	// For recognition and alignment. A prompt has one AudioPad for each row of audio.
	AudioStart string `json:"audio_start,omitempty"` // "<|audio_start|>"
	AudioPad   string `json:"audio_pad,omitempty"`   // "<|audio_pad|>"
	AudioEnd   string `json:"audio_end,omitempty"`   // "<|audio_end|>"
	Transcript string `json:"transcript,omitempty"`  // "<asr_text>", between the language and the text
	Timestamp  string `json:"timestamp,omitempty"`   // "<timestamp>", twice behind each word of an aligner's prompt
}

// Image holds the preprocessing constants (preprocessor_config.json).
type Image struct {
	MaxSlices       int        `json:"max_slices"`
	ScaleResolution int        `json:"scale_resolution"`
	Patch           int        `json:"patch"`
	Features        int        `json:"features"` // embeddings per image
	UseImageID      bool       `json:"use_image_id"`
	Mean            [3]float64 `json:"mean"`
	Std             [3]float64 `json:"std"`
}

// Voice names the files that make voices, under their published names.
type Voice struct {
	// Speaker and Codes are ONNX models that analyse a voice: from a filter bank to its speaker
	// embedding (Flow.Speaker wide), and from a mel spectrogram to its codes. See
	// Manifest.VoiceGraphs.
	Speaker string `json:"speaker"`
	Codes   string `json:"codes"`
	// Sound is the published voice, a WAV file. Empty if the checkpoint lacks it.
	Sound string `json:"sound,omitempty"`
}

// FramesPerCode is the number of frames of a Voice's mel spectrogram per code.
const FramesPerCode = 4

// VoiceGraphs returns the models of Voice as graphs for the CPU. They have no kind.
func (m *Manifest) VoiceGraphs() []Graph {
	v, s := m.Voice, m.Dims.Speech
	if v == nil || s == nil {
		return nil
	}
	graph := func(file string, output Port, inputs ...Port) Graph {
		return Graph{Weights: WeightsFloat32, Device: DeviceCPU, File: file, Inputs: inputs, Outputs: []Port{output}}
	}
	return []Graph{
		graph(v.Speaker, Port{"output", Float32, []string{"B", strconv.Itoa(s.Flow.Speaker)}},
			Port{"input", Float32, []string{"B", "T", "80"}}),
		graph(v.Codes, Port{"indices", Int32, []string{"B", "C"}},
			Port{"feats", Float32, []string{"B", "128", "T"}}, Port{"feats_length", Int32, []string{"B"}}),
	}
}

// Kind is the network that a graph implements.
type Kind string

// The networks.
const (
	KindDecoder Kind = "decoder"
	KindVision  Kind = "vision"
	KindEmbed   Kind = "embed"

	// The networks of Speech, in their order.
	KindTTSCondition Kind = "tts_condition" // text to inputs of the TTS
	KindTTS          Kind = "tts"           // to codes
	KindFlowEncoder  Kind = "flow_encoder"  // codes to the condition of the DiT
	// KindFlowDiT computes 50 frames of many rooms, KindFlowDiTOnce any number of one room: a
	// voice's prompt, and the end of a speech.
	KindFlowDiT     Kind = "flow_dit"
	KindFlowDiTOnce Kind = "flow_dit_once"
	KindVocoder     Kind = "vocoder"
	KindVocoderTail Kind = "vocoder_tail" // for the end of a speech, of any length

	// The networks of Hearing.
	KindHearing Kind = "hearing" // sound to rows of the decoder
	KindAligner Kind = "aligner" // a whole prompt to times; the decoder of TaskAligner
)

// Hears reports whether a network belongs to Hearing.
func (k Kind) Hears() bool { return k == KindHearing || k == KindAligner }

// Speaks reports whether a network belongs to Speech.
func (k Kind) Speaks() bool {
	switch k {
	case KindTTSCondition, KindTTS, KindFlowEncoder, KindFlowDiT, KindFlowDiTOnce, KindVocoder,
		KindVocoderTail:
		return true
	case KindDecoder, KindVision, KindEmbed, KindHearing, KindAligner:
	}
	return false
}

// Weights is the storage format of a graph's matrices.
type Weights string

// The weight formats. Int4 is symmetric or (AWQ) with zero points, in blocks.
const (
	WeightsInt4     Weights = "int4"
	WeightsFloat16  Weights = "fp16"
	WeightsBFloat16 Weights = "bf16"
	WeightsFloat32  Weights = "fp32"
)

// Device is the target of a graph. CUDA graphs compute in float16 or bfloat16 with fused
// norms, CPU graphs in float32 with plain nodes.
type Device string

// The devices.
const (
	DeviceCPU  Device = "cpu"
	DeviceCUDA Device = "cuda"
)

// Graph is one ONNX file of a bundle.
type Graph struct {
	Kind    Kind    `json:"kind"`
	Weights Weights `json:"weights"`
	Device  Device  `json:"device"`
	File    string  `json:"file"`
	// Data lists the external data files of the graph, in the same folder.
	Data    []string `json:"data"`
	Inputs  []Port   `json:"inputs"`
	Outputs []Port   `json:"outputs"`
	// Table is the table of embeddings of KindEmbed and KindTTSCondition, with a row for each id, which the engines read from
	// the file. Nil in a bundle of a format before 6.
	Table *Tensor `json:"table,omitempty"`
	// Tensors are all weights in the data files, if HasTensors. Empty in a bundle of a format before 7.
	Tensors []Tensor `json:"tensors,omitempty"`
	// WeightBytes is the memory that the initializers need.
	WeightBytes int64 `json:"weight_bytes"`
	// Head is the number of bits of an int4 decoder's vocabulary matrix: 4, 8, or 16 for floats.
	Head int `json:"head,omitempty"`
	// Block is the number of inputs per scale of an int4 decoder.
	Block      int  `json:"block,omitempty"`
	ZeroPoints bool `json:"zero_points,omitempty"`
	// Check marks a graph with the extra outputs of the conformance check.
	Check bool `json:"check,omitempty"`
}

// Tensor is the place of a weight in a data file, row-major and little-endian.
type Tensor struct {
	Name   string  `json:"name"` // of the graph's initializer
	File   string  `json:"file"`
	Offset int64   `json:"offset"` // bytes
	Type   Type    `json:"type"`
	Shape  []int64 `json:"shape"`
}

// Bytes returns the length of the weight.
func (t *Tensor) Bytes() int64 {
	n := int64(t.Type.Size())
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// HasTable reports whether graphs of a kind have a Table.
func (k Kind) HasTable() bool { return k == KindEmbed || k == KindTTSCondition }

// HasTensors reports whether a graph has Tensors: a decoder in int4 for CUDA, except that of the conformance check.
func (g *Graph) HasTensors() bool {
	return g.Kind == KindDecoder && g.Weights == WeightsInt4 && g.Device == DeviceCUDA && !g.Check
}

// Tensor returns the place of a weight by the name of the initializer; false if Tensors lacks it.
func (g *Graph) Tensor(name string) (Tensor, bool) {
	i := slices.IndexFunc(g.Tensors, func(t Tensor) bool { return t.Name == name })
	if i < 0 {
		return Tensor{}, false
	}
	return g.Tensors[i], true
}

// Float returns the type of the floats that a graph takes and returns, apart from logits.
func (g *Graph) Float() Type {
	for _, p := range slices.Concat(g.Inputs, g.Outputs) {
		if p.Type == Float16 || p.Type == BFloat16 {
			return p.Type
		}
	}
	return Float32
}

// SeveralRows is the free size of a decoder's last_position and hidden_states.
const SeveralRows = "R"

// Several reports whether a run of a decoder can return the hidden states of several positions. Older bundles with a voice
// return only one.
func (g *Graph) Several() bool {
	return slices.ContainsFunc(g.Inputs, func(p Port) bool {
		return p.Name == "last_position" && slices.Equal(p.Shape, []string{SeveralRows})
	})
}

// Port is an input or output of a graph.
type Port struct {
	Name string `json:"name"`
	Type Type   `json:"type"`
	// Shape holds the name of each free dimension ("B") and the size of each fixed one ("4096").
	Shape []string `json:"shape"`
}

// File is one file of a bundle.
type File struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}
