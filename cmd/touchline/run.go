package main

import (
	"cmp"
	"errors"
	"strconv"
	"strings"

	"touchline/agent/bot"
	"touchline/configs"
)

// runCmd comments on a camera, with a LiveKit server of its own.
type runCmd struct {
	Room      string `help:"Name of the room; overrides the settings." placeholder:"NAME"`
	Profile   string `help:"Prompt profile, such as sports or security; overrides the settings." placeholder:"NAME"`
	MediaPort int    `help:"UDP port of picture and sound; without it, the number of the page's port." placeholder:"PORT"`
	MediaIP   string `help:"Address at which browsers reach that port, behind a router or in a container." name:"media-ip" placeholder:"IP"`

	sourceFlags
	modelFlags
	pageFlags
	stateFlags
}

// endless marks a command that serves until it is interrupted.
func (*runCmd) endless() {}

// configure returns the settings with the flags applied, and the UDP port of media, 0 for a free one.
func (r *runCmd) configure(cfg configs.Config) (configs.Config, int, error) {
	cfg.Agent.LiveKit.Room = cmp.Or(r.Room, cfg.Agent.LiveKit.Room)
	cfg.Agent.Profile = cmp.Or(r.Profile, cfg.Agent.Profile)
	r.pageFlags.apply(&cfg.Agent.Console.Config)
	if err := r.modelFlags.apply(&cfg); err != nil {
		return cfg, 0, err
	}
	listen := cfg.Agent.Console.Listen
	if r.MediaIP != "" && bot.OnLoopback(listen) {
		return cfg, 0, usageError{errors.New("--media-ip: the page listens on this machine only; add --listen 0.0.0.0:8199")}
	}
	if r.MediaPort != 0 {
		return cfg, r.MediaPort, nil
	}
	port, err := strconv.Atoi(listen[strings.LastIndexByte(listen, ':')+1:])
	return cfg, port, err
}
