//go:build integration

package bot_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/access"
	"touchline/agent/alert"
	"touchline/agent/bot"
	"touchline/agent/command"
	"touchline/agent/events"
	"touchline/agent/prompt"
	"touchline/agent/region"
	"touchline/agent/room/conn"
	"touchline/agent/settings"
	"touchline/agent/state"
	"touchline/configs"
	"touchline/media/source"
	"touchline/media/source/catalog"
)

// logged is a log that can be read while the libraries' goroutines of earlier bots write to it.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// begin runs f with a bot that keeps its state in a folder, and returns the log.
func begin(t *testing.T, to bot.OutputSettings, cfg bot.Settings, f func(*bot.Bot)) string {
	t.Helper()
	var said logged
	log := zerolog.New(&said)
	require.NoError(t, bot.WithOutputs(t.Context(), to, log, func(out *bot.Outputs) error {
		b, err := bot.New(bot.Options{Settings: cfg, Keys: conn.Keys{APIKey: "key", APISecret: "a secret of at least 32 characters"}, Outputs: out, Log: log})
		if err != nil {
			return err
		}
		f(b)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = b.Run(ctx) // closes the engine
		return nil
	}))
	return said.String()
}

func change(t *testing.T, b *bot.Bot, c command.Change) {
	t.Helper()
	_, err := b.Change(c, "ana")
	require.NoError(t, err)
}

// TestKept: a bot begins with what people changed in the room of an earlier one, and with the settings for everything else.
func TestKept(t *testing.T) {
	to := bot.OutputSettings{State: state.Config{Path: t.TempDir()}}
	cfg := configs.Default().Bot()
	begin(t, to, cfg, func(b *bot.Bot) {
		require.True(t, b.Snapshot().Kept)
		change(t, b, command.Change{Instruction: new("Follow the ball."), Profile: new("sports"), Settings: settings.Settings{Frames: new(8), MinInterval: new(2.0)}})
		change(t, b, command.Change{Settings: settings.Settings{Stride: new(2), Speech: new(false)}})
		id, err := b.Alerts.Add(alert.RuleText{When: "motion in left"})
		require.NoError(t, err)
		require.NoError(t, b.Alerts.Remove(id))
		_, err = b.Alerts.Add(alert.RuleText{When: "dark", Days: []string{"mon"}, Zone: "UTC"})
		require.NoError(t, err)
		_, err = b.PutProfile(prompt.Profile{Name: "sports", Label: "Our club", Prompt: "You call our match."}, false, "ana")
		require.NoError(t, err)
		_, err = b.SetBackground("facts: [It rains]", "ana")
		require.NoError(t, err)
		for _, phase := range []string{alert.PhaseNew, alert.PhaseCleared} {
			b.Hub.Alert(alert.Alert{ID: "r1-x", Phase: phase, Reason: phase}, nil)
		}
		b.Leave("the program ends")
		require.Empty(t, b.Snapshot().Instruction)
	})

	cfg.Pacing.PauseAfter *= 2 // another default
	said := begin(t, to, cfg, func(b *bot.Bot) {
		s := b.Snapshot()
		require.Equal(t, "Follow the ball.", s.Instruction)
		require.Equal(t, "ana", s.InstructionBy)
		require.Equal(t, "ACTIVE", s.MonitorMode)
		require.Equal(t, "sports", s.Profile)
		require.Equal(t, []any{8, 2, 2.0, false}, []any{*s.Settings.Frames, *s.Settings.Stride, *s.Settings.MinInterval, *s.Settings.Speech})
		require.Equal(t, cfg.Pacing.PauseAfter.Seconds(), *s.Settings.PauseAfter)
		require.Equal(t, prompt.Profile{Name: "sports", Label: "Our club", Prompt: "You call our match.", Kind: prompt.ProfileChanged}, s.Profiles[1])
		require.Equal(t, "facts: [It rains]", b.Background().Text)
		rules := b.Alerts.Saved()
		require.Equal(t, 2, rules.Last)
		require.Len(t, b.Hub.Alerts(), 1)
		require.Equal(t, []string{alert.PhaseNew, alert.PhaseCleared}, []string{b.Hub.Alerts()[0].Reason, b.Hub.Alerts()[0].Phase})
		require.Len(t, rules.Rules, 1)
		require.Equal(t, "r2", rules.Rules[0].ID)
		require.Equal(t, []string{"mon"}, rules.Rules[0].Days)
	})
	require.NotContains(t, said, "not restored")

	other := cfg
	other.LiveKit.Room = "final"
	begin(t, to, other, func(b *bot.Bot) { require.Empty(t, b.Snapshot().Instruction, "another room") })

	// What is not valid today is left out, and stays in the file.
	small := cfg
	small.Media.WindowSize = 10
	said = begin(t, to, small, func(b *bot.Bot) {
		s := b.Snapshot()
		require.Equal(t, []any{4, 2, 2.0}, []any{*s.Settings.Frames, *s.Settings.Stride, *s.Settings.MinInterval})
		require.Equal(t, "Follow the ball.", s.Instruction)
		change(t, b, command.Change{Settings: settings.Settings{MinInterval: new(3.0)}})
	})
	require.Contains(t, said, "kept value not restored")
	require.Contains(t, said, "frame_stride")
	begin(t, to, cfg, func(b *bot.Bot) {
		s := b.Snapshot()
		require.Equal(t, []any{8, 2, 3.0, "sports"}, []any{*s.Settings.Frames, *s.Settings.Stride, *s.Settings.MinInterval, s.Profile})
		b.Stop("ana")
	})

	// An instruction that people ended stays ended; a new one of the settings holds.
	begin(t, to, cfg, func(b *bot.Bot) {
		require.Empty(t, b.Snapshot().Instruction)
		change(t, b, command.Change{Instruction: new("Follow the referee.")})
	})
	asked := cfg
	asked.Agent.Instruction = "Count the people."
	begin(t, to, asked, func(b *bot.Bot) {
		require.Equal(t, "Count the people.", b.Snapshot().Instruction)
		b.Stop("ana")
	})
	begin(t, to, asked, func(b *bot.Bot) { require.Equal(t, "IDLE", b.Snapshot().MonitorMode) })

	to.Forget = true
	said = begin(t, to, cfg, func(b *bot.Bot) {
		s := b.Snapshot()
		require.Equal(t, []any{"default", cfg.Agent.Frames}, []any{s.Profile, *s.Settings.Frames})
		require.Empty(t, b.Alerts.Saved().Rules)
	})
	require.Contains(t, said, `"rooms":1`)
	require.Contains(t, said, "state of all rooms forgotten")
	err := bot.WithOutputs(t.Context(), bot.OutputSettings{Forget: true}, zerolog.Nop(), nil)
	require.ErrorContains(t, err, "--forget: nothing is kept; name the folder with --state DIR")
}

