package bot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"touchline/agent"
	"touchline/agent/alert"
	"touchline/agent/command"
	"touchline/agent/events"
	"touchline/agent/prompt"
	"touchline/agent/settings"
	"touchline/agent/state"
	"touchline/internal/check"
)

// Names of the kept values.
const (
	keptSettings    = "settings"    // object of agent.Settings, only those that were set
	keptInstruction = "instruction" // keptOrder
	keptProfile     = "profile"     // keptChoice
	keptProfiles    = "profiles"    // []prompt.Profile, the room's own
	keptBackground  = "sheet"       // text of the match sheet
	keptRules       = "rules"       // alert.Saved
	keptAlert       = "alert "      // and the id: events.KeptAlert
	keptEngine      = "engine"      // keptEngineChoice
	keptCameras     = "cameras"     // []camera.Kept, those that people added
	keptWatched     = "watched"     // keptChoice of a source, as in agent.Change
)

// keptOrder is the instruction as people have set it. It holds as long as the settings and the room's dispatch have the
// instruction that it replaced.
type keptOrder struct {
	Text   string `json:"text"`
	By     string `json:"by,omitempty"`
	Active bool   `json:"active"`
	Over   string `json:"over"`
}

// keptChoice is the profile that people have chosen. It holds as keptOrder does.
type keptChoice struct {
	Name string `json:"name"`
	Over string `json:"over"`
	// Settings are the names of those that were made in place of the profile's own.
	Settings []string `json:"settings,omitempty"`
}

// keptEngineChoice is the engine that people have chosen. It holds as keptOrder does.
type keptEngineChoice struct {
	agent.EngineChoice

	Over agent.EngineChoice `json:"over"`
}

// keeper keeps what people change in the room of a bot.
type keeper struct {
	bot  *Bot
	room *state.Room
	// rules and active are those of the settings.
	rules  json.RawMessage
	active bool

	mu      sync.Mutex
	off     bool
	invalid map[string]json.RawMessage // settings of the file that are not valid today
	preset  string                     // chosen; "" for none
	seen    map[string]json.RawMessage // by name; what the file has, or what replaces it after the next change
}

// restore applies what is kept to a bot without any change, and keeps what changes from now on. A value that is not
// valid today is left out, with a warning, and stays in the file until it is changed.
func (b *Bot) restore() error {
	room := b.opts.Outputs.kept(b.Room.RoomName(), b.opts.Settings.LiveKit.Identity)
	if room == nil {
		return nil
	}
	k := &keeper{bot: b, room: room, rules: marshal(b.Alerts.Saved()), active: b.Live().Active, invalid: map[string]json.RawMessage{}}
	values, err := room.Load()
	if err != nil {
		return err
	}
	warn := func(name string, err error) {
		for _, err := range check.Split(err) {
			b.log.Warn().Err(err).Str("value", name).Msg("kept value not restored")
		}
	}
	restore := map[string]func(json.RawMessage) error{
		keptRules: k.restoreRules, keptSettings: k.restoreSettings, keptProfiles: k.restoreProfiles, keptBackground: k.restoreBackground,
		keptProfile: k.restoreProfile, keptInstruction: k.restoreInstruction,
	}
	// The instruction comes last: it begins the commentary.
	for _, name := range []string{keptRules, keptSettings, keptProfiles, keptBackground, keptProfile, keptInstruction} {
		if value, ok := values[name]; ok {
			warn(name, restore[name](value))
		}
	}
	if len(values) > 0 {
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(values)), func(name string) bool { return strings.HasPrefix(name, keptAlert) })
		b.log.Info().Strs("values", names).Msg("state restored")
	}
	k.restoreAlerts(values)
	k.seen = k.values()
	b.kept = k
	return nil
}

