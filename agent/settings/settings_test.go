package settings_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/settings"
	"touchline/inference"
	"touchline/media"
	"touchline/pacing"
)

func configured() settings.InForce {
	return settings.InForce{
		Agent: settings.DefaultConfig(), Pacing: pacing.DefaultConfig(), Media: media.DefaultConfig(), Inference: inference.DefaultConfig(),
	}
}

// value returns a settings with one of them set.
func value(t *testing.T, name string, v any) (out settings.Settings) {
	t.Helper()
	text, err := json.Marshal(map[string]any{name: v})
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &out))
	return out
}

// numbers returns settings by name, for comparisons.
func numbers(t *testing.T, v settings.Settings) (out map[string]any) {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &out))
	return out
}

// TestTable: the table has a row for each field of Settings, and each row sets, reads and compares its own value alone.
func TestTable(t *testing.T) {
	typ := reflect.TypeFor[settings.Settings]()
	var fields, rows []string
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		fields = append(fields, name)
	}
	plain := numbers(t, configured().Read())
	for _, s := range settings.Table() {
		rows = append(rows, s.Name)
		if s.Name == "preset" {
			continue
		}
		v := value(t, s.Name, other(t, s))
		require.NoError(t, v.Check(), s.Name)
		require.Equal(t, []string{s.Name}, v.Names())
		require.Equal(t, v, v.Only(func(x settings.Setting) bool { return x.Name == s.Name }))
		require.Equal(t, settings.Settings{}, v.Without(v))
		set := settings.New(configured(), nil, "")
		set.Change(v)
		got := numbers(t, set.Read())
		require.Equal(t, numbers(t, v)[s.Name], got[s.Name], s.Name)
		if before, known := plain[s.Name]; known {
			require.NotEqual(t, before, got[s.Name], s.Name)
			got[s.Name] = before
		} else {
			delete(got, s.Name)
		}
		require.Equal(t, plain, got, s.Name)
		require.False(t, v.Same(settings.Settings{}), s.Name)
		require.True(t, v.Same(value(t, s.Name, other(t, s))), s.Name)
		require.True(t, set.Made().Same(v), s.Name)
	}
	slices.Sort(fields)
	slices.Sort(rows)
	require.Equal(t, fields, rows)
}

// other returns a value that is not the default.
func other(t *testing.T, s settings.Setting) any {
	t.Helper()
	switch {
	case s.Name == "language":
		return "nl"
	case s.Name == "voice":
		return "flite:rms"
	case s.Kind == settings.Switch:
		v, _ := map[string]bool{"speech": true, "cut_on_instruction": true, "confirm_orders": true}[s.Name]
		return !v
	case s.Kind == settings.List:
		return []string{"hola amiga"}
	case s.Kind == settings.Choice:
		return s.Options[len(s.Options)-1]
	}
	if most := value(t, s.Name, *s.Max); most.Same(configured().Read().Only(func(x settings.Setting) bool { return x.Name == s.Name })) {
		return *s.Min
	}
	return *s.Max
}

// TestBounds: each number is refused just outside its bounds, and so is NaN.
func TestBounds(t *testing.T) {
	for _, s := range settings.Table() {
		if s.Min == nil {
			continue
		}
		step := math.Max(1e-6, 1e-6**s.Max)
		if s.Kind == settings.Whole {
			step = 1
		}
		require.NoError(t, value(t, s.Name, *s.Min).Check())
		require.NoError(t, value(t, s.Name, *s.Max).Check())
		for _, out := range []float64{*s.Min - step, *s.Max + step} {
			var wrong *settings.RangeError
			require.ErrorAs(t, value(t, s.Name, out).Check(), &wrong)
			require.Equal(t, s.Name, wrong.Name)
		}
	}
	require.Error(t, settings.Settings{Margin: new(math.NaN())}.Check())
	require.Error(t, value(t, "repeats", "often").Check())
	both := value(t, "frames_per_look", 0).Over(value(t, "margin", -1))
	require.Len(t, strings.Split(both.Check().Error(), "\n"), 2)
}

// TestBoundsOfTheSettingsFile: what a running bot takes, the settings file takes too.
func TestBoundsOfTheSettingsFile(t *testing.T) {
	valid := func(f settings.InForce) error {
		f.Media.WindowSize = 1024
		return errors.Join(f.Agent.Validate(), f.Pacing.Validate(), f.Media.Validate(), f.Inference.Validate())
	}
	for _, s := range settings.Table() {
		if s.Path == "" || s.Min == nil {
			continue
		}
		for v, ok := range map[float64]bool{*s.Min: true, *s.Max: true, *s.Min - 1: false, *s.Max + 1: false} {
			set := settings.New(configured(), nil, "")
			set.Change(value(t, s.Name, v))
			if err := valid(set.InForce); ok {
				require.NoError(t, err, s.Name)
			} else {
				require.ErrorContains(t, err, s.Path[strings.LastIndex(s.Path, ".")+1:], "%s = %v", s.Name, v)
			}
		}
	}
}

var presets = []settings.Preset{
	{Name: "beast", Settings: settings.Settings{CaptureFPS: new(5.0), Frames: new(10)}},
	{Name: "owl", Settings: settings.Settings{CaptureFPS: new(4.0), Frames: new(8)}},
	{Name: "sniper", Settings: settings.Settings{CaptureFPS: new(5.0), Frames: new(4)}},
}

var profiles = map[string]settings.Settings{
	"default": {}, "quiet": {VoiceGain: new(-6.0)}, "spanish": {VoiceGain: new(2.0), Language: new("es")},
}

