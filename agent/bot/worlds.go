package bot

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/agent/camera"
	"touchline/agent/room/watch"
	"touchline/agent/settings"
	"touchline/media"
	"touchline/worlds"
)

// sourceScene is the page's name for the built-in camera.
const sourceScene = "scene"

// Beginnings of other sources: of a generated world, and of a participant.
const (
	prefixWorld  = "world:"
	prefixCamera = "camera:"
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

// scenery is the built-in camera, which can show generated worlds.
type scenery struct {
	identity string         // "" without a built-in camera
	worlds   *camera.Worlds // nil if it shows no worlds
	grader   Grader         // may be nil
	first    media.WatchConfig
	log      zerolog.Logger
}

func newScenery(o Options) *scenery {
	return &scenery{o.BuiltIn, o.Worlds, o.Grader, o.Settings.Media.Watch, o.Log}
}

// names lists the generated worlds that the built-in camera can show.
func (s *scenery) names() []string {
	if s.worlds == nil {
		return nil
	}
	return worlds.Worlds()
}

// present describes the generated world that is watched, or will be once it is in the room; nil for another source.
func (s *scenery) present(watcher *watch.Watcher) *agent.World {
	if s.worlds == nil {
		return nil
	}
	if identity := cmp.Or(watcher.Source().Identity, watcher.Watching().Identity, s.identity); identity != s.identity {
		return nil
	}
	w := s.worlds.Present().World
	out := &agent.World{Name: w.Name()}
	if match := w.Truth(0).Match; match != nil {
		out.Teams = match.Teams[:]
	}
	if s.grader != nil {
		out.Grade = s.grader.Grade(time.Now())
	}
	return out
}

// tracks returns the selection of tracks that a source names.
func (s *scenery) tracks(source string) (media.WatchConfig, error) {
	switch {
	case source == "":
		return s.first, nil
	case source == sourceScene && s.identity != "":
		return media.WatchConfig{Identity: s.identity}, nil
	}
	if world, ok := strings.CutPrefix(source, prefixWorld); ok && slices.Contains(s.names(), world) {
		return media.WatchConfig{Identity: s.identity}, nil
	}
	if id, ok := strings.CutPrefix(source, prefixCamera); ok && id != "" {
		return media.WatchConfig{Identity: id}, nil
	}
	want := `"" (the first camera) or "camera:IDENTITY"`
	if s.identity != "" {
		want = `"", "scene" (the built-in one) or "camera:IDENTITY"`
	}
	if worlds := s.names(); len(worlds) > 0 {
		want = fmt.Sprintf(`"", "scene" (the built-in one), "world:NAME" with one of %q, or "camera:IDENTITY"`, worlds)
	}
	return media.WatchConfig{}, &settings.RangeError{Name: "source", Want: want, Got: fmt.Sprintf("%q", source)}
}

// play shows the generated world that a source names, if it names one.
func (s *scenery) play(source string) {
	if world, ok := strings.CutPrefix(source, prefixWorld); ok {
		if err := s.worlds.Play(world); err != nil {
			s.log.Error().Err(err).Msg("world not shown")
		}
	}
}

// suggest shows the natural scene of a profile, if it has one, unless a person chose a world.
func (s *scenery) suggest(profile string) {
	natural := map[string]string{"sports": worlds.Match, "security": worlds.Yard}
	world, ok := natural[profile]
	if s.worlds == nil || !ok {
		return
	}
	if err := s.worlds.Suggest(world); err != nil {
		s.log.Error().Err(err).Msg("world not shown")
	}
}

// watch selects the tracks of a source, and plays the generated world that the source names.
func (b *Bot) watch(source string, tracks media.WatchConfig) {
	b.scenery.play(source)
	b.Room.Watcher().Select(tracks)
	b.chosen.Store(&source)
	b.save()
	if b.opts.Grader != nil {
		b.opts.Grader.Restart(time.Now())
	}
}
