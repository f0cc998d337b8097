package models_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models"
)

// TestType: a type survives its text form; unknown types and names are refused.
func TestType(t *testing.T) {
	sizes := map[models.Type]int{
		models.Float32: 4, models.Float16: 2, models.BFloat16: 2, models.Int64: 8, models.Int32: 4, models.Int8: 1, models.Uint8: 1,
	}
	for typ, size := range sizes {
		require.Equal(t, size, typ.Size(), typ)
		text, err := typ.MarshalText()
		require.NoError(t, err)
		require.Equal(t, typ.String(), string(text))
		var again models.Type
		require.NoError(t, again.UnmarshalText(text))
		require.Equal(t, typ, again)
	}
	unknown := models.Type(99)
	require.Zero(t, unknown.Size())
	require.Equal(t, "Type(99)", unknown.String())
	_, err := unknown.MarshalText()
	require.EqualError(t, err, "tensor type 99 is unknown")
	require.ErrorContains(t, unknown.UnmarshalText([]byte("Type(99)")), "expected a tensor type such as float32")
}

// TestRowsAndCols: the matrix form of tensors of each rank.
func TestRowsAndCols(t *testing.T) {
	for _, tt := range []struct {
		shape      []int
		rows, cols int
	}{
		{nil, 1, 1},
		{[]int{5}, 5, 1},
		{[]int{5, 3}, 5, 3},
		{[]int{5, 3, 14, 14}, 5, 588},
		{[]int{0, 3}, 0, 3},
	} {
		info := models.TensorInfo{Shape: tt.shape}
		require.Equal(t, tt.rows, info.Rows(), tt.shape)
		require.Equal(t, tt.cols, info.Cols(), tt.shape)
	}
}
