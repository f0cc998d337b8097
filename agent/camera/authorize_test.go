package camera_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/access"
	"touchline/agent/camera"
	"touchline/agent/room/conn"
	"touchline/agent/room/control"
	"touchline/media/signaling"
)

// TestTokenOfALink: the camera token of a link authorises a sender until the link ends.
func TestTokenOfALink(t *testing.T) {
	t.Parallel()
	keys := conn.Keys{APIKey: "key", APISecret: "a secret that is long enough for a signature"}
	authorize := camera.Authorize(keys)
	token := func(until time.Time, links ...string) string {
		grant := access.Grant{Expires: until, Links: links}
		token, err := conn.CameraToken(keys, conn.Person{Room: "match", Identity: "phone", Attributes: control.Attributes(keys, grant)})
		require.NoError(t, err)
		return token
	}
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	who, err := authorize(token(until), "match")
	require.NoError(t, err)
	require.NotNil(t, who.Right)
	require.Equal(t, who.Key, who.Holder)
	who, err = authorize(token(until, "0000000000000002", "0000000000000001"), "match")
	require.NoError(t, err)
	require.Equal(t, "0000000000000001", who.Holder, "whatever its identity and the links made by that one are")

	_, err = authorize(token(time.Time{}), "match")
	require.NoError(t, err)

	_, err = authorize(token(time.Now().Add(-time.Minute)), "match")
	require.ErrorIs(t, err, signaling.ErrNoToken)
}
