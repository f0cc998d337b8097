package graph

import (
	"errors"

	"touchline/models"
)

// Vision describes the vision tower and the resampler, from patches to the
// embeddings of an image.
func Vision(_ models.Dims, _ Options) (*Description, error) {
	return nil, errors.New("graph: not written yet")
}
