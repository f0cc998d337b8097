//go:build integration

package bot_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/alert"
	"touchline/agent/bot"
	"touchline/agent/command"
	"touchline/agent/look"
	"touchline/agent/region"
	"touchline/agent/room/conn"
	"touchline/agent/settings"
	"touchline/agent/state"
	"touchline/configs"
	"touchline/inference"
	"touchline/inference/engine"
	"touchline/inference/minicpmo"
	"touchline/inference/nano"
	"touchline/inference/remote"
	"touchline/inference/scene"
	"touchline/internal/redact"
	checkpoint "touchline/models/nano"
)

// garage makes engines that take two seconds to load.
type garage struct {
	*bot.Engines

	mu     sync.Mutex
	loaded map[string]int
	made   []bot.Settings
	fail   map[string]error                  // of loading, by engine
	small  bool                              // the memory has room for one model only
	can    map[string]inference.Capabilities // known before loading
	// loadedCan are those of loaded models.
	loadedCan inference.Capabilities
	found     []remote.Found
	quick     bool // they load at once
}

func newGarage() *garage {
	return &garage{loaded: map[string]int{}, fail: map[string]error{}, can: map[string]inference.Capabilities{}}
}

// open makes the engines' owner, in the bubble.
func (g *garage) open() {
	g.Engines = bot.ScriptedEngines(g.build, func(_ context.Context, addresses ...string) []remote.Found {
		return slices.DeleteFunc(slices.Clone(g.found), func(f remote.Found) bool {
			return len(addresses) > 0 && !slices.Contains(addresses, f.URL)
		})
	})
}

// parked is a loaded model.
type parked struct {
	scene.Model

	name  string
	close func()
	can   inference.Capabilities
}

func (p parked) Name() string                         { return p.name }
func (p parked) Capabilities() inference.Capabilities { return p.can }
func (p parked) Close() error                         { p.close(); return nil }

func (g *garage) count(name string, by int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.loaded[name] += by; g.loaded[name] == 0 {
		delete(g.loaded, name)
	}
}

// inMemory returns the names of the loaded models.
func (g *garage) inMemory() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.loaded))
}

func (g *garage) build(cfg bot.Settings, log zerolog.Logger) (*bot.Engine, error) {
	name := cmp.Or(cfg.Remote.Model, cfg.Engine.Engine)
	if cfg.Engine.Engine != "remote" {
		name = cfg.Engine.Engine
	}
	g.mu.Lock()
	g.made = append(g.made, cfg)
	can := g.can[name]
	g.mu.Unlock()
	pace := 500 * time.Millisecond
	if g.quick {
		pace = 0
	}
	e := &bot.Engine{Note: "of " + name}
	keeper, err := engine.New(func(ctx context.Context, progress engine.Progress) (inference.Model, error) {
		g.mu.Lock()
		full, err := g.small && len(g.loaded) > 0, g.fail[name]
		g.mu.Unlock()
		if full {
			return nil, &minicpmo.DoesNotFitError{Free: 1 << 30}
		}
		for i := range 4 {
			progress(i*25, "reading weights")
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(pace):
			}
		}
		if err != nil {
			return nil, err
		}
		g.count(name, 1)
		return parked{name: name, can: g.loadedCan, close: func() { g.count(name, -1) }}, nil
	}, engine.Options{
		Name: name, Capabilities: can, Preload: true, Logger: log, FirstLoadFatal: func() bool { return !e.Patient },
	})
	e.ModelManager = keeper
	return e, err
}

// drive runs a bot's changes, without its room, in a bubble.
func drive(t *testing.T, g *garage, cfg bot.Settings, out *bot.Outputs) *bot.Bot {
	t.Helper()
	b, err := bot.New(bot.Options{Settings: cfg, Outputs: out, Keys: conn.Keys{APIKey: "key", APISecret: "a secret of at least 32 characters"}, Engines: g.Engines, Log: zerolog.Nop()})
	require.NoError(t, err)
	return b
}

// run runs f in a bubble with the engines of g, and ends the parts in order.
func (g *garage) run(t *testing.T, cfg bot.Settings, f func(t *testing.T, b *bot.Bot)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g.open()
		b := drive(t, g, cfg, nil)
		var wg sync.WaitGroup
		outer, stopEngines := context.WithCancel(t.Context())
		inner, stop := context.WithCancel(t.Context())
		var failed error
		wg.Go(func() { failed = g.Run(outer) })
		done := make(chan error, 1)
		go func() { done <- b.RunChanges(inner) }()
		time.Sleep(3 * time.Second)
		f(t, b)
		stop()
		require.ErrorIs(t, <-done, context.Canceled)
		require.NoError(t, b.CloseEngines())
		stopEngines()
		wg.Wait()
		require.NoError(t, failed)
		require.Empty(t, g.inMemory(), "all are closed")
	})
}

