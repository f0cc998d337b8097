//go:build !nodemo

package main

import (
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/settings"
	"touchline/configs"
	"touchline/inference"
)

// TestWhoTheDemoHears: orders, on a page that only this machine can open; nobody is heard elsewhere, or by join and agent.
func TestWhoTheDemoHears(t *testing.T) {
	require.Equal(t, settings.HearingOff, configs.Default().Agent.Hearing.Mode)
	for _, c := range []struct {
		name, listen, flag, set, path string
		mode, program                 string
	}{
		{"loopback", "127.0.0.1:8199", "", settings.HearingOff, "", settings.HearingOrders, inference.RecognizerSphinx},
		{"open to others", "0.0.0.0:8199", "", settings.HearingOff, "", settings.HearingOff, inference.RecognizerOff},
		{"turned off", "127.0.0.1:8199", settings.HearingOff, settings.HearingOff, "", settings.HearingOff, inference.RecognizerOff},
		{"as set", "0.0.0.0:8199", "", settings.HearingOrders, "", settings.HearingOrders, inference.RecognizerSphinx},
		{"without pocketsphinx", "127.0.0.1:8199", "", settings.HearingOff, t.TempDir(), settings.HearingOff, inference.RecognizerOff},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.path != "" {
				t.Setenv("PATH", c.path)
			}
			cfg := configs.Default()
			cfg.Agent.Console.Listen, cfg.Agent.Hearing.Mode = c.listen, c.set
			d := demoCmd{Hearing: c.flag}
			d.chooseHearing(&cfg, zerolog.Nop())
			require.Equal(t, c.mode, cfg.Agent.Hearing.Mode)
			require.Equal(t, c.program, cfg.Inference.Recognizer.Program)
		})
	}
}
