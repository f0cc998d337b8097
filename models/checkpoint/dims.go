package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"touchline/models"
)

// maxCache is the maximum number of positions of a bundle, and so the length of
// the rotary tables in its graphs.
const maxCache = 8192

// expected is a tensor that a network needs, with its shape according to the config.
type expected struct {
	name  string
	shape []int
	field string // the config's fields, for the error; empty if no config has the sizes
}

// decoder returns the decoder's sizes. It compares the shape of every tensor with them.
func (c *Checkpoint) decoder() (models.Decoder, error) {
	g := c.config
	longest := maxCache
	if g.hearing != nil {
		longest = maxHearing
	}
	d := models.Decoder{
		Layers: *g.Layers, Hidden: *g.Hidden, Heads: *g.Heads, KVHeads: *g.KVHeads, HeadDim: *g.HeadDim,
		FFN: *g.FFN, Vocab: *g.Vocab, Epsilon: *g.Epsilon, RopeTheta: *g.RopeTheta,
		MaxPositions: min(*g.MaxPositions, longest), TiedHead: g.TiedHead,
	}
	classes, _ := g.hearing.classes()
	const network = "a Qwen3 decoder"
	part := fmt.Sprintf("%s of %d layers (num_hidden_layers)", network, d.Layers)
	return d, c.complete(decoderTensors(d, classes), network, part, func(name string) bool {
		return strings.HasPrefix(name, "llm.") && !strings.HasSuffix(name, ".rotary_emb.inv_freq") && name != "llm.lm_head.weight"
	})
}

// complete returns an error unless the checkpoint has all tensors of the list, in their shapes, and no other tensor that belongs to the
// network: it would mean another computation. part names the network with its size.
func (c *Checkpoint) complete(list []expected, network, part string, belongs func(name string) bool) error {
	missing, err := c.compare(list)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s: %d of the %d tensors of %s are missing, for example %q", c.dir, len(missing), len(list), network, missing[0])
	}
	used := make(map[string]bool, len(list))
	for _, e := range list {
		used[e.name] = true
	}
	for _, name := range c.names {
		if belongs(name) && !used[name] {
			return fmt.Errorf("%s: tensor %q is not part of %s", c.dir, name, part)
		}
	}
	return nil
}

// decoderTensors lists the tensors of a Qwen3 decoder. The head has classes instead of the
// vocabulary if the config has any.
func decoderTensors(d models.Decoder, classes int) []expected {
	const (
		hidden = "hidden_size"
		vocab  = "vocab_size, hidden_size"
	)
	list := []expected{
		{"llm.model.embed_tokens.weight", []int{d.Vocab, d.Hidden}, vocab},
		{"llm.model.norm.weight", []int{d.Hidden}, hidden},
	}
	switch {
	case classes > 0:
		list = append(list, expected{"llm.lm_head.weight", []int{classes, d.Hidden}, "classify_num, hidden_size"})
	case !d.TiedHead:
		list = append(list, expected{"llm.lm_head.weight", []int{d.Vocab, d.Hidden}, vocab})
	}
	q, kv := d.Heads*d.HeadDim, d.KVHeads*d.HeadDim
	for i := range d.Layers {
		p := fmt.Sprintf("llm.model.layers.%d.", i)
		list = append(list, []expected{
			{p + "input_layernorm.weight", []int{d.Hidden}, hidden},
			{p + "post_attention_layernorm.weight", []int{d.Hidden}, hidden},
			{p + "self_attn.q_proj.weight", []int{q, d.Hidden}, "num_attention_heads, head_dim, hidden_size"},
			{p + "self_attn.k_proj.weight", []int{kv, d.Hidden}, "num_key_value_heads, head_dim, hidden_size"},
			{p + "self_attn.v_proj.weight", []int{kv, d.Hidden}, "num_key_value_heads, head_dim, hidden_size"},
			{p + "self_attn.o_proj.weight", []int{d.Hidden, q}, "hidden_size, num_attention_heads, head_dim"},
			{p + "self_attn.q_norm.weight", []int{d.HeadDim}, "head_dim"},
			{p + "self_attn.k_norm.weight", []int{d.HeadDim}, "head_dim"},
			{p + "mlp.gate_proj.weight", []int{d.FFN, d.Hidden}, "intermediate_size, hidden_size"},
			{p + "mlp.up_proj.weight", []int{d.FFN, d.Hidden}, "intermediate_size, hidden_size"},
			{p + "mlp.down_proj.weight", []int{d.Hidden, d.FFN}, "hidden_size, intermediate_size"},
		}...)
	}
	return list
}