// settingsAfterRestarts makes changes, each by a bot of its own if restarts is set, and returns the settings in force in the next one.
func settingsAfterRestarts(t *testing.T, cfg bot.Settings, changes []settings.Settings, restarts bool) (before, after settings.Settings) {
	t.Helper()
	to := bot.OutputSettings{State: state.Config{Path: t.TempDir()}}
	for step := range slices.Chunk(changes, map[bool]int{true: 1, false: max(1, len(changes))}[restarts]) {
		begin(t, to, cfg, func(b *bot.Bot) {
			for _, c := range step {
				change(t, b, command.Change{Settings: c})
			}
			before = b.Snapshot().Settings
		})
	}
	begin(t, to, cfg, func(b *bot.Bot) { after = b.Snapshot().Settings })
	return before, after
}

// TestPresetsAreKept: a restart changes no setting, whatever the order of presets and of settings made by hand.
func TestPresetsAreKept(t *testing.T) {
	hand := func(fps float64, frames int) settings.Settings {
		return settings.Settings{CaptureFPS: &fps, Frames: &frames}
	}
	preset := func(name string) settings.Settings { return settings.Settings{Preset: &name} }
	for name, tt := range map[string]struct {
		configured string
		changes    []settings.Settings
		preset     string
		fps        float64
		frames     int
	}{
		"a preset replaces settings made by hand": {changes: []settings.Settings{hand(10, 3), preset("owl")}, preset: "owl", fps: 4, frames: 8},
		"a setting made by hand ends a preset":    {changes: []settings.Settings{preset("owl"), {CaptureFPS: new(10.0)}}, fps: 10, frames: 8},
		"a preset with settings of its own": {
			changes: []settings.Settings{{Preset: new("owl"), Frames: new(3)}}, preset: "owl", fps: 4, frames: 3,
		},
		"no preset":                         {changes: []settings.Settings{preset("owl"), preset("")}, fps: 4, frames: 8},
		"the preset of the configuration":   {configured: "beast", changes: []settings.Settings{{Frames: new(3)}}, fps: 5, frames: 3},
		"another than in the configuration": {configured: "beast", changes: []settings.Settings{preset("sentry"), {Stride: new(3)}}, fps: 2, frames: 4},
		"automatic":                         {configured: "beast", changes: []settings.Settings{preset("auto"), {Stride: new(3)}}, fps: 5, frames: 4},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := configs.Load("", []string{"TOUCHLINE_PRESET=" + tt.configured})
			require.NoError(t, err)
			before, after := settingsAfterRestarts(t, cfg.Bot(), tt.changes, false)
			require.Equal(t, before, after)
			require.Equal(t, []any{tt.preset, tt.fps, tt.frames}, []any{*after.Preset, *after.CaptureFPS, *after.Frames})
		})
	}

	r := rand.New(rand.NewPCG(1, 2))
	for range 10 {
		var changes []settings.Settings
		for range 1 + r.IntN(5) {
			names := []string{"", "auto", "beast", "owl", "sentry", "sniper"}
			switch r.IntN(3) {
			case 0:
				changes = append(changes, hand(1+float64(r.IntN(20)), 1+r.IntN(20)))
			case 1:
				changes = append(changes, settings.Settings{PauseAfter: new(float64(r.IntN(9)))})
			case 2:
				changes = append(changes, preset(names[r.IntN(len(names))]))
			}
		}
		before, after := settingsAfterRestarts(t, configs.Default().Bot(), changes, r.IntN(2) == 0)
		require.Equal(t, before, after, "%s", encoded(t, changes))
	}
}

