// Package modelcmd has the command lines of the commands on bundles. touchline and touchline-model share them; touchline-model carries
// the commands out, also for touchline.
package modelcmd

import "touchline/models"

// Models holds the commands under "models" as touchline has them.
type Models struct {
	List    List    `cmd:"" help:"List the bundles in a folder."`
	Convert Convert `cmd:"" help:"Convert a published checkpoint to a bundle."`
	Pull    Pull    `cmd:"" help:"Download a checkpoint and convert it to a bundle."`
	Upgrade Upgrade `cmd:"" help:"Add to an older bundle what this version needs, from its own files."`
	Verify  Verify  `cmd:"" help:"Verify the checksums of a bundle and run each of its graphs once."`
	Voice   struct {
		Add    VoiceAdd    `cmd:"" help:"Add a voice from a recording of speech."`
		List   VoiceList   `cmd:"" help:"List the voices of a bundle."`
		Remove VoiceRemove `cmd:"" help:"Remove a voice."`
	} `cmd:"" help:"Add, list and remove the voices of a bundle."`
}

// RuntimeFlags select the ONNX Runtime.
type RuntimeFlags struct {
	Library string `name:"ort" env:"TOUCHLINE_ORT" type:"path" help:"ONNX Runtime, file or folder. Default: runtime/ beside the program."`
}

// FormatFlags select the contents of a bundle.
type FormatFlags struct {
	Weights      []models.Weights `help:"Weights of the language model: int4, fp16, bf16, fp32. Default: by task." enum:"int4,fp16,bf16,fp32"`
	Device       []models.Device  `help:"Devices of the graphs: cuda, cpu. Default: cpu for fp32, else cuda." enum:"cuda,cpu"`
	VoiceWeights models.Weights   `help:"Weights of the model's own voice on CUDA: fp16, fp32." enum:"fp16,fp32" default:"fp16"`
	Head         int              `help:"Bits of an int4 model's vocabulary matrix." enum:"8,4" default:"8"`
	Clamp        bool             `help:"Limit weights that float16 cannot hold instead of failing."`
	Workers      int              `help:"Cores to use; 0 uses all."`
}

// List lists bundles.
type List struct {
	tool

	Folder string `arg:"" optional:"" default:"." type:"existingdir" help:"The folder to search, two levels deep."`
}

// Convert converts a checkpoint to a bundle.
type Convert struct {
	tool
	FormatFlags

	Source string `arg:"" type:"existingdir" help:"The checkpoint's folder: config.json, *.safetensors, the tokenizer's files."`
	Bundle string `arg:"" type:"path" help:"The folder to create."`
	Name   string `help:"Name of the model in the manifest. Default: the checkpoint's."`
}

// Pull downloads a checkpoint, or the packages of sight, and converts it.
type Pull struct {
	tool
	FormatFlags

	Model    string `arg:"" help:"Name on the hub, such as openbmb/MiniCPM-o-4_5; or sight, for the networks of that engine."`
	Bundle   string `arg:"" optional:"" type:"path" help:"The folder to create. Default, for sight only: in the user's cache."`
	From     string `type:"existingdir" help:"Folder that has the packages of sight. Default: npm and pip download them."`
	Alphabet string `enum:"four,all" default:"four" help:"Characters that sight reads: four (of English, Spanish, German and French), all."`
	Revision string `default:"main" help:"Branch, tag or commit. The manifest records the commit."`
	Keep     string `type:"path" help:"Folder for the downloaded checkpoint, which can be deleted afterwards. Default: beside the bundle."`
	Endpoint string `env:"HF_ENDPOINT" help:"URL of a mirror of the hub."`
	Token    string `env:"HF_TOKEN" help:"Token for models that require a login; preferably set in the environment."`
}

// Upgrade upgrades a bundle.
type Upgrade struct {
	tool

	Bundle string `arg:"" type:"existingdir" help:"The bundle's folder."`
}

// Verify verifies a bundle.
type Verify struct {
	tool
	RuntimeFlags

	Bundle string          `arg:"" type:"existingdir" help:"The bundle's folder."`
	Device []models.Device `help:"Devices whose graphs to run: cpu, cuda. Default: those that the ONNX Runtime supports." enum:"cpu,cuda"`
	NoRun  bool            `help:"Verify the checksums only."`
}

// VoiceAdd creates a voice and stores it in the bundle's folder.
type VoiceAdd struct {
	tool
	RuntimeFlags

	Bundle  string `arg:"" type:"existingdir" help:"The bundle's folder."`
	Name    string `arg:"" help:"Name of the voice: letters, digits, - and _. \"default\" is the one that speaks if no other is chosen."`
	File    string `arg:"" type:"existingfile" help:"WAV file of one speaker without music; 6 to 20 s are best."`
	Codes   int    `default:"0" enum:"0,150,75" help:"Length of the voice: 150 codes of 6 s, or 75 of 3 s. Default: by the recording."`
	Replace bool   `help:"Replace a voice of that name."`
	JSON    bool   `name:"json" help:"Print one JSON object."`
}

// VoiceList lists the voices of a bundle.
type VoiceList struct {
	tool

	Bundle string `arg:"" type:"existingdir" help:"The bundle's folder."`
	JSON   bool   `name:"json" help:"Print one JSON object."`
}

// VoiceRemove removes a voice.
type VoiceRemove struct {
	tool

	Bundle string `arg:"" type:"existingdir" help:"The bundle's folder."`
	Name   string `arg:"" help:"Name of the voice."`
}
