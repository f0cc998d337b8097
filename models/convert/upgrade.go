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

// Upgrade adds the entries that the manifest of an older bundle lacks: the places of the tables, from the bundle's own graphs. It returns
// the number of added entries; 0 if the bundle is complete.
func Upgrade(dir string) (added int, err error) {
	b, err := models.OpenBundle(dir)
	if err != nil {
		return 0, err
	}
	m := &b.Manifest
	for i, g := range m.Graphs {
		if !g.Kind.HasTable() || g.Table != nil {
			continue
		}
		content, err := os.ReadFile(b.Path(g.File))
		if err != nil {
			return 0, fmt.Errorf("upgrade bundle %s: %w", dir, err)
		}
		if m.Graphs[i].Table, err = tableOf(g, m.Dims, content); err != nil {
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

// tableOf finds the table of embeddings in a graph's ONNX file.
func tableOf(g models.Graph, dims models.Dims, content []byte) (*models.Table, error) {
	constants, err := onnx.Constants(content)
	if err != nil {
		return nil, err
	}
	is := func(w onnx.Tensor) bool { return w.Name == graph.TextTable && len(w.Shape) == 2 }
	if g.Kind == models.KindEmbed {
		shape := []int64{int64(dims.Decoder.Vocab), int64(dims.Decoder.Hidden)}
		is = func(w onnx.Tensor) bool { return slices.Equal(w.Shape, shape) }
	}
	for _, w := range constants {
		if w.External == nil || !is(w) {
			continue
		}
		t := &models.Table{Name: w.Name, File: w.External.Location, Offset: w.External.Offset, Type: w.Type, Shape: [2]int64(w.Shape)}
		if w.External.Length != t.Bytes() {
			return nil, fmt.Errorf("the table has %d bytes for %d numbers of type %s", w.External.Length, t.Shape, t.Type)
		}
		return t, nil
	}
	return nil, errors.New("no table of embeddings in a data file")
}