func withEngine(engine string) bot.Settings {
	cfg := configs.Default()
	cfg.Agent.LiveKit.Room = "final"
	out := cfg.Bot()
	out.Engine.Engine = engine
	return out
}

func choose(t *testing.T, b *bot.Bot, engine string) {
	t.Helper()
	require.NoError(t, b.ChangeEngine(t.Context(), agent.EngineChoice{Engine: engine}, "ana"))
}

func TestEngineLoadsBesideTheOther(t *testing.T) {
	g := newGarage()
	g.run(t, withEngine("auto"), func(t *testing.T, b *bot.Bot) {
		t.Helper()
		require.Equal(t, "scene", b.Snapshot().Engine)
		choose(t, b, "nano")
		time.Sleep(1250 * time.Millisecond)
		snap := b.Snapshot()
		require.Equal(t, "scene", snap.Engine, "it goes on")
		require.True(t, snap.ModelLoaded)
		require.Equal(t, &agent.EngineChange{EngineChoice: agent.EngineChoice{Engine: "nano"}, Percent: 50, Detail: "reading weights"}, snap.EngineChange)
		time.Sleep(2 * time.Second)
		snap = b.Snapshot()
		require.Equal(t, []any{"nano", "of nano"}, []any{snap.Engine, snap.EngineNote})
		require.Nil(t, snap.EngineChange)
		require.Empty(t, snap.EngineProblem)
		require.Equal(t, []string{"nano"}, g.inMemory(), "the old one is freed")
		choose(t, b, "nano")
		time.Sleep(time.Second)
		require.Len(t, g.made, 2, "it is in force already")
	})
}

func TestEngineThatDoesNotLoad(t *testing.T) {
	g := newGarage()
	g.fail["qwen"] = errors.New("the model server cannot be reached")
	g.found = []remote.Found{{URL: "http://127.0.0.1:8000/v1", Kind: "vLLM", Models: []string{"qwen"}}}
	g.run(t, withEngine("scene"), func(t *testing.T, b *bot.Bot) {
		t.Helper()
		require.NoError(t, b.ChangeEngine(t.Context(), agent.EngineChoice{Engine: "remote", Model: "qwen"}, "ana"))
		time.Sleep(3 * time.Second)
		snap := b.Snapshot()
		require.Equal(t, "scene", snap.Engine)
		require.Nil(t, snap.EngineChange)
		require.Equal(t, "the change to qwen on http://127.0.0.1:8000/v1 failed, scene goes on: the model server cannot be reached", snap.EngineProblem)
		require.Equal(t, []string{"scene"}, g.inMemory())
		choose(t, b, "nano")
		require.Empty(t, b.Snapshot().EngineProblem, "the next change is under way")
	})
}

// TestEngineWithoutMemoryForBoth: comments pause while the engines are exchanged, and after a failure the old one is loaded
// again.
func TestEngineWithoutMemoryForBoth(t *testing.T) {
	cfg := withEngine("nano")
	var err error
	cfg.MiniCPM.Path, err = nano.Bundle(t.Context(), t.TempDir(), checkpoint.Convert)
	require.NoError(t, err)
	for _, failure := range []error{nil, errors.New("the weights are damaged")} {
		g := newGarage()
		g.small = true
		if failure != nil {
			g.fail["minicpmo"] = failure
		}
		g.run(t, cfg, func(t *testing.T, b *bot.Bot) {
			t.Helper()
			require.Equal(t, []string{"nano"}, g.inMemory())
			choose(t, b, "minicpmo")
			time.Sleep(1600 * time.Millisecond)
			snap := b.Snapshot()
			require.Empty(t, g.inMemory(), "nano is freed first")
			require.False(t, snap.ModelLoaded)
			require.True(t, snap.EngineChange.Pauses)
			require.Positive(t, snap.EngineChange.Percent)
			time.Sleep(5 * time.Second)
			snap = b.Snapshot()
			require.True(t, snap.ModelLoaded)
			require.Nil(t, snap.EngineChange)
			if failure == nil {
				require.Equal(t, "minicpmo", snap.Engine)
				require.Equal(t, []string{"minicpmo"}, g.inMemory())
				return
			}
			require.Equal(t, "nano", snap.Engine)
			require.Equal(t, "the change to minicpmo failed, nano goes on: the weights are damaged", snap.EngineProblem)
			require.Equal(t, []string{"nano"}, g.inMemory())
		})
	}
}