// keptEngine returns the engine that people chose in an earlier run; nil without. The bot begins with it.
func (b *Bot) keptEngine() (*agent.EngineChoice, error) {
	room := b.opts.Outputs.kept(b.Room.RoomName(), b.opts.Settings.LiveKit.Identity)
	if room == nil {
		return nil, nil
	}
	values, err := room.Load()
	if err != nil {
		return nil, err
	}
	value, ok := values[keptEngine]
	if !ok {
		return nil, nil
	}
	var kept keptEngineChoice
	if err := json.Unmarshal(value, &kept); err != nil {
		b.log.Warn().Err(err).Str("value", keptEngine).Msg("kept value not restored")
		return nil, nil
	}
	if kept.Over != choiceOf(b.opts.Settings) {
		room.Keep(keptEngine, nil)
		return nil, nil
	}
	return &kept.EngineChoice, nil
}

// byState names the state in logs.
const byState = "the kept state"

func (k *keeper) restoreRules(value json.RawMessage) error {
	var kept alert.Saved
	if err := json.Unmarshal(value, &kept); err != nil {
		return err
	}
	return k.bot.Alerts.Restore(kept)
}

// restoreAlerts gives the hub its last alerts, and keeps them from now on.
func (k *keeper) restoreAlerts(values map[string]json.RawMessage) {
	var past []events.KeptAlert
	for name, value := range values {
		id, ok := strings.CutPrefix(name, keptAlert)
		if !ok {
			continue
		}
		var a events.KeptAlert
		if err := json.Unmarshal(value, &a); err != nil || a.ID != id {
			k.room.Keep(name, nil)
			continue
		}
		past = append(past, a)
	}
	k.bot.Hub.KeepAlerts(past, func(id string, a *events.KeptAlert) {
		if a == nil {
			k.room.Keep(keptAlert+id, nil)
		} else {
			k.room.Keep(keptAlert+id, marshal(a))
		}
	})
}

// restoreSettings applies the settings that are valid, the preset first, and then each that fits those before it.
func (k *keeper) restoreSettings(value json.RawMessage) error {
	if err := json.Unmarshal(value, &k.invalid); err != nil {
		return err
	}
	var errs []error
	var valid agent.Change
	names := slices.Sorted(maps.Keys(k.invalid))
	if i := slices.Index(names, "preset"); i > 0 {
		names = slices.Insert(slices.Delete(names, i, i+1), 0, "preset")
	}
	for _, name := range names {
		next := valid
		d := json.NewDecoder(bytes.NewReader(marshal(map[string]json.RawMessage{name: k.invalid[name]})))
		d.DisallowUnknownFields()
		err := d.Decode(&next.Settings)
		if err == nil {
			err = k.bot.Check(next)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("setting %s: %w", name, err))
			continue
		}
		valid = next
		delete(k.invalid, name)
	}
	_, err := k.bot.Change(valid, byState)
	k.preset = presetOf(k.bot.Live().Settings)
	return errors.Join(append(errs, err)...)
}

func presetOf(v agent.Settings) string {
	if v.Preset == nil {
		return ""
	}
	return *v.Preset
}

// settings returns the settings to keep: those that people made, and those of the file that are not valid today until a
// new value or preset replaces them.
func (k *keeper) settings(live agent.Settings) map[string]json.RawMessage {
	out := fields(live)
	if preset := presetOf(live); preset != k.preset {
		k.preset = preset
		for _, p := range k.bot.opts.Settings.Presets {
			for name := range fields(p.Settings) {
				if preset != "" {
					delete(k.invalid, name)
				}
			}
		}
	}
	for name, value := range k.invalid {
		if _, ok := out[name]; ok {
			delete(k.invalid, name)
		} else {
			out[name] = value
		}
	}
	return out
}

// fields returns the settings that are set, by name.
func fields(v agent.Settings) (out map[string]json.RawMessage) {
	if err := json.Unmarshal(marshal(v), &out); err != nil {
		panic(err)
	}
	return out
}

