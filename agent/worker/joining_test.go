//go:build integration

package worker_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/livekit/protocol/livekit"
	"github.com/stretchr/testify/require"

	"touchline/agent/room/conn"
	"touchline/agent/worker"
)

// TestAgentFrozenInItsJoin: an agent that stood still before it had joined, and never answered, is replaced. The server keeps it in the
// room for more than a minute.
func TestAgentFrozenInItsJoin(t *testing.T) {
	t.Parallel()
	h := newServer(t)
	h.make("one")
	keys := conn.Keys{APIKey: h.opts.APIKey, APISecret: h.opts.APISecret}
	token, err := conn.AgentToken(keys, conn.Person{Room: "one", Identity: worker.Identity(agentName, "")})
	require.NoError(t, err)
	frozen, resp, err := websocket.DefaultDialer.DialContext(t.Context(), h.url+"/rtc?protocol=15", http.Header{"Authorization": {"Bearer " + token}})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = frozen.Close()
		_ = resp.Body.Close()
	})
	g := h.runner()
	h.worker(g)
	h.ask("one", "")
	require.Eventually(t, func() bool { return g.joined() == 1 }, time.Minute, 50*time.Millisecond)
	require.Eventually(t, func() bool {
		agent, err := h.rooms.GetParticipant(t.Context(), &livekit.RoomParticipantIdentity{Room: "one", Identity: worker.Identity(agentName, "")})
		return err == nil && agent.GetState() == livekit.ParticipantInfo_ACTIVE
	}, soon, 20*time.Millisecond)
}
