package wiring_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/room"
	"touchline/cmd/internal/wiring"
	"touchline/configs"
	"touchline/inference"
)

// settings of a bot whose room nobody serves.
func settings(t *testing.T) configs.Config {
	t.Helper()
	// A codec program must be there to be found; nothing here starts it.
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "touchline-codec"), []byte("#!/bin/false\n"), 0o700))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	cfg, err := configs.Load("", nil)
	require.NoError(t, err)
	cfg.Inference.Voice.Enabled = false
	return cfg
}

func keys() room.Keys {
	return room.Keys{APIKey: "key", APISecret: "a-secret-of-more-than-32-characters"}
}

func TestNotReadyBeforeTheFirstJoin(t *testing.T) {
	bot, err := wiring.New(wiring.Options{Config: settings(t), Keys: keys(), Log: zerolog.Nop()})
	require.NoError(t, err)
	status := bot.Snapshot().Status
	require.Equal(t, agent.ChipReconnecting, status.Chip)
	require.Equal(t, "joining the room", status.Detail)
}

func TestVisitorsGoWhereTheReadyTokenGoes(t *testing.T) {
	cfg := settings(t)
	token, err := room.AgentToken(keys(), room.Person{Room: "from the token", Identity: "bot"})
	require.NoError(t, err)
	cfg.Agent.LiveKit.Token = inference.Secret(token)
	cfg.Agent.LiveKit.Room = "from the settings"
	bot, err := wiring.New(wiring.Options{Config: cfg, Keys: keys(), Log: zerolog.Nop()})
	require.NoError(t, err)
	require.Equal(t, "from the token", bot.Room.RoomName())
	grant, err := bot.Tokens.Mint("viewer", "Vera")
	require.NoError(t, err)
	require.Equal(t, "from the token", grant.Room)
	ready, err := room.ReadToken(grant.Token)
	require.NoError(t, err)
	require.Equal(t, "from the token", ready.Room)
}
