package conn

import (
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	SetLibraryLogger(zerolog.Nop()) // before any test uses the library
	goleak.VerifyTestMain(m)
}