// TestOlderStateOfSettings: settings as earlier versions have written them keep their meaning.
func TestOlderStateOfSettings(t *testing.T) {
	to := bot.OutputSettings{State: state.Config{Path: t.TempDir()}}
	cfg := configs.Default().Bot()
	store, err := state.Open(to.State, zerolog.Nop())
	require.NoError(t, err)
	store.Room(cfg.LiveKit.Room, cfg.LiveKit.Identity).Keep("settings",
		json.RawMessage(`{"capture_fps":10,"preset":"owl","frame_stride":99,"unheard_of":1,"voice_gain":-3}`))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, store.Run(ctx)) // writes it
	begin(t, to, cfg, func(b *bot.Bot) {
		s := b.Snapshot().Settings
		require.Equal(t, []any{"owl", 10.0, 8, 2, -3.0}, []any{*s.Preset, *s.CaptureFPS, *s.Frames, *s.Stride, *s.VoiceGain})
		change(t, b, command.Change{Settings: settings.Settings{VoiceGain: new(2.0)}})
	})
	require.JSONEq(t, `{"capture_fps":10,"preset":"owl","frame_stride":99,"unheard_of":1,"voice_gain":2}`, keptSettings(t, to, cfg), "invalid ones stay")
	begin(t, to, cfg, func(b *bot.Bot) { change(t, b, command.Change{Settings: settings.Settings{Preset: new("beast")}}) })
	require.JSONEq(t, `{"preset":"beast","unheard_of":1,"voice_gain":2}`, keptSettings(t, to, cfg), "until they are replaced")
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

// keptSettings returns the settings in the state file.
func keptSettings(t *testing.T, to bot.OutputSettings, cfg bot.Settings) string {
	t.Helper()
	store, err := state.Open(to.State, zerolog.Nop())
	require.NoError(t, err)
	values, err := store.Room(cfg.LiveKit.Room, cfg.LiveKit.Identity).Load()
	require.NoError(t, err)
	require.NoError(t, store.Close())
	return string(values["settings"])
}

