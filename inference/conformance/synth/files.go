package synth

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"touchline/models/checkpoint"
)

// special returns the names of the special tokens in the published order. They
// have the last ids. A decoder that skips special tokens treats plain ones as
// text.
func (s Shape) special() (names []string, plain map[string]bool) {
	plain = map[string]bool{}
	if s.Hearing != nil {
		names = s.hearingTokens()
		for i, name := range names {
			var text bool
			if names[i], text = strings.CutPrefix(name, "*"); text {
				plain[names[i]] = true
			}
		}
		return names, plain
	}
	text := `<unk> <|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|>
		<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>
		<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|>
		<tool_response> </tool_response> <think> </think> <image> </image> <ref> </ref> <box> </box> <quad> </quad>
		<point> </point> <slice> </slice> <image_id> </image_id> <unit> </unit> <answer> </answer> <focus> </focus>
		<line> </line> <perception> </perception> <source_image> </source_image> <image_save_to> </image_save_to>
		<|audio_start|> <|audio|> <|audio_end|> <|spk_bos|> <|spk|> <|spk_eos|> <|tts_bos|> <|tts_eos|> <|listen|>
		<|speak|> <|interrupt|> <|vad_start|> <|vad_end|> <|emotion_start|> <|emotion_end|> <|speed_start|>
		<|speed_end|> <|pitch_start|> <|pitch_end|> <|turn_bos|> <|turn_eos|> <|chunk_eos|> <|chunk_bos|>
		<|chunk_tts_bos|> <|chunk_tts_eos|> <|tts_pad|>`
	names = strings.Fields(text)
	for i := 7; i <= 31; i++ {
		names = append(names, fmt.Sprintf("<|timbre_%d|>", i))
	}
	for _, name := range names[slices.Index(names, "<tool_call>") : slices.Index(names, "</think>")+1] {
		plain[name] = true
	}
	return names, plain
}

// firstToken returns the first id of a special token.
func (s Shape) firstToken() int {
	names, _ := s.special()
	return s.Decoder.Vocab - s.spare - len(names)
}

func (s Shape) specialTokens() map[string]int32 {
	names, _ := s.special()
	tokens := make(map[string]int32, len(names))
	for i, name := range names {
		tokens[name] = int32(s.firstToken() + i)
	}
	return tokens
}

// alphabet returns the pieces of the 256 bytes by the byte-level convention:
// visible Latin-1 characters first, as themselves, then the others from U+0100
// on.
func alphabet() []string {
	var visible, others []string
	for b := range 256 {
		if b >= '!' && b <= '~' || b >= 0xa1 && b != 0xad {
			visible = append(visible, string(rune(b)))
		} else {
			others = append(others, string(rune(0x100+len(others))))
		}
	}
	return append(visible, others...)
}

// forbidden returns the ids that speech must not use: punctuation and the unknown token.
func (s Shape) forbidden() []int32 {
	pieces := alphabet()
	var ids []int32
	for _, mark := range ":#@*()[]&/$" {
		ids = append(ids, int32(slices.Index(pieces, string(mark))))
	}
	slices.Sort(ids)
	return append(ids, s.specialTokens()["<unk>"])
}

// The syllables of made-up words.
const (
	consonants, vowels = "bdfghklmnprstvwz", "aeiou"
	syllables          = len(consonants) * len(vowels)
	space              = "Ġ"
)

func syllable(n int) string {
	return string([]byte{consonants[n%len(consonants)], vowels[n/len(consonants)%len(vowels)]})
}

// word returns a made-up word of two syllables or more with a leading space,
// unique for n.
func word(n int) string {
	w := []byte(space + syllable(n) + syllable(n/syllables))
	for n /= syllables * syllables; n > 0; n /= syllables {
		n--
		w = append(w, syllable(n)...)
	}
	return string(w)
}

// wordMerges returns n merges that form syllables, and words from syllables.
func wordMerges(n int) []string {
	merges := make([]string, 0, n)
	for i := range syllables {
		s := syllable(i)
		merges = append(merges, s[:1]+" "+s[1:])
	}
	for i := range syllables {
		merges = append(merges, space+" "+syllable(i))
	}
	for i := 0; len(merges) < n; i++ {
		w := word(i)
		merges = append(merges, w[:len(w)-2]+" "+w[len(w)-2:])
	}
	return merges
}

// tokenizerMerges returns the merges of the tokenizer. A published speech recognition model tokenises its own answers again in each live
// step, so its words must map to the same tokens.
func (s Shape) tokenizerMerges() []string {
	if s.Hearing != nil && s.spare > 0 {
		return wordMerges(s.firstToken() - len(alphabet()))
	}
	return s.merges
}

type object = map[string]any