func TestAnotherEngineIsChosenMeanwhile(t *testing.T) {
	g := newGarage()
	g.found = []remote.Found{{URL: "http://127.0.0.1:8000/v1", Models: []string{"a", "b"}}}
	g.run(t, withEngine("scene"), func(t *testing.T, b *bot.Bot) {
		t.Helper()
		for _, model := range []string{"a", "b", "a", "b"} {
			require.NoError(t, b.ChangeEngine(t.Context(), agent.EngineChoice{Engine: "remote", Model: model}, "ana"))
			time.Sleep(700 * time.Millisecond)
		}
		require.Equal(t, "scene", b.Snapshot().Engine)
		time.Sleep(3 * time.Second)
		require.Equal(t, "b", b.Snapshot().Engine)
		require.Equal(t, []string{"b"}, g.inMemory())
		require.NoError(t, b.ChangeEngine(t.Context(), agent.EngineChoice{Engine: "remote", Model: "a"}, "ana"))
		time.Sleep(700 * time.Millisecond)
		require.NoError(t, b.ChangeEngine(t.Context(), agent.EngineChoice{Engine: "remote", Model: "b"}, "ana"))
		time.Sleep(3 * time.Second)
		require.Equal(t, "b", b.Snapshot().Engine)
		require.Nil(t, b.Snapshot().EngineChange)
	})
}

func TestEnginesThatAreRefused(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // without the networks of sight
	g := newGarage()
	g.can["nano"] = inference.Capabilities{Languages: []string{"en", "es"}}
	cfg := withEngine("scene")
	cfg.Engine.Voice.Language = "nl"
	g.run(t, cfg, func(t *testing.T, b *bot.Bot) {
		t.Helper()
		for choice, want := range map[agent.EngineChoice]string{
			{Engine: "nano"}:     `language: expected one of ["en" "es"], as the nano engine speaks nothing else, got "nl"`,
			{Engine: "minicpmo"}: "no model is installed: start with --model DIR",
			{Engine: "magic"}:    `engine: expected one of scene, nano, got "magic"`,
			{Engine: "remote", Server: "http://192.0.2.1:8000/v1"}: `engine: expected one of scene, nano, got "http://192.0.2.1:8000/v1"`,
		} {
			err := b.ChangeEngine(t.Context(), choice, "ana")
			require.ErrorContains(t, err, want)
			var bad *settings.RangeError
			require.ErrorAs(t, err, &bad)
		}
		require.Nil(t, b.Snapshot().EngineChange)
		require.Equal(t, 1, g.Shared(), "refused ones leave nothing")
	})
}

// TestEngineIsRefusedAfterLoading: what it can do is known only then.
func TestEngineIsRefusedAfterLoading(t *testing.T) {
	g := newGarage()
	g.loadedCan = inference.Capabilities{MaxFrames: func(int, int, int) int { return 1 }}
	g.run(t, withEngine("scene"), func(t *testing.T, b *bot.Bot) {
		t.Helper()
		choose(t, b, "nano")
		time.Sleep(3 * time.Second)
		require.Equal(t, "scene", b.Snapshot().Engine)
		require.Contains(t, b.Snapshot().EngineProblem, "frames_per_look: expected at most 1")
	})
}