// TestKeptCameras: a bot begins with the cameras that people added in an earlier run, and with the one that they chose to
// watch. Their passwords are in the file alone.
func TestKeptCameras(t *testing.T) {
	to := bot.OutputSettings{State: state.Config{Path: t.TempDir()}}
	cfg := configs.Default().Bot()
	private, public := source.Allow{Private: true, Public: true}, source.Allow{Public: true}
	var cameras []source.Info
	run := func(o bot.SourcesOptions, f func(*bot.Bot, *bot.Sources)) string {
		return begin(t, to, cfg, func(b *bot.Bot) {
			s, err := b.NewSources(o)
			require.NoError(t, err)
			f(b, s)
			cameras = s.Sources()
		})
	}
	names := func() (out []string) {
		for _, c := range cameras {
			out = append(out, c.Name)
		}
		return out
	}
	watch := func(b *bot.Bot, identity string) {
		t.Helper()
		_, err := b.Change(command.Change{Source: new("camera:" + identity)}, "ana")
		require.NoError(t, err)
	}

	said := run(bot.SourcesOptions{Allow: private}, func(b *bot.Bot, s *bot.Sources) {
		for _, w := range []source.Request{
			{URL: "rtsp://ana:hunter2@192.168.7.7/door?token=hunter3", Transport: "udp", Insecure: true},
			{URL: "rtsp://cameras.test/gate", Name: "Gate"},
			{URL: "http://192.168.7.8/yard.mjpg", Name: "Yard"},
		} {
			_, err := s.Add(w, "ana")
			require.NoError(t, err)
		}
		gate := s.Sources()[1]
		_, err := s.Change(gate.ID, source.Change{Name: new("Main gate")}, "ana")
		require.NoError(t, err)
		watch(b, gate.Identity)
	})
	first := cameras
	require.Equal(t, []string{"192.168.7.7", "Main gate", "Yard"}, names())
	info, err := os.Stat(filepath.Join(to.State.Path, "state.db"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	said += run(bot.SourcesOptions{Allow: private}, func(_ *bot.Bot, s *bot.Sources) {
		for i, c := range s.Sources() {
			require.Equal(t, []any{first[i].ID, first[i].Identity, first[i].Name, first[i].Address}, []any{c.ID, c.Identity, c.Name, c.Address})
			require.Equal(t, c.Name == "Main gate", c.Watched)
		}
		kept := s.Kept()
		require.Equal(t, []any{"rtsp://ana:hunter2@192.168.7.7/door?token=hunter3", "udp", true}, []any{kept[0].URL, kept[0].Transport, kept[0].Insecure})
	})
	// What is allowed is judged anew. What is not allowed today is listed with the reason, stays in the file, and can be deleted.
	said += run(bot.SourcesOptions{Allow: public}, func(b *bot.Bot, s *bot.Sources) {
		require.Equal(t, first[1].Identity, b.Room.Watcher().Watching().Identity)
		watch(b, "a phone")
		for i, c := range s.Sources() {
			require.Equal(t, []any{first[i].ID, first[i].Identity, first[i].Address}, []any{c.ID, c.Identity, c.Address})
			require.Equal(t, c.Name != "Main gate", c.State == "failed", c.Name)
		}
		require.Contains(t, s.Sources()[0].Reason, "private")
		_, err := s.Add(source.Request{URL: "rtsp://cameras.test/barn", Name: "Barn"}, "ana")
		require.NoError(t, err)
		require.NoError(t, s.Remove(t.Context(), s.Sources()[3].ID, "ana"))
		_, err = s.Change(first[0].ID, source.Change{Name: new("Door")}, "ana")
		require.NoError(t, err)
		_, err = s.Change(first[0].ID, source.Change{Name: new("192.168.7.7")}, "ana")
		require.NoError(t, err)
	})
	require.Equal(t, []string{"192.168.7.7", "Main gate", "Yard"}, names())
	require.Contains(t, said, "kept value not restored")
	require.NotContains(t, said, "hunter")
	// A deleted one stays deleted, and so does the choice of it.
	run(bot.SourcesOptions{Allow: private}, func(b *bot.Bot, s *bot.Sources) {
		require.Equal(t, "a phone", b.Room.Watcher().Watching().Identity)
		require.NoError(t, s.Remove(t.Context(), first[1].ID, "ana"))
		_, err := b.Change(command.Change{Source: new("")}, "ana")
		require.NoError(t, err)
	})
	require.Equal(t, []string{"192.168.7.7", "Yard"}, names())
	// The source of the command line wins over the one of its name, and is watched in place of a choice without it.
	run(bot.SourcesOptions{Allow: private}, func(b *bot.Bot, _ *bot.Sources) { watch(b, first[2].Identity) })
	address, err := source.ParseAddress("rtsp://eva:other@192.168.7.7/door")
	require.NoError(t, err)
	puller, err := catalog.Open(catalog.Options{Access: source.Access{Address: address, Allow: source.AllowEverything(), Now: time.Now, Log: zerolog.Nop()}})
	require.NoError(t, err)
	o := bot.SourcesOptions{Allow: private, First: &bot.FirstSource{Puller: puller, Address: address, Identity: "door"}}
	run(o, func(b *bot.Bot, s *bot.Sources) {
		require.Equal(t, []string{"door", first[2].Identity}, []string{s.Sources()[0].Identity, s.Sources()[1].Identity})
		require.Equal(t, "door", b.Room.Watcher().Watching().Identity)
		watch(b, first[2].Identity)
	})
	run(o, func(b *bot.Bot, _ *bot.Sources) {
		require.Equal(t, first[2].Identity, b.Room.Watcher().Watching().Identity)
	})
	require.Equal(t, []string{"192.168.7.7", "Yard"}, names())
}

// TestProfilesAndSettingsAreKept: what people set in place of the profile's own, and what the profile replaced, is so after a restart.
func TestProfilesAndSettingsAreKept(t *testing.T) {
	quiet := prompt.Profile{Name: "quiet", Label: "Quiet", Prompt: "You whisper.", VoiceGain: new(-6.0)}
	choose := func(name string) command.Change { return command.Change{Profile: &name} }
	gain := func(db float64) command.Change { return command.Change{Settings: settings.Settings{VoiceGain: &db}} }
	for name, tt := range map[string]struct {
		configured string
		changes    []command.Change
		gain       float64
	}{
		"the profile's":               {changes: []command.Change{gain(3), choose("quiet")}, gain: -6},
		"in its place":                {changes: []command.Change{choose("quiet"), gain(3)}, gain: 3},
		"of the configured profile":   {configured: "quiet", changes: []command.Change{gain(3)}, gain: 3},
		"the configured one returned": {configured: "quiet", changes: []command.Change{gain(3), choose("sports"), choose("quiet")}, gain: -6},
		"without the profile":         {configured: "quiet", changes: []command.Change{gain(3), choose("sports")}, gain: 3},
	} {
		t.Run(name, func(t *testing.T) {
			to := bot.OutputSettings{State: state.Config{Path: t.TempDir()}}
			cfg := configs.Default().Bot()
			cfg.Profiles = append(slices.Clone(cfg.Profiles), quiet)
			cfg.Agent.Profile = cmp.Or(tt.configured, cfg.Agent.Profile)
			begin(t, to, cfg, func(b *bot.Bot) {
				for _, c := range tt.changes {
					change(t, b, c)
				}
				require.InDelta(t, tt.gain, *b.Snapshot().Settings.VoiceGain, 0)
			})
			for range 2 {
				begin(t, to, cfg, func(b *bot.Bot) { require.InDelta(t, tt.gain, *b.Snapshot().Settings.VoiceGain, 0) })
			}
		})
	}
}

// TestRevokedLinksAreKept: a revoked link stays revoked after a restart with a state file, also after its room's state was forgotten, and
// in the next bot of the room, however little may be handed over.
func TestRevokedLinksAreKept(t *testing.T) {
	cfg := configs.Default().Bot()
	to := bot.OutputSettings{State: state.Config{Path: t.TempDir()}}
	now := time.Now()
	keys := access.Keys{APIKey: "key", APISecret: "a secret of at least 32 characters"}
	g := access.Grant{Rooms: []string{cfg.LiveKit.Room}, Rights: access.AllInRoom, Expires: now.Add(time.Hour)}
	token, err := access.Sign(keys, g, now)
	require.NoError(t, err)
	revoked := func(links *access.Links) {
		t.Helper()
		keys.Links = links
		_, err := access.Verify(keys, token, now)
		require.ErrorIs(t, err, access.ErrRevoked)
	}
	var handed, whole string
	require.NoError(t, bot.WithOutputs(t.Context(), to, zerolog.Nop(), func(out *bot.Outputs) error {
		id := out.Links().Made(token, g, "ana", now)
		return out.Links().Revoke(cfg.LiveKit.Room, id, "", now)
	}))
	begin(t, to, cfg, func(b *bot.Bot) {
		_, err := b.SetBackground("facts:\n"+strings.Repeat("- Blue plays at home.\n", 60), "ana")
		require.NoError(t, err)
		handed, whole = b.HandOver(100), b.HandOver(1<<20)
		require.LessOrEqual(t, len(handed), 100)
		require.NotContains(t, b.HandOver(10), "regions", "the room has no masks")
		require.NoError(t, b.Regions.Put("yard", corner(region.Zone), "ana", now))
		least := b.HandOver(50)
		require.LessOrEqual(t, len(least), 50, "a text that is too large is dropped, masks and all")
		require.Contains(t, least, "regions")
		require.NoError(t, b.Regions.Clear())
	})
	to.Forget = true
	require.NoError(t, bot.WithOutputs(t.Context(), to, zerolog.Nop(), func(out *bot.Outputs) error {
		revoked(out.Links())
		require.Len(t, out.Links().List(cfg.LiveKit.Room, "", now), 1)
		return nil
	}))
	next := func(handed string) (links []access.Link) {
		require.NoError(t, bot.WithOutputs(t.Context(), bot.OutputSettings{}, zerolog.Nop(), func(out *bot.Outputs) error {
			var kept map[string]json.RawMessage
			require.NoError(t, json.Unmarshal([]byte(handed), &kept))
			b, err := bot.New(bot.Options{Settings: cfg, Keys: keys, Kept: kept, Outputs: out, Log: zerolog.Nop()})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_ = b.Run(ctx)
			revoked(out.Links())
			links = out.Links().List(cfg.LiveKit.Room, "", now)
			return nil
		}))
		return links
	}
	require.Empty(t, next(handed)[0].By)
	for range 10 {
		require.Equal(t, "ana", next(whole)[0].By, "the list of links has its names and rights")
	}
}

// TestForget: what the API deletes is deleted from the session, its outputs and the state file.
func TestForget(t *testing.T) {
	to := bot.OutputSettings{State: state.Config{Path: t.TempDir()}}
	begin(t, to, configs.Default().Bot(), func(b *bot.Bot) {
		_, err := b.Change(command.Change{Instruction: new("only my secret")}, prompt.InRoom+"ann")
		require.NoError(t, err)
	})
	begin(t, to, configs.Default().Bot(), func(b *bot.Bot) {
		require.Equal(t, "only my secret", b.Snapshot().Instruction)
		began := time.Now()
		for _, text := range []string{"a secret", "the rest of it"} {
			b.Hear(agent.Heard{Segment: text, Identity: "ann", Text: text, Final: true, Caption: true, Began: began})
			require.NoError(t, b.ConsoleRoom().Forget(t.Context(), "ann"))
		}
		q, _ := b.Hub.Subscribe(events.Named, 0, true)
		defer q.Close()
		for _, e := range q.Take().Events {
			require.NotContains(t, string(e), "secret")
			require.NotContains(t, string(e), "rest")
		}
	})
	begin(t, to, configs.Default().Bot(), func(b *bot.Bot) {
		require.Empty(t, b.Snapshot().Instruction)
		require.Equal(t, "ACTIVE", b.Snapshot().MonitorMode, "commenting goes on")
	})
}

// TestHandOverOfLinks: however long the names of the links are that the holder of a link made, the operator's are handed over.
func TestHandOverOfLinks(t *testing.T) {
	cfg := configs.Default().Bot()
	to := bot.OutputSettings{State: state.Config{Path: t.TempDir()}}
	now := time.Now()
	var root string
	require.NoError(t, bot.WithOutputs(t.Context(), to, zerolog.Nop(), func(out *bot.Outputs) error {
		g := access.Grant{Rooms: []string{cfg.LiveKit.Room}, Rights: access.AllInRoom, Expires: now.Add(time.Hour)}
		root = out.Links().Made("root", g, "ana", now)
		for i := range 99 {
			out.Links().Made(fmt.Sprint("root", i), g, "ana", now)
		}
		g.Name, g.Links = strings.Repeat("\U0001f600", 128), []string{root}
		for i := range 100 {
			out.Links().Made(fmt.Sprint(i), g, "the holder", now)
		}
		return nil
	}))
	begin(t, to, cfg, func(b *bot.Bot) {
		whole := b.HandOver(1 << 20)
		require.Contains(t, whole, "the holder")
		handed := b.HandOver(len(whole) - 1)
		require.Contains(t, handed, root)
		require.NotContains(t, handed, "the holder")
	})
}
