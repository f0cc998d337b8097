package main

import (
	"cmp"

	"touchline/agent/bot"
	"touchline/configs"
)

// stateFlags are the flags for data that commands with a bot keep across restarts.
type stateFlags struct {
	State  string `help:"Folder that keeps what people change in a room across restarts; overrides agent.state.path." placeholder:"DIR" type:"path"` //nolint:lll // tags
	Forget bool   `help:"Begin anew: delete what is kept of all rooms."`
}

// outputs returns the settings of the outputs, with the flags applied.
func (f stateFlags) outputs(cfg configs.Config) bot.OutputSettings {
	out := cfg.Outputs()
	out.State.Path = cmp.Or(f.State, out.State.Path)
	out.Forget, out.Version = f.Forget, moduleVersion(buildInfo())
	return out
}
