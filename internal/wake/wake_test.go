package wake_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/internal/wake"
)

func TestSignal(t *testing.T) {
	t.Parallel()
	s := wake.New()
	s.Set()
	s.Set()
	<-s
	require.Empty(t, s, "two calls of Set before the receiver came are one wake-up")
	wake.Signal(nil).Set()
}
