package bot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"touchline/agent"
	"touchline/agent/command"
	"touchline/agent/look"
	"touchline/agent/settings"
	"touchline/inference/voice"
	"touchline/media"
)

var _ agent.Steerer = (*Bot)(nil)

// Snapshot returns the session's snapshot with the room's sources.
func (b *Bot) Snapshot() agent.Snapshot {
	snap := b.Session.Snapshot()
	snap.Source = described(snap.Source, b.Room.Watcher().Source())
	snap.Scene = b.opts.BuiltIn != ""
	snap.Worlds, snap.World = b.scenery.names(), b.scenery.present(b.Room.Watcher())
	b.engine.describe(&snap)
	if b.sources != nil {
		snap.Sources = b.sources.Sources()
	}
	if b.kept.room != nil {
		snap.Kept, snap.StateProblem = true, b.opts.Outputs.state.Problem()
	}
	snap.AlertQueue = b.opts.Outputs.alertQueue()
	return snap
}

// described joins the selected track with the session's description of its
// pictures. Right after a selection, that still describes the previous track.
func described(pictures, selected agent.SourceInfo) agent.SourceInfo {
	out := agent.SourceInfo{Identity: selected.Identity, Track: selected.Track, Muted: selected.Muted}
	if selected.Identity != "" && pictures.Epoch >= selected.Epoch {
		out.Codec, out.Width, out.Height, out.FPS = pictures.Codec, pictures.Width, pictures.Height, pictures.FPS
	}
	return out
}

// Check implements agent.Steerer.
func (b *Bot) Check(c command.Change) error {
	var err error
	if c.Source != nil {
		_, err = b.scenery.tracks(*c.Source)
	}
	return errors.Join(b.Session.Check(c), b.checkVoice(c.Settings), err)
}

// Change implements agent.Steerer.
func (b *Bot) Change(c command.Change, by string) (settings.Settings, error) {
	var watch media.WatchConfig
	if c.Source != nil {
		var err error
		if watch, err = b.scenery.tracks(*c.Source); err != nil {
			return settings.Settings{}, errors.Join(b.Session.Check(c), err)
		}
	}
	if err := b.checkVoice(c.Settings); err != nil {
		return settings.Settings{}, errors.Join(b.Session.Check(c), err)
	}
	now, err := b.Session.Change(c, by)
	if err != nil {
		return settings.Settings{}, err
	}
	if c.Source != nil {
		b.log.Info().Str("source", *c.Source).Str("by", by).Msg("source chosen")
		b.watch(*c.Source, watch)
	} else if c.Profile != nil && b.scenery.present(b.Room.Watcher()) != nil {
		b.scenery.suggest(*c.Profile)
	}
	if b.opts.Grader != nil {
		b.opts.Grader.Speak(*now.Language)
	}
	return now, nil
}

// checkVoice returns the error of a voice that is not installed or does not speak the language, as both will be.
func (b *Bot) checkVoice(v settings.Settings) error {
	id := cmp.Or(v.Voice, b.Live().Settings.Voice)
	if v.Voice == nil && v.Language == nil || id == nil {
		return nil
	}
	language := cmp.Or(v.Language, b.Session.Snapshot().Settings.Language)
	err := voice.Check(b.engine.engines.voices(), *id, *language)
	switch {
	case err == nil:
		return nil
	case v.Voice == nil:
		return &settings.RangeError{
			Name: "language", Want: "one that the voice speaks; choose another voice first", Got: fmt.Sprintf("%q: %v", *language, err),
		}
	}
	return &settings.RangeError{
		Name: "voice", Want: "an installed voice that speaks the language of the comments", Got: fmt.Sprintf("%q: %v", *id, err),
	}
}

// Voices lists the voices that the room can have.
func (b *Bot) Voices() []agent.VoiceOption {
	language := *b.Session.Snapshot().Settings.Language
	out := b.Session.OwnVoices()
	for _, v := range b.engine.engines.voices() {
		out = append(out, agent.VoiceOption{ID: v.ID, Language: v.Language, Speaks: v.Speaks(language)})
	}
	return out
}

// Start implements agent.Steerer.
func (b *Bot) Start(source, by string) error {
	watch, err := b.scenery.tracks(source)
	if err != nil {
		return err
	}
	if err := b.Session.Start(by); err != nil {
		return err
	}
	b.watch(source, watch)
	return nil
}

// Stop implements agent.Steerer. It also ends the responses of /api/stream.
func (b *Bot) Stop(by string) {
	b.Session.Stop(by)
	b.Hub.EndStreams()
}

// Leave stops commenting because the bot leaves the room; the room's state stays as it is.
func (b *Bot) Leave(why string) {
	b.kept.leave()
	b.Session.Stop(why)
}

// save stores the changes. It is called after each change.
func (b *Bot) save() {
	if b.kept != nil {
		b.kept.save()
	}
}

// rulesChanged is called after each change of the alert rules.
func (b *Bot) rulesChanged() {
	b.save()
	b.announceRules()
}

func (b *Bot) announceRules() {
	b.announcing.Lock()
	defer b.announcing.Unlock()
	b.outputs.announce(b.Alerts.List(time.Now()))
}

// forget deletes the speech of an identity, or of all if it is "".
func (b *Bot) forget(ctx context.Context, by string) error {
	b.ForgetHeard(by)
	return b.opts.Outputs.forget(ctx, b.Room.RoomName(), by)
}

// History implements agent.Steerer.
func (b *Bot) History() []look.Record { return b.Hub.History() }
