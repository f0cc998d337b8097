package device_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/device"
)

func TestOutbox(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o device.Outbox[int]
		o.Init(2)
		broken := errors.New("broken")
		go func() {
			for i := range 100 { // more than there was room for
				o.Push(i)
			}
			o.End(broken)
			o.End(nil)
		}()
		var got []int
		for {
			v, ok, ended, err := o.Take()
			if ok {
				got = append(got, v)
				continue
			}
			if ended {
				require.ErrorIs(t, err, broken)
				break
			}
			<-o.Wake()
		}
		require.Len(t, got, 100)
		require.IsIncreasing(t, got)
		_, ok, ended, err := o.Take()
		require.False(t, ok)
		require.True(t, ended)
		require.ErrorIs(t, err, broken, "also later")
	})
}
