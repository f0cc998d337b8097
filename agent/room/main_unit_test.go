//go:build !integration

package room_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The client library acknowledges a call from a goroutine of its own, which may wait 5 s for a connection that is gone.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/livekit/server-sdk-go/v2.waitUntilConnected"))
}
