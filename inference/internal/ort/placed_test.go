package ort_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/ort"
	"touchline/models"
)

// Placed initializers take the place of those of the data file, which must exist but is read only to fold constants.
func TestPlacedInitializer(t *testing.T) {
	for _, kind := range devices(t) {
		t.Run(kind.String(), func(t *testing.T) {
			r, d := open(t, kind)
			const width = 64
			g := graph{
				nodes:   []message{node("", "Mul", []string{"x", "w"}, []string{"y"})},
				weights: []message{external("w", "weights.data", models.Float32, width)},
				inputs:  []message{value("x", int(models.Float32), 1, width)},
				outputs: []message{value("y", int(models.Float32), 1, width)},
			}
			folded := g
			folded.nodes = []message{node("", "Neg", []string{"w"}, []string{"v"}), node("", "Mul", []string{"x", "v"}, []string{"y"})}
			values := func(v float32) []float32 { return slices.Repeat([]float32{v}, width) }
			load := func(g graph, file []byte, w *ort.Tensor) (*ort.Session, error) {
				path := write(t, g.model())
				if file != nil {
					require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(path), "weights.data"), file, 0o600))
				}
				return r.NewSession(path, d, ort.SessionOptions{Placed: map[string]*ort.Tensor{"w": w, "unknown": w}})
			}
			for name, tt := range map[string]struct {
				graph graph
				file  []byte
				want  float32
				err   string
			}{
				"a file with other values": {graph: g, file: ort.Bytes(values(5)), want: 6},
				"an empty file":            {graph: g, file: []byte{}, want: 6},
				"no file":                  {graph: g, err: "External data path does not exist"},
				"folded":                   {graph: folded, file: ort.Bytes(values(5)), want: -10},
				"folded, an empty file":    {graph: folded, file: []byte{}, err: "out of bounds"},
			} {
				t.Run(name, func(t *testing.T) {
					w, err := d.NewTensor(models.Float32, width)
					require.NoError(t, err)
					put(t, d, w, values(3)...)
					before := ort.Live()
					s, err := load(tt.graph, tt.file, w)
					require.NoError(t, w.Close(), "the session holds it")
					if tt.err != "" {
						require.ErrorContains(t, err, tt.err)
						require.Equal(t, before.Tensors-1, ort.Live().Tensors)
						return
					}
					require.NoError(t, err)
					require.Equal(t, before.Tensors, ort.Live().Tensors)
					defer func() { require.NoError(t, s.Close()) }()
					b := binding(t, s)
					x, y := tensor(t, d, models.Float32, 1, width), tensor(t, d, models.Float32, 1, width)
					require.NoError(t, b.BindInput("x", x))
					require.NoError(t, b.BindOutput("y", y))
					put(t, d, x, values(2)...)
					require.NoError(t, s.Run(b, nil))
					require.Equal(t, values(tt.want), get[float32](t, d, y))
					_, err = load(tt.graph, tt.file, w)
					require.ErrorIs(t, err, ort.ErrClosed)
					require.ErrorContains(t, err, "place ")
				})
			}
		})
	}
}
