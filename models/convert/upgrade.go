package convert

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"touchline/models"
	"touchline/models/graph"
	"touchline/models/onnx"
)

// Upgrade adds the entries that the manifest of an older bundle lacks: the places of tables and tensors, from the bundle's own
// graphs. It returns the number of graphs with new entries; 0 if the bundle is complete.
func Upgrade(dir string) (added int, err error) {
	b, err := models.OpenBundle(dir)
	if err != nil {
		return 0, err
	}
	m := &b.Manifest
	for i := range m.Graphs {
		g := &m.Graphs[i]
		if !lacksPlaces(g) {
			continue
		}
		content, err := os.ReadFile(b.Path(g.File))
		if err != nil {
			return 0, fmt.Errorf("upgrade bundle %s: %w", dir, err)
		}
		if err := addPlaces(g, m.Dims, content); err != nil {
			return 0, fmt.Errorf("upgrade bundle %s: %s: %w", dir, g.File, err)
		}
		added++
	}
	if added == 0 {
		return 0, nil
	}
	m.Format = models.FormatVersion
	if err := replaceManifest(dir, m); err != nil {
		return 0, fmt.Errorf("upgrade bundle %s: %w", dir, err)
	}
	return added, nil
}

// replaceManifest writes the manifest to a temporary file and renames it, so that the bundle always has a complete manifest.
func replaceManifest(dir string, m *models.Manifest) error {
	work, err := os.MkdirTemp(dir, ".upgrade-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := models.WriteManifest(work, m); err != nil {
		return err
	}
	return os.Rename(filepath.Join(work, models.ManifestName), filepath.Join(dir, models.ManifestName))
}

// lacksPlaces reports whether a graph needs a table or tensors, and has none.
func lacksPlaces(g *models.Graph) bool {
	return g.Kind.HasTable() && g.Table == nil || g.HasTensors() && len(g.Tensors) == 0
}

// addPlaces adds the table or the tensors that a graph lacks, from its ONNX file.
func addPlaces(g *models.Graph, dims models.Dims, content []byte) error {
	if !lacksPlaces(g) {
		return nil
	}
	tensors, err := onnx.Places(content)
	if err != nil {
		return err
	}
	if g.HasTensors() {
		g.Tensors = tensors
		return nil
	}
	i := slices.IndexFunc(tensors, func(t models.Tensor) bool {
		if g.Kind == models.KindEmbed {
			return slices.Equal(t.Shape, []int64{int64(dims.Decoder.Vocab), int64(dims.Decoder.Hidden)})
		}
		return t.Name == graph.TextTable && len(t.Shape) == 2
	})
	if i < 0 {
		return errors.New("no table of embeddings in a data file")
	}
	g.Table = &tensors[i]
	return nil
}
