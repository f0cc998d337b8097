package device_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/device"
	"touchline/inference/internal/ort"
	"touchline/inference/internal/ort/orttest"
)

// loadBuffer is the size of one read.
const loadBuffer = 16 << 20

// weights writes a file whose bytes differ at each offset of 4.
func weights(tb testing.TB, size int) (string, []byte) {
	tb.Helper()
	numbers := make([]int32, (size+3)/4)
	for i := range numbers {
		numbers[i] = int32(i) * 2654435
	}
	data := ort.Bytes(numbers)[:size]
	path := filepath.Join(tb.TempDir(), "weights.data")
	require.NoError(tb, os.WriteFile(path, data, 0o600))
	return path, data
}

func TestLoad(t *testing.T) {
	orttest.NoLeaks(t)
	rt := orttest.Open(t)
	dev := orttest.CPU(t, rt)
	path, data := weights(t, 3*loadBuffer)
	other, small := weights(t, 1000)
	parts := []device.Part{
		{File: path, Offset: 5, Bytes: 2*loadBuffer + 77},
		{File: other, Offset: 1, Bytes: 999},
		{File: other, Offset: 1000},
		{File: path, Offset: 2 * loadBuffer, Bytes: loadBuffer},
		{File: path, Bytes: 1},
	}
	want := [][]byte{data[5:][:2*loadBuffer+77], small[1:], {}, data[2*loadBuffer:], data[:1]}
	for _, readers := range []int{0, 1, 9} {
		a := device.NewArena(rt, dev)
		places, err := a.Load(t.Context(), "weights", parts, readers)
		require.NoError(t, err)
		require.Len(t, places, len(parts))
		for i, p := range places {
			got := make([]byte, parts[i].Bytes)
			require.NoError(t, dev.CopyOut(got, p))
			require.True(t, bytes.Equal(want[i], got), "part %d", i)
		}
		require.NoError(t, a.Close())
	}
}

func TestLoadFails(t *testing.T) {
	orttest.NoLeaks(t)
	rt := orttest.Open(t)
	dev := orttest.CPU(t, rt)
	a := device.NewArena(rt, dev)
	defer func() { require.NoError(t, a.Close()) }()
	path, _ := weights(t, loadBuffer+100)

	_, err := a.Load(t.Context(), "weights", []device.Part{{File: path, Offset: 50, Bytes: 10}, {File: path, Bytes: loadBuffer + 101}}, 2)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.ErrorContains(t, err, "load weights: read 101 bytes of "+path+" at 16777216: ")
	missing := []device.Part{{File: path + ".missing", Bytes: 1}}
	_, err = a.Load(t.Context(), "weights", append(missing, slices.Repeat([]device.Part{{File: path, Bytes: loadBuffer}}, 10)...), 0)
	require.ErrorIs(t, err, os.ErrNotExist, "other readers wait for buffers")
	for _, p := range []device.Part{{File: path, Offset: -1}, {File: path, Bytes: -1}} {
		_, err = a.Load(t.Context(), "weights", []device.Part{p}, 0)
		require.ErrorContains(t, err, "expected a part of "+path)
	}

	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	_, err = a.Load(ctx, "weights", []device.Part{{File: path, Bytes: loadBuffer}}, 0)
	require.ErrorIs(t, err, stopped)

	places, err := a.Load(t.Context(), "nothing", nil, 0)
	require.NoError(t, err)
	require.Empty(t, places)
}