// TestRegionsStay: a change of the engine, also one that fails, leaves the masks, zones and lines of the room, and a rule still holds its zone.
func TestRegionsStay(t *testing.T) {
	g := newGarage()
	g.fail["qwen"] = errors.New("the model server cannot be reached")
	g.found = []remote.Found{{URL: "http://127.0.0.1:8000/v1", Kind: "vLLM", Models: []string{"qwen", "gemma"}}}
	cfg := withEngine("scene")
	cfg.Regions.List = []region.Item{region.Item(corner(region.Mask))}
	cfg.Regions.List[0].Name = "door"
	g.run(t, cfg, func(t *testing.T, b *bot.Bot) {
		t.Helper()
		for name, kind := range map[string]string{"window": region.Mask, "yard": region.Zone, "gate": region.Line} {
			require.NoError(t, b.Regions.Put(name, corner(kind), "ana", time.Now()))
		}
		saved, masks := b.Regions.Saved(), b.Regions.Masks()
		require.Len(t, saved.Regions, 4)
		require.Len(t, masks.Shapes, 2)
		to := func(engine, model, want string) {
			require.NoError(t, b.ChangeEngine(t.Context(), agent.EngineChoice{Engine: engine, Model: model}, "ana"))
			time.Sleep(3 * time.Second)
			require.Equal(t, want, b.Snapshot().Engine)
			require.Nil(t, b.Snapshot().EngineChange)
			require.Equal(t, saved, b.Regions.Saved())
			require.Equal(t, masks, b.Regions.Masks())
		}
		to("remote", "gemma", "gemma")
		_, err := b.Alerts.Add(alert.RuleText{When: `a person enters the zone "yard"`, Name: "visitors"})
		require.NoError(t, err)
		to("remote", "qwen", "gemma")
		to("nano", "", "nano")
		require.ErrorIs(t, b.Regions.Remove("yard"), region.ErrInUse)
		to("scene", "", "scene")
		require.ErrorIs(t, b.Regions.Remove("yard"), region.ErrInUse)
		to("remote", "gemma", "gemma")
		require.Empty(t, b.Alerts.List(time.Now())[0].Problem)
	})
}

func TestFoundServers(t *testing.T) {
	g := newGarage()
	g.found = []remote.Found{
		{URL: "http://127.0.0.1:8000/v1", Kind: "vLLM", Models: []string{"big", "small"}},
		{URL: "http://127.0.0.1:11434/v1", Kind: "Ollama", Models: []string{"small"}},
	}
	cfg := withEngine("remote")
	cfg.Remote = remote.DefaultConfig()
	cfg.Remote.URL, cfg.Remote.Model, cfg.Remote.APIKey = "http://127.0.0.1:8000/v1", "big", redact.Secret("the key")
	g.run(t, cfg, func(t *testing.T, b *bot.Bot) {
		t.Helper()
		var list []string
		for _, o := range b.Engines(t.Context()) {
			list = append(list, fmt.Sprintf("%s %s %t", o.EngineChoice, o.Program, o.InForce))
		}
		require.Equal(t, []string{
			"scene  false", "nano  false", "sight  false", "minicpmo  false", "big on http://127.0.0.1:8000/v1 vLLM true",
			"small on http://127.0.0.1:8000/v1 vLLM false", "small on http://127.0.0.1:11434/v1 Ollama false",
		}, list)
		require.NoError(t, b.ChangeEngine(t.Context(), agent.EngineChoice{Engine: "remote", Model: "small"}, "ana"))
		require.NoError(t, b.ChangeEngine(t.Context(), agent.EngineChoice{Engine: "remote", Model: "small", Server: "http://127.0.0.1:11434/v1"}, "ana"))
		time.Sleep(3 * time.Second)
		require.Equal(t, "small", b.Snapshot().Engine)
		var made []string
		for _, cfg := range g.made {
			made = append(made, cfg.Remote.URL+" "+cfg.Remote.Model+" "+string(cfg.Remote.APIKey))
		}
		require.Equal(t, []string{
			"http://127.0.0.1:8000/v1 big the key", "http://127.0.0.1:8000/v1 small the key", "http://127.0.0.1:11434/v1 small ",
		}, made, "the key goes to its own server only")
	})
}

// TestRoomsShareAnEngine: two rooms that choose the same use one, which is closed with the last.
func TestRoomsShareAnEngine(t *testing.T) {
	g := newGarage()
	g.run(t, withEngine("scene"), func(t *testing.T, b *bot.Bot) {
		t.Helper()
		cfg := withEngine("scene")
		cfg.LiveKit.Room = "other"
		other := drive(t, g, cfg, nil)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- other.RunChanges(ctx) }()
		choose(t, b, "nano")
		choose(t, other, "nano")
		time.Sleep(3 * time.Second)
		require.Len(t, g.made, 2)
		require.Equal(t, []string{"nano"}, g.inMemory(), "scene is closed with its last room")
		choose(t, b, "scene")
		time.Sleep(3 * time.Second)
		require.Equal(t, []any{"scene", "nano"}, []any{b.Snapshot().Engine, other.Snapshot().Engine})
		require.Equal(t, []string{"nano", "scene"}, g.inMemory())
		stop()
		require.ErrorIs(t, <-done, context.Canceled)
		require.NoError(t, other.CloseEngines())
		require.Equal(t, []string{"scene"}, g.inMemory())
	})
}