// model is what people see of the settings: what is in force, and what returns when the profile leaves.
type model struct {
	inForce, under  map[string]any
	preset, profile string
	chosen          int // presets
}

func (m model) clone() model {
	m.inForce, m.under = maps.Clone(m.inForce), maps.Clone(m.under)
	return m
}

func (m *model) change(t *testing.T, v settings.Settings) {
	t.Helper()
	if v.Preset != nil && *v.Preset != "" {
		m.preset = *v.Preset
		m.chosen++
		i := slices.IndexFunc(presets, func(p settings.Preset) bool { return p.Name == strings.Replace(m.preset, "auto", "sniper", 1) })
		v = v.Over(presets[i].Settings)
	} else if v.Preset != nil || v.CaptureFPS != nil || v.Frames != nil {
		m.preset = ""
	}
	v.Preset = nil
	maps.Copy(m.inForce, numbers(t, v))
	maps.Copy(m.under, numbers(t, v))
}

func (m *model) choose(t *testing.T, profile string) {
	t.Helper()
	m.profile = profile
	for _, name := range []string{"voice_gain", "language"} {
		m.inForce[name] = m.under[name]
	}
	maps.Copy(m.inForce, numbers(t, profiles[profile]))
}

func (m *model) undo(before, after model) {
	back := func(now, was, is map[string]any) {
		for name := range now {
			if now[name] == is[name] && (m.chosen == after.chosen || name != "capture_fps" && name != "frames_per_look") {
				now[name] = was[name]
			}
		}
	}
	back(m.inForce, before.inForce, after.inForce)
	back(m.under, before.under, after.under)
	m.profile = before.profile
	if m.chosen == after.chosen {
		m.chosen = before.chosen
		if m.inForce["capture_fps"] == before.inForce["capture_fps"] && m.inForce["frames_per_look"] == before.inForce["frames_per_look"] {
			m.preset = before.preset
		}
	}
}

// TestAgainstAModel: random settings, presets, profiles, undos and restarts.
func TestAgainstAModel(t *testing.T) {
	names := []string{"capture_fps", "frames_per_look", "change_threshold", "voice_gain", "language"}
	visible := func(v settings.Settings) map[string]any {
		return numbers(t, v.Only(func(s settings.Setting) bool { return slices.Contains(names, s.Name) }))
	}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		preset := []string{"", "auto", "owl"}[r.IntN(3)]
		set := settings.New(configured(), presets, preset)
		m := model{inForce: visible(set.Read()), under: visible(set.Read()), preset: preset, profile: "default"}
		type step struct {
			before, after settings.State
			was, is       model
		}
		var steps []step
		var log []string
		random := func() (v settings.Settings) {
			for range 1 + r.IntN(2) {
				switch r.IntN(6) {
				case 0:
					v.CaptureFPS = new(1 + r.Float64()) // no value comes twice
				case 1:
					v.ChangeThreshold = new(r.Float64())
				case 2:
					v.VoiceGain = new(r.Float64())
				case 3:
					v.Language = new(fmt.Sprint("x-", r.Uint32()))
				default:
					v.Preset = new([]string{"", "auto", "beast", "owl", "sniper"}[r.IntN(5)])
				}
			}
			return v
		}
		for range 12 {
			switch r.IntN(4) {
			case 0: // in the drawer
				v := random()
				set.Change(v)
				m.change(t, v)
				log = append(log, fmt.Sprint("change ", numbers(t, v)))
			case 1: // an order
				v, profile := random(), slices.Sorted(maps.Keys(profiles))[r.IntN(3)]
				was, before := m.clone(), set.State()
				set.UseProfile(profiles[profile])
				set.Change(v)
				m.choose(t, profile)
				m.change(t, v)
				steps = append(steps, step{before, set.State(), was, m.clone()})
				log = append(log, fmt.Sprint("order ", profile, numbers(t, v)))
			case 2:
				if len(steps) == 0 {
					continue
				}
				last := steps[len(steps)-1]
				steps = steps[:len(steps)-1]
				own := profiles[last.was.profile]
				set.Undo(last.before, last.after, &own)
				m.undo(last.was, last.is)
				log = append(log, "undo")
			case 3:
				made := set.Made()
				over, behind := set.OverProfile()
				set = settings.New(configured(), presets, preset)
				set.Change(made)
				if m.profile != "default" || len(behind) > 0 {
					set.UseProfile(profiles[m.profile])
					set.Change(made.Only(func(s settings.Setting) bool { return slices.Contains(over, s.Name) }))
				}
				steps = nil
				log = append(log, "restart")
			}
			require.Equal(t, m.inForce, visible(set.Read()), "seed %d: %s", seed, strings.Join(log, "; "))
			require.Equal(t, m.preset, *set.Read().Preset, "seed %d: %s", seed, strings.Join(log, "; "))
		}
	}
}

// TestUndoOfUnknownDefaults: sampling that only the engine knew is its own again.
func TestUndoOfUnknownDefaults(t *testing.T) {
	set := settings.New(configured(), nil, "")
	before := set.State()
	set.Change(settings.Settings{Temperature: new(0.5), MinInterval: new(3.0)})
	require.Equal(t, 3*time.Second, set.Pacing.MinInterval)
	set.Undo(before, set.State(), nil)
	require.Nil(t, set.Read().Temperature)
	require.Equal(t, configured(), set.InForce)
	require.True(t, set.State().Same(before))
}
