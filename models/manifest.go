package models

// FormatVersion of the bundles this code writes and reads.
const FormatVersion = 1

// ManifestName is the manifest's file in a bundle's folder.
const ManifestName = "manifest.json"

// Manifest describes a bundle. Everything the engine must know about a model
// is in it: nothing is a constant of the code.
type Manifest struct {
	Format  int    `json:"format"`
	Name    string `json:"name"`
	Creator string `json:"creator"` // program and version
	Source  Origin `json:"source"`
	Dims    Dims   `json:"dims"`
	// Tokens are the special tokens by name, as the tokenizer has them
	// ("<|im_end|>": 151645). Empty without a tokenizer.
	Tokens map[string]int32 `json:"tokens,omitempty"`
	// Stop are the names of the tokens that end an answer; of speech: StopSpeech.
	Stop       []string `json:"stop,omitempty"`
	StopSpeech []string `json:"stop_speech,omitempty"`
	// Forbidden are the ids never chosen on the speech path (bad_token_ids and marks).
	Forbidden []int32  `json:"forbidden,omitempty"`
	Template  Template `json:"template"`
	Image     Image    `json:"image"`
	Graphs    []Graph  `json:"graphs"`
	Files     []File   `json:"files"`
	// Missing says in words what the checkpoint lacked ("vision", "tokenizer").
	Missing []string `json:"missing,omitempty"`
	// Random is true for synthesised weights: the answers mean nothing.
	Random bool `json:"random,omitempty"`
}

// Origin is where a checkpoint came from.
type Origin struct {
	Path     string `json:"path"`               // folder, or hub name
	Revision string `json:"revision,omitempty"` // of the hub
	// Files with the SHA-256 of their content, by name.
	Files map[string]string `json:"files,omitempty"`
	// Skipped are parts that were left out, with the reason.
	Skipped []string `json:"skipped,omitempty"`
}

// Dims are the sizes of the networks, from the checkpoint's config.json.
type Dims struct {
	Decoder Decoder `json:"decoder"`
	Vision  *Vision `json:"vision,omitempty"` // nil without a vision tower
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
	// MaxPositions bounds the rotary tables of the graph: the longest cache.
	MaxPositions int  `json:"max_positions"`
	TiedHead     bool `json:"tied_head,omitempty"` // lm_head is the embedding table
}

// Vision is a SigLIP tower and the resampler behind it.
type Vision struct {
	Layers  int     `json:"layers"` // that run
	Hidden  int     `json:"hidden"`
	Heads   int     `json:"heads"`
	FFN     int     `json:"ffn"`
	Patch   int     `json:"patch"`   // edge in pixels
	Grid    int     `json:"grid"`    // positions per axis of the position table
	Epsilon float64 `json:"epsilon"` // of LayerNorm

	Queries        int `json:"queries"`         // embeddings per image
	Out            int `json:"out"`             // their width, the decoder's
	ResamplerHeads int `json:"resampler_heads"` // of width Out/ResamplerHeads
	// MaxSide bounds the patches along one axis of an image.
	MaxSide int `json:"max_side"`
}

// Template holds the pieces of the chat template (facts: Qwen2 ChatML).
type Template struct {
	System    string `json:"system,omitempty"`    // "<|im_start|>system\n"
	User      string `json:"user,omitempty"`      // "<|im_start|>user\n"
	Assistant string `json:"assistant,omitempty"` // "<|im_start|>assistant\n"
	End       string `json:"end,omitempty"`       // "<|im_end|>\n"
	NoThink   string `json:"no_think,omitempty"`  // "<think>\n\n</think>\n\n"
	Speech    string `json:"speech,omitempty"`    // "<|tts_bos|>"
}

// Image are the preprocessing constants (preprocessor_config.json).
type Image struct {
	MaxSlices       int        `json:"max_slices"`
	ScaleResolution int        `json:"scale_resolution"`
	Patch           int        `json:"patch"`
	Features        int        `json:"features"` // embeddings per image
	UseImageID      bool       `json:"use_image_id"`
	Mean            [3]float64 `json:"mean"`
	Std             [3]float64 `json:"std"`
}

// Kind says which network a graph is.
type Kind string

// The networks.
const (
	KindDecoder Kind = "decoder"
	KindVision  Kind = "vision"
	KindEmbed   Kind = "embed"
)

// Weights says how a graph's matrices are stored.
type Weights string

// The weight formats. Int4 is symmetric or (AWQ) with zero points, in blocks.
const (
	WeightsInt4    Weights = "int4"
	WeightsFloat16 Weights = "fp16"
	WeightsFloat32 Weights = "fp32"
)

// Device says what a graph is written for: CUDA graphs compute in float16
// with fused norms, CPU graphs in float32 with plain nodes.
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
	// Data are the external data files that it reads, in the same folder.
	Data    []string `json:"data"`
	Inputs  []Port   `json:"inputs"`
	Outputs []Port   `json:"outputs"`
	// WeightBytes is the size of its initializers, the memory it needs for them.
	WeightBytes int64 `json:"weight_bytes"`
	// Head is the bits of the vocabulary matrix of an int4 decoder: 4, 8, or 16 for floats.
	Head int `json:"head,omitempty"`
	// Block is the inputs per scale of an int4 decoder; ZeroPoints says that it has them.
	Block      int  `json:"block,omitempty"`
	ZeroPoints bool `json:"zero_points,omitempty"`
	// Check marks a graph with the extra outputs of the conformance check.
	Check bool `json:"check,omitempty"`
}

// Port is an input or output of a graph.
type Port struct {
	Name string `json:"name"`
	Type Type   `json:"type"`
	// Shape names free dimensions ("B") and gives the others as numbers ("4096").
	Shape []string `json:"shape"`
}

// File is one file of a bundle.
type File struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}