// vision returns the sizes of the vision tower and the resampler, or a
// missingError if the checkpoint lacks them or a part of them.
func (c *Checkpoint) vision() (*models.Vision, error) {
	if !slices.ContainsFunc(c.names, func(n string) bool { return strings.HasPrefix(n, "vpm.") }) {
		return nil, missingError("vision")
	}
	g := c.config
	if g.Vision == nil {
		return nil, fmt.Errorf("%s: vision_config: missing, but the checkpoint has tensors of a vision tower", c.path("config.json"))
	}
	s := g.Vision
	v := &models.Vision{
		Layers: *s.Layers, Hidden: *s.Hidden, Heads: *s.Heads, FFN: *s.FFN, Patch: *s.Patch,
		Grid: *s.ImageSize / *s.Patch, Epsilon: *s.Epsilon,
		Queries: *g.Queries, Out: *g.Hidden, ResamplerHeads: *g.Hidden / resamplerWidth,
	}
	if *g.DropLast {
		v.Layers--
	}
	if v.ResamplerHeads == 0 || v.Out%v.ResamplerHeads != 0 || v.Out%4 != 0 {
		return nil, fmt.Errorf("%s: hidden_size: must be a multiple of 4 and of hidden_size/%d (the resampler's heads), is %d",
			c.path("config.json"), resamplerWidth, v.Out)
	}
	list := visionTensors(v)
	missing, err := c.compare(list)
	if err != nil {
		return nil, err
	}
	return v, incomplete("vision", missing, len(list))
}

// resamplerWidth is the width of a resampler head. The official code fixes it.
const resamplerWidth = 128

// visionTensors lists the tensors of the SigLIP tower and the resampler.
func visionTensors(v *models.Vision) []expected {
	const hidden = "vision_config.hidden_size"
	h, out := v.Hidden, v.Out
	list := []expected{
		{"vpm.embeddings.patch_embedding.weight", []int{h, 3, v.Patch, v.Patch}, "vision_config.hidden_size, vision_config.patch_size"},
		{"vpm.embeddings.patch_embedding.bias", []int{h}, hidden},
		{"vpm.embeddings.position_embedding.weight", []int{v.Grid * v.Grid, h}, "vision_config.image_size, vision_config.hidden_size"},
		{"vpm.post_layernorm.weight", []int{h}, hidden},
		{"vpm.post_layernorm.bias", []int{h}, hidden},
		{"resampler.query", []int{v.Queries, out}, "query_num, hidden_size"},
		{"resampler.kv_proj.weight", []int{out, h}, "hidden_size, vision_config.hidden_size"},
		{"resampler.attn.in_proj_weight", []int{3 * out, out}, "hidden_size"},
		{"resampler.attn.in_proj_bias", []int{3 * out}, "hidden_size"},
		{"resampler.attn.out_proj.weight", []int{out, out}, "hidden_size"},
		{"resampler.attn.out_proj.bias", []int{out}, "hidden_size"},
		{"resampler.proj", []int{out, out}, "hidden_size"},
	}
	for _, norm := range []string{"ln_q", "ln_kv", "ln_post"} {
		list = append(list, expected{"resampler." + norm + ".weight", []int{out}, "hidden_size"},
			expected{"resampler." + norm + ".bias", []int{out}, "hidden_size"})
	}
	for i := range v.Layers {
		p := fmt.Sprintf("vpm.encoder.layers.%d.", i)
		for _, linear := range []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj"} {
			list = append(list, expected{p + linear + ".weight", []int{h, h}, hidden}, expected{p + linear + ".bias", []int{h}, hidden})
		}
		list = append(list, []expected{
			{p + "layer_norm1.weight", []int{h}, hidden},
			{p + "layer_norm1.bias", []int{h}, hidden},
			{p + "layer_norm2.weight", []int{h}, hidden},
			{p + "layer_norm2.bias", []int{h}, hidden},
			{p + "mlp.fc1.weight", []int{v.FFN, h}, "vision_config.intermediate_size, vision_config.hidden_size"},
			{p + "mlp.fc1.bias", []int{v.FFN}, "vision_config.intermediate_size"},
			{p + "mlp.fc2.weight", []int{h, v.FFN}, "vision_config.hidden_size, vision_config.intermediate_size"},
			{p + "mlp.fc2.bias", []int{h}, hidden},
		}...)
	}
	return list
}

// compare returns the missing tensors. A wrong shape or a type that cannot hold
// weights is an error.
func (c *Checkpoint) compare(list []expected) (missing []string, err error) {
	var errs []error
	for _, e := range list {
		info, ok := c.Info(e.name)
		switch {
		case !ok:
			missing = append(missing, e.name)
		case !slices.Equal(info.Shape, e.shape) && e.field == "":
			errs = append(errs, fmt.Errorf("%s: tensor %q has shape %d, expected %d", c.dir, e.name, info.Shape, e.shape))
		case !slices.Equal(info.Shape, e.shape):
			errs = append(errs, fmt.Errorf("%s: %s: tensor %q has shape %d, expected %d",
				c.path("config.json"), e.field, e.name, info.Shape, e.shape))
		case info.Type != models.Float32 && info.Type != models.Float16 && info.Type != models.BFloat16:
			errs = append(errs, fmt.Errorf("%s: tensor %q: expected F32, F16 or BF16, got %s", c.dir, e.name, c.plain[e.name].DType))
		}
		if len(errs) == 3 { // enough for a diagnosis
			break
		}
	}
	return missing, errors.Join(errs...)
}
