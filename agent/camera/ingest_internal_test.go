package camera

import (
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/agent/room/conn"
	"touchline/internal/redact"
)

// A room has the key of the settings that is good for it, else one of its own.
func TestKeysOfSenders(t *testing.T) {
	ingest := func(keys redact.Secret, only string) *Ingest {
		cfg := DefaultConfig()
		cfg.WHIP.Keys = keys
		s, err := NewIngest(IngestOptions{
			Config: cfg, Keys: conn.Keys{APIKey: "key", APISecret: "the secret of a server that is not there"}, Room: only,
		})
		require.NoError(t, err)
		return s
	}
	s := ingest("other/left=settings-other", "")
	require.Equal(t, "settings-other", s.Endpoint("other").Key)
	one := s.Endpoint("one")
	require.Equal(t, "/whip/one", one.Path)
	require.Len(t, one.Key, 26)
	require.NotEqual(t, one.Key, s.Endpoint("two").Key)
	who, err := s.authorize(one.Key, "one")
	require.NoError(t, err)
	require.Equal(t, "camera", who.Identity)
	_, err = s.authorize(one.Key, "two")
	require.Error(t, err, "a key of another room")
	_, err = s.authorize(s.makeKey("other"), "other")
	require.Error(t, err, "where the settings have a key, none is made up")
	_, err = ingest("", "").authorize(one.Key, "one")
	require.Error(t, err, "a key of another start")

	require.Equal(t, "settings-any", ingest("settings-any", "").Endpoint("one").Key, "good for every room")
	single := ingest("settings-any", "only")
	require.Equal(t, "settings-any", single.Endpoint("only").Key)
	_, ok := single.configured("elsewhere")
	require.False(t, ok, "good for the only room")
}
