package bot

import (
	"cmp"
	"strings"
	"time"

	"touchline/agent"
	"touchline/media"
	"touchline/worlds"
)

// Grader judges the comments on a generated world. It is safe for concurrent use.
type Grader interface {
	agent.TextOutput
	// Restart forgets the comments on pictures before a moment: another source is watched.
	Restart(now time.Time)
	// Speak sets the language of the comments (BCP 47).
	Speak(language string)
	// Grade counts the comments of the last minute; nil before the first.
	Grade(now time.Time) *agent.Grade
}

// worlds lists the generated worlds that the built-in camera can show.
func (b *Bot) worlds() []string {
	if b.opts.Worlds == nil {
		return nil
	}
	return worlds.Worlds()
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
	if b.opts.Grader != nil {
		out.Grade = b.opts.Grader.Grade(time.Now())
	}
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
	b.chosen.Store(&source)
	b.save()
	if b.opts.Grader != nil {
		b.opts.Grader.Restart(time.Now())
	}
}

// suggestWorld shows the natural scene of a profile, if it has one, unless a person chose a world.
func (b *Bot) suggestWorld(profile string) {
	natural := map[string]string{"sports": worlds.Match, "security": worlds.Yard}
	world, ok := natural[profile]
	if b.opts.Worlds == nil || !ok {
		return
	}
	if err := b.opts.Worlds.Suggest(world); err != nil {
		b.log.Error().Err(err).Msg("world not shown")
	}
}