func (k *keeper) restoreProfiles(value json.RawMessage) error {
	var kept []prompt.Profile
	if err := json.Unmarshal(value, &kept); err != nil {
		return err
	}
	var errs []error
	for _, p := range kept {
		if _, err := k.bot.PutProfile(p, false, byState); err != nil {
			errs = append(errs, fmt.Errorf("profile %s: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (k *keeper) restoreBackground(value json.RawMessage) error {
	var text string
	if err := json.Unmarshal(value, &text); err != nil {
		return err
	}
	_, err := k.bot.SetBackground(text, byState)
	return err
}

func (k *keeper) restoreProfile(value json.RawMessage) error {
	var kept keptChoice
	if err := json.Unmarshal(value, &kept); err != nil {
		return err
	}
	if kept.Over != k.bot.opts.Settings.Agent.Profile {
		k.room.Keep(keptProfile, nil)
		return nil
	}
	if _, err := k.bot.Change(agent.Change{Profile: &kept.Name}, byState); err != nil {
		return err
	}
	made := k.bot.Live().Settings.Only(func(s settings.Setting) bool { return slices.Contains(kept.Settings, s.Name) })
	_, err := k.bot.Change(agent.Change{Settings: made}, byState)
	return err
}

func (k *keeper) restoreInstruction(value json.RawMessage) error {
	var kept keptOrder
	if err := json.Unmarshal(value, &kept); err != nil {
		return err
	}
	switch {
	case kept.Over != k.bot.opts.Settings.Agent.Instruction:
		k.room.Keep(keptInstruction, nil)
		return nil
	case kept.Active && kept.Text == "":
		if err := k.bot.Session.Start(kept.By); err != nil && !errors.Is(err, agent.ErrRunning) {
			return err
		}
		return nil
	}
	_, err := k.bot.Change(agent.Change{Instruction: &kept.Text}, kept.By)
	if err == nil && kept.Text != "" && !kept.Active {
		_, err = k.bot.Command(command.Stop, kept.By)
	}
	return err
}

// values returns what is to be kept, by name; nil for what is as the settings have it.
func (k *keeper) values() map[string]json.RawMessage {
	live, configured := k.bot.Live(), k.bot.opts.Settings.Agent
	out := map[string]json.RawMessage{
		keptRules: marshal(k.bot.Alerts.Saved()), keptInstruction: nil, keptProfile: nil, keptSettings: nil,
		keptProfiles: nil, keptBackground: nil, keptEngine: nil,
	}
	if now, first := k.bot.changer.chosen(), choiceOf(k.bot.opts.Settings); now != first {
		out[keptEngine] = marshal(keptEngineChoice{now, first})
	}
	if bytes.Equal(out[keptRules], k.rules) {
		out[keptRules] = nil
	}
	if live.Instruction != configured.Instruction || live.Active != k.active {
		out[keptInstruction] = marshal(keptOrder{
			Text: live.Instruction, By: live.InstructionBy, Active: live.Active, Over: configured.Instruction,
		})
	}
	if len(live.Profiles) > 0 {
		out[keptProfiles] = marshal(live.Profiles)
	}
	if live.Background != "" {
		out[keptBackground] = marshal(live.Background)
	}
	if live.Profile != configured.Profile || len(live.BehindProfile) > 0 {
		out[keptProfile] = marshal(keptChoice{live.Profile, configured.Profile, live.OverProfile})
	}
	if made := k.settings(live.Settings); len(made) > 0 {
		out[keptSettings] = marshal(made)
	}
	if s := k.bot.sources; s != nil { // else what is kept of them stays as it is
		out[keptCameras], out[keptWatched] = s.kept()
	}
	return out
}

// save keeps what has changed since the last call.
func (k *keeper) save() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.off {
		return
	}
	values := k.values()
	for name, value := range values {
		if !bytes.Equal(value, k.seen[name]) {
			k.room.Keep(name, value)
		}
	}
	k.seen = values
}

// begin notes what the file has of a value, before it is kept.
func (k *keeper) begin(name string, value json.RawMessage) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seen[name] = value
}

// marshal returns the JSON of a value that has one.
func marshal(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// leave ends the keeping: later changes are not the will of people.
func (k *keeper) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.off = true
}
