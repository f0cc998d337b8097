package device_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/device"
	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort"
	"touchline/inference/internal/ort/orttest"
	"touchline/models"
)

// Copies of slots take what belongs to them and leave the others, whether rows lie at equal distances or not.
func TestCopySlots(t *testing.T) {
	rt := orttest.Open(t)
	dev := orttest.CPU(t, rt)
	a := device.NewArena(rt, dev)
	defer func() { require.NoError(t, a.Close()) }()

	const slots = 4
	port := func(name string, width int64) device.Port {
		return device.Port{Name: name, Type: models.Float32, Shape: []int64{width}}
	}
	from := a.AllRows("from", []device.Port{port("a", 80), port("b", 80), port("c", 80), port("d", 3), port("e", 80), port("f", 3)}, slots)
	to := append(a.AllRows("to", []device.Port{port("a", 80), port("gap", 5), port("b", 80), port("gap", 5), port("c", 80)}, slots),
		a.AllRows("more", []device.Port{port("d", 3), port("e", 80), port("f", 3)}, slots)...)
	to = append(to[:1:1], append([]*device.Rows{to[2]}, to[4:]...)...)
	require.NoError(t, a.Err())
	require.Len(t, to, len(from))
	values := func(r *device.Rows, slot int) []float32 {
		out := make([]float32, r.Width()/4)
		require.NoError(t, dev.CopyOut(ort.Bytes(out), r.At(slot)))
		return out
	}
	for i, r := range from {
		for slot := range slots {
			v := make([]float32, r.Width()/4)
			for k := range v {
				v[k] = float32(1000*i + 100*slot + k%90 + 1)
			}
			require.NoError(t, dev.CopyIn(r.At(slot), ort.Bytes(v)))
		}
	}
	require.NoError(t, a.CopySlots(to, 2, from, kvcache.Range{Start: 1, Size: 2}))
	for i, r := range from {
		require.Equal(t, values(r, 1), values(to[i], 2))
		require.Equal(t, values(r, 2), values(to[i], 3))
		for slot := range 2 {
			require.Equal(t, make([]float32, r.Width()/4), values(to[i], slot), "not copied to")
		}
	}
	require.ErrorContains(t, a.CopySlots(to[:1], 0, from[3:4], kvcache.Range{Size: 1}), "expected rows of equal size")
}
