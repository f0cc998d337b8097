//go:build integration

package bot_test

import (
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/access"
	"touchline/agent/bot"
	"touchline/agent/room/conn"
	"touchline/configs"
	"touchline/internal/redact"
)

// botSettings of a bot whose room has no server.
func botSettings(t *testing.T) configs.Config {
	t.Helper()
	cfg, err := configs.Load("", nil)
	require.NoError(t, err)
	cfg.Inference.Voice.Enabled = false
	return cfg
}

func keys() conn.Keys {
	return conn.Keys{APIKey: "key", APISecret: "a-secret-of-more-than-32-characters"}
}

func TestNotReadyBeforeTheFirstJoin(t *testing.T) {
	b, err := bot.New(bot.Options{Settings: botSettings(t).Bot(), Keys: keys(), Log: zerolog.Nop()})
	require.NoError(t, err)
	status := b.Snapshot().Status
	require.Equal(t, agent.ActivityReconnecting, status.Activity)
	require.Equal(t, "joining the room", status.Detail)
}

func TestVisitorsGoWhereTheReadyTokenGoes(t *testing.T) {
	cfg := botSettings(t)
	token, err := conn.AgentToken(keys(), conn.Person{Room: "from the token", Identity: "bot"})
	require.NoError(t, err)
	cfg.Agent.LiveKit.Token = redact.Secret(token)
	cfg.Agent.LiveKit.Room = "from the settings"
	b, err := bot.New(bot.Options{Settings: cfg.Bot(), Keys: keys(), Log: zerolog.Nop()})
	require.NoError(t, err)
	require.Equal(t, "from the token", b.Room.RoomName())
	grant, err := b.Tokens.Mint("viewer", "Vera", access.Grant{Rights: access.Everything})
	require.NoError(t, err)
	require.Equal(t, "from the token", grant.Room)
	ready, err := conn.ReadToken(grant.Token)
	require.NoError(t, err)
	require.Equal(t, "from the token", ready.Room)
	require.True(t, ready.Voice, "who may instruct may speak")
	require.False(t, ready.Picture)

	grant, err = b.Tokens.Mint("viewer", "Vera", access.Grant{Rights: access.AllInRoom &^ access.Instruct})
	require.NoError(t, err)
	ready, err = conn.ReadToken(grant.Token)
	require.NoError(t, err)
	require.False(t, ready.Voice)
}
