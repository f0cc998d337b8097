package bot

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/livekit/protocol/auth"
	"github.com/stretchr/testify/require"

	"touchline/agent/access"
	"touchline/agent/room/conn"
	"touchline/agent/room/control"
	"touchline/media/signaling"
)

// TestWhoGetsAMicrophone: a page's token has one, and the right that makes spoken orders act, if its visitor may instruct.
func TestWhoGetsAMicrophone(t *testing.T) {
	m := &minter{keys: conn.Keys{APIKey: "k", APISecret: "a secret of the tests, long enough"}, room: "match", agent: "touchline"}
	for _, c := range []struct {
		rights access.Rights
		speaks bool
	}{{access.Watch, false}, {access.Watch | access.Transcribe, false}, {access.Watch | access.Instruct, true}} {
		grant, err := m.Mint("viewer", "Ann", access.Grant{Rights: c.rights})
		require.NoError(t, err)
		token, err := conn.ReadToken(grant.Token)
		require.NoError(t, err)
		require.Equal(t, c.speaks, token.Voice)
		require.Equal(t, grant.Identity, token.Identity)
		require.False(t, token.Picture || token.Agent || token.OwnAttributes, "nor may it give itself rights")
	}
}

// TestTokenEndsWithItsLink: a token of the room is valid no longer than the link, and carries its end.
func TestTokenEndsWithItsLink(t *testing.T) {
	m := &minter{keys: conn.Keys{APIKey: "k", APISecret: "a secret of the tests, long enough"}, room: "match", agent: "touchline"}
	for _, c := range []struct{ link, token time.Duration }{{10 * time.Minute, 10 * time.Minute}, {24 * time.Hour, time.Hour}, {0, time.Hour}} {
		for _, role := range []string{"viewer", "camera"} {
			var until time.Time
			if c.link > 0 {
				until = time.Now().Add(c.link)
			}
			grant, err := m.Mint(role, "Ann", access.Grant{Rights: access.AllInRoom, Expires: until})
			require.NoError(t, err)
			parsed, err := auth.ParseAPIToken(grant.Token)
			require.NoError(t, err)
			claims, grants, err := parsed.Verify(m.keys.APISecret)
			require.NoError(t, err)
			require.WithinDuration(t, time.Now().Add(c.token), claims.ExpiresAt.Time, time.Minute)
			require.Equal(t, control.Attributes(m.keys, access.Grant{Expires: until})["touchline.rights_until"], grants.Attributes["touchline.rights_until"])
			require.Equal(t, c.link > 0, grants.Attributes["touchline.rights_until"] != "")
			if role == "viewer" {
				_, right, err := verifyPlayer(m.keys, grant.Token, "match")
				require.NoError(t, err)
				require.NotNil(t, right, "a player's session ends with the link")
			}
		}
	}
}

// TestPlayerOfAnExpiredLink: the server accepts a token for a minute longer than the link; a player is refused at its end.
func TestPlayerOfAnExpiredLink(t *testing.T) {
	keys := conn.Keys{APIKey: "k", APISecret: "a secret of the tests, long enough"}
	token, err := conn.ViewerToken(keys, conn.Person{Room: "match", Identity: "ann", Attributes: control.Attributes(keys, access.Grant{Expires: time.Unix(1000, 0)})})
	require.NoError(t, err)
	_, _, err = verifyPlayer(keys, token, "match")
	require.ErrorIs(t, err, signaling.ErrNoToken)
	_, _, err = verifyPlayer(keys, token, "other")
	require.ErrorIs(t, err, signaling.ErrForbidden)
}

// TestTokenOfARevokedLink: revoking a link ends what its LiveKit token opened, and refuses that token.
func TestTokenOfARevokedLink(t *testing.T) {
	t.Parallel()
	now := time.Now()
	keys := conn.Keys{APIKey: "k", APISecret: "a secret of the tests, long enough"}
	keys.Links = access.NewLinks(nil, func(string, json.RawMessage) {}, now)
	m := &minter{keys: keys, room: "match"}
	grant, err := m.Mint("viewer", "Ann", access.Grant{Rights: access.AllInRoom, Links: []string{"00000000000000aa", "00000000000000bb"}, Expires: now.Add(time.Hour)})
	require.NoError(t, err)
	link, right, err := verifyPlayer(keys, grant.Token, "match")
	require.NoError(t, err)
	require.Equal(t, "00000000000000bb", link, "the link that it comes from has its bounds")
	reasons := make(chan string, 1)
	defer right(func(reason string) { reasons <- reason })()
	require.NoError(t, keys.Links.Revoke("match", "00000000000000aa", "", now))
	require.Equal(t, access.ErrRevoked.Error(), <-reasons)
	_, _, err = verifyPlayer(keys, grant.Token, "match")
	require.ErrorIs(t, err, access.ErrRevoked)
}
