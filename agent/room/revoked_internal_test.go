package room

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/room/control"
)

// TestRevokedLinksAreShown: the attribute of revoked links changes at once, together with the word, and is there after a join.
func TestRevokedLinksAreShown(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	for _, state := range []string{agent.StateListening, agent.StateThinking, agent.StateSpeaking, agent.StateInitializing} {
		b := newStateAttribute(now)
		b.set(agent.Status{State: state}, now)
		now = now.Add(time.Second)
		require.NotContains(t, b.due(now, "").attributes, control.AttributeRevoked)
		require.Empty(t, b.due(now, "").attributes)
		b.revoke("a:1")
		changed := b.due(now, "").attributes
		require.Equal(t, "a:1", changed[control.AttributeRevoked], state)
		require.NotEmpty(t, changed[attrAgentState])
		require.Equal(t, map[string]string{attrAgentState: b.wordLocked(now)}, b.due(now, "").attributes)
		require.Empty(t, b.due(now, "").attributes)
		require.Equal(t, "a:1", b.attributes(now)[control.AttributeRevoked])
		b.forget()
		require.Equal(t, "a:1", b.due(now, "").attributes[control.AttributeRevoked])
		b.revoke("")
		require.Contains(t, b.due(now, "").attributes, control.AttributeRevoked, "removed")
	}
}
