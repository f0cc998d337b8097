package synth

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"touchline/models"
	"touchline/models/checkpoint"
)

// Names of the shapes of speech recognition models.
const (
	tinyRecognizer = "tiny-asr"
	tinyAligner    = "tiny-aligner"
)

// hearingShapes returns the shapes of speech recognition models.
func hearingShapes() []Shape {
	small := models.Decoder{Layers: 28, Hidden: 1024, Heads: 16, KVHeads: 8, HeadDim: 128, FFN: 3072, Vocab: 151936}
	large := small
	large.Hidden, large.FFN = 2048, 6144
	aligner := small
	aligner.Vocab = 152064
	tiny := models.Decoder{Layers: 3, Hidden: 128, Heads: 6, KVHeads: 3, HeadDim: 64, FFN: 320, Vocab: 1088}
	tower := func(layers, hidden int) models.Hearing {
		return models.Hearing{Layers: layers, Hidden: hidden, Heads: hidden / 64, FFN: 4 * hidden, Channels: 480}
	}
	tinyTower := models.Hearing{Layers: 2, Hidden: 64, Heads: 4, FFN: 160, Channels: 24}
	return []Shape{
		recognizer("qwen3-asr-0.6b", small, tower(18, 896), 0),
		recognizer("qwen3-asr-1.7b", large, tower(24, 1024), 0),
		recognizer("qwen3-aligner-0.6b", aligner, tower(24, 1024), 5000),
		recognizer(tinyRecognizer, tiny, tinyTower, 0),
		recognizer(tinyAligner, tiny, tinyTower, 500),
	}
}

// recognizer completes a shape with the constants of the published models. A shape with classes is
// an aligner.
func recognizer(name string, d models.Decoder, h models.Hearing, classes int) Shape {
	d.Epsilon, d.RopeTheta, d.MaxPositions, d.TiedHead = 1e-6, 1e6, 32768, classes == 0
	h.Out, h.Mel, h.Chunk, h.Window, h.Epsilon = d.Hidden, 128, 100, 8, 1e-5
	s := Shape{Name: name, Dims: models.Dims{Decoder: d, Hearing: &h}}
	if classes > 0 {
		h.Classes, h.StepMS = classes, 80
		s.Hearing = &h
	}
	if published := 151643; d.Vocab > published { // rows after the tokens
		names, _ := s.special()
		s.spare = d.Vocab - published - len(names)
	} else {
		s.spare = 16
	}
	return s
}

// Tokens of a prompt.
const (
	audioStart = "<|audio_start|>"
	audioPad   = "<|audio_pad|>"
	audioEnd   = "<|audio_end|>"
	asrText    = "<asr_text>"
	timestamp  = "<timestamp>"
)

// hearingTokens returns the special tokens in the published order; the ones that are plain text are
// marked with a star.
func (s Shape) hearingTokens() []string {
	text := `<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> <|quad_start|>
		<|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|> *<tool_call> *</tool_call>
		*<|fim_prefix|> *<|fim_middle|> *<|fim_suffix|> *<|fim_pad|> *<|repo_name|> *<|file_sep|> *<tool_response>
		*</tool_response> *<think> *</think> <|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> <tts_text_eod>
		<tts_text_bos_single> *<non_speech> <|audio_pad|>`
	names := strings.Fields(text)
	for i := 1; i <= 27; i++ {
		names = append(names, fmt.Sprintf("<blank%d>", i))
	}
	names = append(names, "*"+asrText)
	if s.Task() == models.TaskAligner {
		names = append(names, "*"+timestamp)
	}
	return names
}

// hearingSpecs lists the tensors of the audio encoder, and the head of an aligner.
func (s Shape) hearingSpecs() []spec {
	h := s.Hearing
	var list []spec
	vector := func(name string, n int, mean, std float64) {
		list = append(list, spec{name: "audio_tower." + name, shape: []int{n}, mean: mean, std: std})
	}
	norm := func(name string) {
		vector(name+".weight", h.Hidden, 1, 0.1)
		vector(name+".bias", h.Hidden, 0, 0.02)
	}
	layer := func(name string, gain float64, shape ...int) {
		inputs := 1
		for _, n := range shape[1:] {
			inputs *= n
		}
		list = append(list, spec{name: "audio_tower." + name + ".weight", shape: shape, std: gain / math.Sqrt(float64(inputs))})
		vector(name+".bias", shape[0], 0, 0.02)
	}
	for i, in := range []int{1, h.Channels, h.Channels} {
		layer("conv2d"+strconv.Itoa(i+1), 1.5, h.Channels, in, 3, 3)
	}
	width := h.Channels * h.Mel / 8
	list = append(list, spec{name: "audio_tower.conv_out.weight", shape: []int{h.Hidden, width}, std: 1 / math.Sqrt(float64(width))})
	depth := math.Sqrt(2 * float64(h.Layers))
	for i := range h.Layers {
		p := "layers." + strconv.Itoa(i) + "."
		norm(p + "self_attn_layer_norm")
		norm(p + "final_layer_norm")
		for _, name := range []string{"q", "k", "v"} {
			layer(p+"self_attn."+name+"_proj", 1, h.Hidden, h.Hidden)
		}
		layer(p+"self_attn.out_proj", 1/depth, h.Hidden, h.Hidden)
		layer(p+"fc1", 1, h.FFN, h.Hidden)
		layer(p+"fc2", 1/depth, h.Hidden, h.FFN)
	}
	norm("ln_post")
	layer("proj1", 1, h.Hidden, h.Hidden)
	layer("proj2", tiedStd, h.Out, h.Hidden)
	return list
}

