package graph

import (
	"errors"

	"touchline/models"
)

// Decoder describes the language model, from embeddings to logits, the best
// ids and the hidden state. It serves prefill and decoding.
func Decoder(_ models.Dims, _ Options) (*Description, error) {
	return nil, errors.New("graph: not written yet")
}
