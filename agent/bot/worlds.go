package bot

import (
	"cmp"
	"strings"
	"time"

	"touchline/agent"
	"touchline/media"
	"touchline/worlds"
)

// worlds lists the generated worlds that the built-in camera can show.
func (b *Bot) worlds() []string {
	if b.opts.Worlds == nil {
		return nil
	}
	return toyworld.Worlds()
}

// world describes the generated world that is watched, or will be once it is in the room; nil for another source.
func (b *Bot) world() *agent.World {
	if b.opts.Worlds == nil {
		return nil
	}
	watcher := b.Room.Watcher()
	if identity := cmp.Or(watcher.Source().Identity, watcher.Watching().Identity, b.opts.BuiltIn); identity != b.opts.BuiltIn {
		return nil
	}
	w := b.opts.Worlds.Present().World
	out := &agent.World{Name: w.Name()}
	if match := w.Truth(0).Match; match != nil {
		out.Teams = match.Teams[:]
	}
	out.Grade = b.grader.grade(time.Now())
	return out
}

// watch selects the tracks of a source, and plays the generated world that the source names.
func (b *Bot) watch(source string, tracks media.WatchConfig) {
	if world, ok := strings.CutPrefix(source, prefixWorld); ok {
		if err := b.opts.Worlds.Play(world); err != nil {
			b.log.Error().Err(err).Msg("world not shown")
		}
	}
	b.Room.Watcher().Select(tracks)
	if b.grader != nil {
		b.grader.restart(time.Now())
	}
}

// suggestWorld shows the natural scene of a profile, if it has one, unless a person chose a world.
func (b *Bot) suggestWorld(profile string) {
	natural := map[string]string{"sports": toyworld.Match, "security": toyworld.Yard}
	world, ok := natural[profile]
	if b.opts.Worlds == nil || !ok {
		return
	}
	if err := b.opts.Worlds.Suggest(world); err != nil {
		b.log.Error().Err(err).Msg("world not shown")
	}
}
