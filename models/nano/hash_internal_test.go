package nano

import (
	"bytes"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// The name of a checkpoint changes with the names, the sizes and the content of its files.
func TestHash(t *testing.T) {
	weights := bytes.Repeat([]byte{1, 2, 3}, 1<<20)
	of := func(name string, content []byte) string {
		h, err := hash(fstest.MapFS{"checkpoint/config.json": {Data: []byte("{}")}, "checkpoint/" + name: {Data: content}})
		require.NoError(t, err)
		return h
	}
	usual := of("model.safetensors", weights)
	require.Equal(t, usual, of("model.safetensors", bytes.Clone(weights)))
	require.NotEqual(t, usual, of("model", weights))
	require.NotEqual(t, usual, of("model.safetensors", weights[1:]))
	other := bytes.Clone(weights)
	for i := range other {
		other[i]++
	}
	require.NotEqual(t, usual, of("model.safetensors", other))
}
