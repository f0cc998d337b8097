package bot

import (
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/agent/access"
	"touchline/agent/room/conn"
)

// TestWhoGetsAMicrophone: a page's token has one, and the right that makes spoken orders act, if its visitor may instruct.
func TestWhoGetsAMicrophone(t *testing.T) {
	m := &minter{keys: conn.Keys{APIKey: "k", APISecret: "a secret of the tests, long enough"}, room: "match", agent: "touchline"}
	for _, c := range []struct {
		rights access.Rights
		speaks bool
	}{{access.Watch, false}, {access.Watch | access.Transcribe, false}, {access.Watch | access.Instruct, true}} {
		grant, err := m.Mint("viewer", "Ann", c.rights)
		require.NoError(t, err)
		token, err := conn.ReadToken(grant.Token)
		require.NoError(t, err)
		require.Equal(t, c.speaks, token.Voice)
		require.Equal(t, grant.Identity, token.Identity)
		require.False(t, token.Picture || token.Agent || token.OwnAttributes, "nor may it give itself rights")
	}
}
