package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
)

// index is model.safetensors.index.json: the shard of each tensor.
type index struct {
	WeightMap map[string]string `json:"weight_map"`
}

// readIndex returns nil for a folder without an index.
func (c *Checkpoint) readIndex() (*index, error) {
	content, err := c.File(indexName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // an index is optional
	}
	if err != nil {
		return nil, err
	}
	i, err := parseIndex(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.path(indexName), err)
	}
	return i, nil
}

func parseIndex(content []byte) (*index, error) {
	var i index
	if err := json.Unmarshal(content, &i); err != nil {
		return nil, jsonError(err)
	}
	if len(i.WeightMap) == 0 {
		return nil, errors.New("weight_map: missing or empty")
	}
	for tensor, file := range i.WeightMap {
		if !safeName(file) || !strings.HasSuffix(file, ".safetensors") {
			return nil, fmt.Errorf("weight_map: %q: expected a .safetensors file in the folder, got %q", tensor, file)
		}
	}
	return &i, nil
}

// shards returns the file names, sorted and without duplicates.
func (i *index) shards() []string {
	return slices.Compact(slices.Sorted(maps.Values(i.WeightMap)))
}

// jsonError adds the field to an error about a value's type.
func jsonError(err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && e.Field != "" {
		return fmt.Errorf("%s: expected %s, got %s", e.Field, e.Type, e.Value)
	}
	return fmt.Errorf("not valid JSON: %w", err)
}
