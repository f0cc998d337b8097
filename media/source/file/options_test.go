package file_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media/source"
	"touchline/media/source/file"
)

func TestBadOptions(t *testing.T) {
	for i, o := range []file.Options{
		{},
		{Access: source.Access{Now: time.Now}},
		{Access: source.Access{Now: time.Now, Address: source.Address{Kind: source.File, Path: "x"}}, Start: -1},
	} {
		_, err := file.New(o)
		require.Error(t, err, strconv.Itoa(i))
	}
}
