package publish_test

import (
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"touchline/agent/room/conn"
)

func TestMain(m *testing.M) {
	conn.SetLibraryLogger(zerolog.Nop()) // before any test uses the library
	goleak.VerifyTestMain(m)
}
