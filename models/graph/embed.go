package graph

import (
	"errors"
	"fmt"

	"touchline/models"
	"touchline/models/onnx"
)

// Embed describes the token embedding lookup. With F as in Decoder:
//
//	input_ids   int64 [N]
//
//	embeds      F [N,hidden]
func Embed(d models.Dims, o Options) (*Description, error) {
	if err := errors.Join(d.Validate(), checkWords(d, o)); err != nil {
		return nil, fmt.Errorf("describe embedding: %w", err)
	}
	c := d.Decoder
	n := newNetwork("embed", o)
	n.input("input_ids", models.Int64, "N")
	n.output("embeds", n.float, "N", c.Hidden)
	table := n.weight(Weight{
		Name: "table", Type: n.float, Shape: []int{c.Vocab, c.Hidden}, Rule: RuleCopy, Sources: []string{embedName},
	})
	n.node("Gather", "embeds", []string{table, "input_ids"}, onnx.Int("axis", 0))
	return n.describe(models.KindEmbed), nil
}