// tiedStd is the deviation of an embedding that is also the head. It is small, because otherwise
// the likeliest token would be the last one again.
const tiedStd = 0.1

// hearingConfig returns config.json.
func (s Shape) hearingConfig() object {
	d, h, tokens := s.Decoder, s.Hearing, s.specialTokens()
	thinker := object{
		"model_type": "qwen3_asr_thinker",
		"audio_config": object{
			"model_type": "qwen3_asr_audio_encoder", "num_mel_bins": h.Mel, "n_window": h.Chunk / 2, "n_window_infer": h.Chunk * h.Window,
			"conv_chunksize": 500, "max_source_positions": 1500, "activation_function": "gelu", "scale_embedding": false,
			"output_dim": h.Out, "d_model": h.Hidden, "encoder_layers": h.Layers, "encoder_attention_heads": h.Heads,
			"encoder_ffn_dim": h.FFN, "downsample_hidden_size": h.Channels,
		},
		"text_config": object{
			"model_type": "qwen3_asr_text", "hidden_size": d.Hidden, "num_hidden_layers": d.Layers, "num_attention_heads": d.Heads,
			"num_key_value_heads": d.KVHeads, "head_dim": d.HeadDim, "intermediate_size": d.FFN, "vocab_size": d.Vocab,
			"rms_norm_eps": d.Epsilon, "rope_theta": d.RopeTheta, "max_position_embeddings": 65536,
			"tie_word_embeddings": d.TiedHead, "hidden_act": "silu", "attention_bias": false,
			"rope_scaling": object{"rope_type": "default", "interleaved": true},
		},
		"audio_token_id": tokens[audioPad], "audio_start_token_id": tokens[audioStart], "audio_end_token_id": tokens[audioEnd],
	}
	c := object{"model_type": "qwen3_asr", "architectures": []string{"Qwen3ASRForConditionalGeneration"}, "thinker_config": thinker}
	if s.Task() == models.TaskAligner {
		thinker["model_type"], thinker["classify_num"] = "qwen3_forced_aligner", h.Classes
		c["timestamp_token_id"], c["timestamp_segment_time"] = tokens[timestamp], h.StepMS
	} else {
		c["support_languages"] = languages()
	}
	return c
}

func languages() []string { return []string{"Chinese", "English", "German", "Spanish"} }

// hearingFiles returns the small files: the tokenizer is published in parts.
func (s Shape) hearingFiles() (map[string][]byte, error) {
	vocab, merges, added, err := s.pieces()
	if err != nil {
		return nil, err
	}
	decoder := map[string]checkpoint.AddedToken{}
	for _, a := range added {
		decoder[strconv.Itoa(int(a.ID))] = a
	}
	tokens := s.specialTokens()
	files, err := marshal(map[string]any{
		"config.json":              s.hearingConfig(),
		models.VocabName:           vocab,
		models.TokenizerConfigName: object{"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": decoder},
		"generation_config.json": object{
			"do_sample": false, "eos_token_id": []int32{tokens["<|im_end|>"], tokens["<|endoftext|>"]}, "pad_token_id": tokens["<|endoftext|>"],
		},
	})
	if err == nil {
		files[models.MergesName] = []byte(strings.Join(append([]string{"#version: 0.2"}, merges...), "\n") + "\n")
	}
	return files, err
}

// marshal encodes files as JSON.
func marshal(contents map[string]any) (map[string][]byte, error) {
	files := make(map[string][]byte, len(contents))
	for name, content := range contents {
		b, err := json.Marshal(content)
		if err != nil {
			return nil, err
		}
		files[name] = b
	}
	return files, nil
}

// describeHearing returns the manifest of a speech recognition model.
func (s *Source) describeHearing() (models.Manifest, error) {
	shape := s.shape
	copied := *shape.Hearing
	m := models.Manifest{
		Format: shape.Format(), Name: shape.Name, Source: s.Origin(), Task: shape.Task(), Tokens: shape.specialTokens(),
		Dims:     models.Dims{Decoder: shape.Decoder, Hearing: &copied},
		Template: models.Template{AudioStart: audioStart, AudioPad: audioPad, AudioEnd: audioEnd},
	}
	if m.Task == models.TaskAligner {
		m.Template.Timestamp = timestamp
		return m, nil
	}
	m.Template.System, m.Template.User = "<|im_start|>system\n", "<|im_start|>user\n"
	m.Template.Assistant, m.Template.End, m.Template.Transcript = "<|im_start|>assistant\n", "<|im_end|>\n", asrText
	m.Stop, m.Languages = []string{"<|im_end|>", "<|endoftext|>"}, languages()
	for id := shape.Decoder.Vocab - shape.spare; id < shape.Decoder.Vocab; id++ {
		m.Forbidden = append(m.Forbidden, int32(id))
	}
	if shape.firstToken() < len(alphabet()) {
		return m, errors.New("vocab: too small for 256 bytes and the special tokens")
	}
	return m, nil
}