// TestVoicesOfALanguage: the voice must speak the language, whichever of them changes.
func TestVoicesOfALanguage(t *testing.T) {
	newGarage().run(t, withEngine("nano"), func(t *testing.T, b *bot.Bot) {
		t.Helper()
		set := func(v settings.Settings) error {
			checked := b.Check(command.Change{Settings: v})
			_, err := b.Change(command.Change{Settings: v}, "ana")
			require.Equal(t, err, checked)
			return err
		}
		require.Equal(t, []agent.VoiceOption{{ID: "flite:rms", Language: "en", Speaks: true}, {ID: "espeak-ng:nl", Language: "nl"}}, b.Voices())
		require.NoError(t, set(settings.Settings{Voice: new("flite:rms")}))
		require.ErrorContains(t, set(settings.Settings{Voice: new("espeak-ng:nl")}), "the voice espeak-ng:nl speaks nl, not en")
		require.ErrorContains(t, set(settings.Settings{Voice: new("flite:anna")}), `the voice "flite:anna" is not installed`)
		require.ErrorContains(t, set(settings.Settings{Language: new("nl")}), "language: expected one that the voice speaks; choose another voice first")
		require.Equal(t, "flite:rms", *b.Snapshot().Settings.Voice)
		require.NoError(t, set(settings.Settings{Language: new("nl"), Voice: new("espeak-ng:nl")}))
		require.NoError(t, set(settings.Settings{Voice: new("auto")}))
		require.NoError(t, set(settings.Settings{Language: new("pt-BR")}))
	})
}

// TestKeptEngine: a bot begins with the engine that people chose, until the settings name another.
func TestKeptEngine(t *testing.T) {
	to := bot.OutputSettings{State: state.Config{Path: t.TempDir()}}
	begin := func(cfg bot.Settings, f func(b *bot.Bot)) {
		g := newGarage()
		g.quick = true
		require.NoError(t, bot.WithOutputs(t.Context(), to, zerolog.Nop(), func(out *bot.Outputs) error {
			g.open()
			b := drive(t, g, cfg, out)
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() { _ = g.Run(ctx) })
			wg.Go(func() { _ = b.RunChanges(ctx) })
			f(b)
			stop()
			wg.Wait()
			return b.CloseEngines()
		}))
	}
	cfg := withEngine("scene")
	begin(cfg, func(b *bot.Bot) {
		choose(t, b, "nano")
		require.Eventually(t, func() bool { return b.Snapshot().Engine == "nano" && b.Snapshot().EngineChange == nil }, patience, time.Millisecond)
	})
	begin(cfg, func(b *bot.Bot) { require.Equal(t, "nano", b.Snapshot().Engine) })
	other := withEngine("remote")
	other.Remote = remote.DefaultConfig()
	other.Remote.URL, other.Remote.Model = "http://127.0.0.1:8000/v1", "qwen"
	begin(other, func(b *bot.Bot) { require.Equal(t, "qwen", b.Snapshot().Engine, "the settings name another one") })
	begin(cfg, func(b *bot.Bot) { require.Equal(t, "scene", b.Snapshot().Engine, "it was forgotten then") })
}

// TestChangeToABundle goes to a model of this process and back, in a real room.
func TestChangeToABundle(t *testing.T) {
	h := newFixture(t)
	cfg := withModel(tiny(t))
	cfg.Inference.Engine = "scene"
	b, reader := h.bot(cfg, "change", nil)
	h.run("bot", b.Run)
	h.camera("change", "")
	spoke := func(engine string) func() bool {
		return func() bool {
			return slices.ContainsFunc(reader.Records(), func(r look.Record) bool { return r.Engine == engine && len(r.FrameIDs) > 0 })
		}
	}
	require.Eventually(t, spoke("scene"), patience, 10*time.Millisecond)
	choose(t, b, "minicpmo")
	require.Eventually(t, spoke("tiny"), patience, 10*time.Millisecond, "%q", b.Snapshot().EngineProblem)
	choose(t, b, "scene")
	require.Eventually(t, func() bool { return b.Snapshot().Engine == "scene" && b.Snapshot().EngineChange == nil }, patience, 10*time.Millisecond)
	require.Empty(t, b.Snapshot().EngineProblem)
}
