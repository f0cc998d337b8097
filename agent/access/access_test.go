package access_test

import (
	"strings"
	"testing"
	"time"

	"github.com/livekit/protocol/auth"
	"github.com/stretchr/testify/require"

	"touchline/agent/access"
)

var (
	keys  = access.Keys{APIKey: "APItest", APISecret: "a secret of thirty-two characters"}
	start = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
)

func TestParse(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]access.Rights{
		"watch": access.Watch, "watch, instruct": access.Watch | access.Instruct, "steer": access.AllInRoom,
		"watch,steer": access.AllInRoom, "transcribe": access.Transcribe,
	} {
		got, err := access.Parse(strings.Split(list, ","))
		require.NoError(t, err, list)
		require.Equal(t, want, got, list)
	}
	for _, list := range []string{"", "process", "Watch", "watch,fly", strings.Repeat("x", 1<<20)} {
		_, err := access.Parse(strings.Split(list, ","))
		require.ErrorContains(t, err, "watch,instruct,settings,sources,rules,speak,transcribe", list[:min(len(list), 20)])
		require.Less(t, len(err.Error()), 200)
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	g := access.Grant{Rooms: []string{"final", "yard"}, Rights: access.Watch | access.Rules, Name: "the desk", Expires: start.Add(time.Hour)}
	token, err := access.Sign(keys, g, start)
	require.NoError(t, err)
	for _, at := range []time.Time{start.Add(-20 * time.Second), start, start.Add(59 * time.Minute)} {
		got, err := access.Verify(keys, token, at)
		require.NoError(t, err)
		require.True(t, g.Expires.Equal(got.Expires))
		got.Expires = g.Expires
		got.Links = nil
		require.Equal(t, g, got)
	}
	require.Equal(t, g.Rights, g.In("yard"))
	require.Zero(t, g.In("other"))
	require.Equal(t, access.Watch, access.Grant{Rooms: []string{access.AnyRoom}, Rights: access.Watch}.In("other"))

	_, err = access.Verify(keys, token, start.Add(time.Hour+time.Second))
	require.ErrorIs(t, err, access.ErrExpired)
	_, err = access.Verify(keys, token, start.Add(-25*time.Hour))
	require.ErrorIs(t, err, access.ErrBadToken, "not valid yet")
	for _, other := range []access.Keys{{}, {APIKey: "APIother", APISecret: keys.APISecret}, {APIKey: keys.APIKey, APISecret: "another secret of thirty-two char"}} {
		_, err = access.Verify(other, token, start)
		require.ErrorIs(t, err, access.ErrBadToken)
	}
	last := len(token) - 1
	again := token[:last] + string(token[last]+1) // the same signature: its last character has two spare bits, which are 0
	for _, bad := range []string{"", ".", "..", again, token + "\n", token[:last], token + "x", strings.Repeat("a", 1<<20), "eyJhbGciOiJub25lIn0." + strings.Split(token, ".")[1] + "."} {
		_, err = access.Verify(keys, bad, start)
		require.ErrorIs(t, err, access.ErrBadToken)
	}
}

// TestOtherTokens: LiveKit's tokens, which the same keys sign, carry no rights here, and ours none there.
func TestOtherTokens(t *testing.T) {
	t.Parallel()
	now := time.Now()
	livekit, err := auth.NewAccessToken(keys.APIKey, keys.APISecret).SetIdentity("x").SetValidFor(time.Hour).
		SetVideoGrant(&auth.VideoGrant{RoomJoin: true, RoomAdmin: true, Room: "final"}).ToJWT()
	require.NoError(t, err)
	_, err = access.Verify(keys, livekit, now)
	require.ErrorIs(t, err, access.ErrBadToken)

	ours, err := access.Sign(keys, access.Grant{Rooms: []string{"final"}, Rights: access.AllInRoom, Expires: now.Add(time.Hour)}, now)
	require.NoError(t, err)
	v, err := auth.ParseAPIToken(ours)
	require.NoError(t, err)
	_, grants, err := v.Verify(keys.APISecret)
	require.NoError(t, err)
	require.Nil(t, grants.Video)
}

func TestBadGrants(t *testing.T) {
	t.Parallel()
	good := access.Grant{Rooms: []string{"final"}, Rights: access.Watch, Expires: start.Add(time.Hour)}
	for want, change := range map[string]func(g *access.Grant){
		"expiry":                 func(g *access.Grant) { g.Expires = start.Add(time.Second) },
		"366 days":               func(g *access.Grant) { g.Expires = start.Add(access.MaxLife + time.Hour) },
		`rights: must be of wat`: func(g *access.Grant) { g.Rights = 0 },
		`are "process"`:          func(g *access.Grant) { g.Rights = access.Process },
		"rooms: must be 1 to 16": func(g *access.Grant) { g.Rooms = nil },
		"are 17":                 func(g *access.Grant) { g.Rooms = make([]string, 17) },
		`room ""`:                func(g *access.Grant) { g.Rooms = []string{""} },
		"more than the 3000":     func(g *access.Grant) { g.Rooms = nRooms(16) },
		`name "a\nb"`:            func(g *access.Grant) { g.Name = "a\nb" },
	} {
		g := good
		change(&g)
		_, err := access.Sign(keys, g, start)
		require.ErrorContains(t, err, want)
	}
	_, err := access.Sign(access.Keys{APIKey: "APItest"}, good, start)
	require.ErrorIs(t, err, access.ErrNoKeys)
}

func nRooms(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = strings.Repeat("r", 127) + string(rune('a'+i))
	}
	return out
}

func FuzzVerify(f *testing.F) {
	token, err := access.Sign(keys, access.Grant{Rooms: []string{"final"}, Rights: access.Watch, Expires: start.Add(time.Hour)}, start)
	require.NoError(f, err)
	f.Add(token)
	f.Add("a.b.c")
	f.Add("eyJhbGciOiJIUzI1NiJ9.e30.")
	f.Fuzz(func(t *testing.T, token string) {
		if g, err := access.Verify(keys, token, start); err == nil && g.Rights != access.Watch {
			t.Fatalf("%q has the rights %s", token, g.Rights)
		}
	})
}