// files returns the checkpoint's small files.
func (s Shape) files() (map[string][]byte, error) {
	if s.Hearing != nil {
		return s.hearingFiles()
	}
	vocab, merges, added, err := s.pieces()
	if err != nil {
		return nil, err
	}
	tokenizer, err := checkpoint.TokenizerJSON(vocab, merges, added)
	if err != nil {
		return nil, err
	}
	tokens := s.specialTokens()
	contents := map[string]any{
		"config.json":    s.config(),
		"tokenizer.json": json.RawMessage(tokenizer),
		"tokenizer_config.json": object{
			"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": "<unk>",
			"add_bos_token": false, "add_prefix_space": false, "bad_token_ids": []int{},
		},
		"generation_config.json": object{
			"bos_token_id": tokens["<|endoftext|>"], "eos_token_id": []int32{tokens["<|im_end|>"], tokens["<|endoftext|>"]},
			"pad_token_id": tokens["<|endoftext|>"],
		},
	}
	if v := s.Vision; v != nil {
		contents["preprocessor_config.json"] = object{
			"max_slice_nums": s.MaxSlices, "scale_resolution": s.ScaleResolution, "patch_size": v.Patch,
			"image_feature_size": v.Queries, "use_image_id": true, "slice_mode": true, "version": 4.5,
			"norm_mean": []float64{.5, .5, .5}, "norm_std": []float64{.5, .5, .5},
		}
	}
	return marshal(contents)
}

// pieces returns the tokenizer's vocabulary and merges: single bytes, merged ones, the special tokens and, in between, made-up words.
// These occur in answers but, as they have no merges, never match text.
func (s Shape) pieces() (vocab map[string]int32, merges []string, added []checkpoint.AddedToken, err error) {
	pieces := alphabet()
	merges = s.tokenizerMerges()
	for _, m := range merges {
		pieces = append(pieces, strings.Replace(m, " ", "", 1))
	}
	names, plain := s.special()
	first := s.firstToken()
	if first < len(pieces) {
		return nil, nil, nil, fmt.Errorf("vocab: must hold %d bytes and %d special tokens, is %d", len(pieces), len(names), s.Decoder.Vocab)
	}
	vocab = make(map[string]int32, first)
	add := func(piece string) {
		if _, ok := vocab[piece]; !ok {
			vocab[piece] = int32(len(vocab))
		}
	}
	for _, piece := range pieces {
		add(piece)
	}
	for n := 0; len(vocab) < first; n++ {
		add(word(n))
	}
	for i, name := range names {
		added = append(added, checkpoint.AddedToken{
			ID: int32(first + i), Content: name, Special: !plain[name],
		})
	}
	return vocab, merges, added, nil
}

// config returns config.json with the fields that package checkpoint reads.
func (s Shape) config() object {
	d := s.Decoder
	c := object{
		"model_type": "minicpmo", "architectures": []string{"MiniCPMO"}, "version": 4.5, "torch_dtype": "bfloat16",
		"hidden_size": d.Hidden, "num_hidden_layers": d.Layers, "num_attention_heads": d.Heads,
		"num_key_value_heads": d.KVHeads, "head_dim": d.HeadDim, "intermediate_size": d.FFN, "vocab_size": d.Vocab,
		"rms_norm_eps": d.Epsilon, "rope_theta": d.RopeTheta, "max_position_embeddings": d.MaxPositions,
		"tie_word_embeddings": false, "hidden_act": "silu", "attention_bias": false,
	}
	if v := s.Vision; v != nil {
		c["query_num"], c["drop_vision_last_layer"], c["use_image_id"] = v.Queries, true, true
		c["vision_config"] = object{
			"model_type": "siglip_vision_model", "hidden_size": v.Hidden, "num_hidden_layers": v.Layers + 1,
			"num_attention_heads": v.Heads, "intermediate_size": v.FFN, "image_size": v.Grid * v.Patch, "patch_size": v.Patch,
			"layer_norm_eps": v.Epsilon, "hidden_act": "gelu_pytorch_tanh",
		}
	}
	if speech := s.Speech; speech != nil {
		t := speech.TTS
		c["init_tts"] = true
		c["tts_config"] = object{
			"model_type": "minicpmtts", "llm_dim": d.Hidden, "hidden_size": t.Hidden, "num_hidden_layers": t.Layers,
			"num_attention_heads": t.Heads, "num_key_value_heads": t.Heads, "intermediate_size": t.FFN, "num_vq": 1,
			"num_audio_tokens": t.Codes, "num_text_tokens": t.TextRows, "audio_bos_token_id": t.AudioBOS,
			"text_eos_token_id": t.TextEOS, "max_position_embeddings": t.MaxPositions, "hidden_act": "silu",
			"backbone_model": "llama", "projector_type": "mlp", "condition_type": "hidden_text_merge",
			"normalize_projected_hidden": true, "audio_tokenizer_type": "s3tokenizer_step_audio",
			"attention_type": "full_attention", "s3_stream_n_timesteps": speech.Flow.DiT.Steps,
		}
	}
	return c
}
