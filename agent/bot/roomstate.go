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
	"time"

	"touchline/agent"
	"touchline/agent/access"
	"touchline/agent/command"
	"touchline/agent/events"
	"touchline/agent/prompt"
	"touchline/agent/region"
	"touchline/agent/settings"
	"touchline/agent/state"
	"touchline/internal/check"
)

// Names of the kept values.
const (
	keptSettings    = "settings"    // object of settings.Settings, only those that were set
	keptInstruction = "instruction" // keptOrder
	keptProfile     = "profile"     // keptChoice
	keptProfiles    = "profiles"    // []prompt.Profile, the room's own
	keptBackground  = "sheet"       // text of the match sheet
	keptRules       = "rules"       // alert.Saved
	keptAlert       = "alert "      // and the id: events.KeptAlert
	keptEngine      = "engine"      // keptEngineChoice
	keptCameras     = "cameras"     // []camera.Kept, those that people added
	keptWatched     = "watched"     // keptChoice of a source, as in command.Change
	keptRegions     = "regions"     // region.Saved
	keptLinks       = "links"       // []access.Link of the operator, for the next bot of the room only
	keptBelow       = "links_below" // []access.Link of their holders, likewise
	keptRevoked     = "revoked"     // access.Links.Shared, likewise
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
	// Settings are the names of the settings that override the profile's own.
	Settings []string `json:"settings,omitempty"`
}

// keptEngineChoice is the engine that people have chosen. It holds as keptOrder does.
type keptEngineChoice struct {
	agent.EngineChoice

	Over agent.EngineChoice `json:"over"`
}

// roomState stores people's changes in the room of a bot.
type roomState struct {
	bot  *Bot
	room *state.Room // nil without a state file
	// rules and active are those of the settings.
	rules, regions json.RawMessage
	active         bool

	unread  json.RawMessage // regions of the file that are not valid today
	mu      sync.Mutex
	off     bool
	invalid map[string]json.RawMessage // settings of the file that are not valid today
	preset  string                     // chosen; "" for none
	seen    map[string]json.RawMessage // by name; what the file has, or what replaces it after the next change
}

// newRoomState returns the state of a bot's room with the values of an earlier run, by name: those that it handed over, or else those of
// the state file.
func newRoomState(b *Bot) (k *roomState, values map[string]json.RawMessage, err error) {
	k = &roomState{bot: b, room: b.opts.Outputs.kept(b.Room.RoomName(), b.opts.Settings.LiveKit.Identity)}
	values = map[string]json.RawMessage{}
	if k.room != nil {
		if values, err = k.room.Load(); err != nil {
			return nil, nil, err
		}
	}
	k.restoreLinks(b.opts.Kept)
	for name, value := range b.opts.Kept {
		if handedOver(name) {
			values[name] = value
			k.keep(name, value)
		}
	}
	return k, values, nil
}

// keep stores a value in the state file, if there is one; nil deletes it.
func (k *roomState) keep(name string, value json.RawMessage) {
	if k.room != nil {
		k.room.Keep(name, value)
	}
}

// handedOver reports whether a value is handed to the next bot of the room. Addresses of cameras may have passwords, and stay here.
func handedOver(name string) bool {
	switch name {
	case keptSettings, keptInstruction, keptProfile, keptProfiles, keptBackground, keptRules, keptRegions, keptEngine:
		return true
	}
	return false
}

// Kept returns people's changes in the room, for Options.Kept of its next bot.
func (b *Bot) Kept() map[string]json.RawMessage {
	k := b.kept
	k.mu.Lock()
	defer k.mu.Unlock()
	out := maps.Clone(k.seen)
	maps.DeleteFunc(out, func(name string, value json.RawMessage) bool { return value == nil || !handedOver(name) })
	links, room, now := b.opts.Keys.Links, b.Room.RoomName(), time.Now()
	if list := links.HandOver(room, now); len(list) > 0 {
		out[keptRevoked] = marshal(links.Shared(room, now))
		below := slices.Clone(list)
		out[keptBelow] = marshal(slices.DeleteFunc(below, func(x access.Link) bool { return len(x.Makers) == 0 }))
		out[keptLinks] = marshal(slices.DeleteFunc(list, func(x access.Link) bool { return len(x.Makers) > 0 }))
	}
	return out
}

// restoreLinks takes the room's links from the previous bot.
func (k *roomState) restoreLinks(values map[string]json.RawMessage) {
	links, room, now := k.bot.opts.Keys.Links, k.bot.Room.RoomName(), time.Now()
	restore := decoded(func(list []access.Link) error { links.Restore(list, now); return nil })
	for _, kept := range []struct { // the links come first: revoked ones alone have no names and rights
		name    string
		restore func(json.RawMessage) error
	}{
		{keptLinks, restore},
		{keptBelow, restore},
		{keptRevoked, decoded(func(shared string) error { links.Learn(room, shared, now); return nil })},
	} {
		if value, ok := values[kept.name]; ok {
			if err := kept.restore(value); err != nil {
				k.bot.log.Warn().Err(err).Str("value", kept.name).Msg("kept value not restored")
			}
		}
	}
}

// HandOver returns people's changes in the room as JSON of Options.Kept, in at most so many bytes; "" without any. If they are larger, the
// largest ones are left out, first the links that holders of links made, and the revoked links last. The regions are not, as the room
// would lose its masks: if they are too large with the revoked links, the next bot cannot read them, and covers the whole picture.
func (b *Bot) HandOver(most int) string {
	kept := b.Kept()
	for {
		state := marshal(kept)
		switch {
		case len(kept) == 0:
			return ""
		case len(state) <= most:
			return string(state)
		}
		largest := ""
		for name, value := range kept {
			if name != keptRegions && name != keptRevoked && (largest == "" || len(value) > len(kept[largest])) {
				largest = name
			}
		}
		if _, ok := kept[keptBelow]; ok {
			largest = keptBelow // a holder can make them large
		}
		if largest == "" {
			if _, ok := kept[keptRegions]; ok {
				kept[keptRegions] = marshal("too large to hand over")
			}
			if len(marshal(kept)) > most {
				b.log.Warn().Str("value", keptRevoked).Int("bytes", len(kept[keptRevoked])).Msg("kept value too large to hand over")
				delete(kept, keptRevoked)
			}
			return string(marshal(kept))
		}
		b.log.Warn().Str("value", largest).Int("bytes", len(kept[largest])).Msg("kept value too large to hand over")
		delete(kept, largest)
	}
}

// restore applies what is kept to a bot without any change, and keeps what changes from now on. A value that is not
// valid today is left out, with a warning, and stays in the file until it is changed.
func (k *roomState) restore(values map[string]json.RawMessage) {
	b := k.bot
	k.rules, k.regions, k.active = marshal(b.Alerts.Saved()), marshal(b.Regions.Saved()), b.Live().Active
	k.restoreRegions(values)
	// The instruction comes last: it begins the commentary.
	for _, kept := range []struct {
		name    string
		restore func(json.RawMessage) error
	}{
		{keptRules, decoded(b.Alerts.Restore)},
		{keptSettings, decoded(k.restoreSettings)},
		{keptProfiles, decoded(k.restoreProfiles)},
		{keptBackground, decoded(func(text string) error { _, err := b.SetBackground(text, byState); return err })},
		{keptProfile, decoded(k.restoreProfile)},
		{keptInstruction, decoded(k.restoreInstruction)},
	} {
		if value, ok := values[kept.name]; ok {
			for _, err := range check.Split(kept.restore(value)) {
				b.log.Warn().Err(err).Str("value", kept.name).Msg("kept value not restored")
			}
		}
	}
	if len(values) > 0 {
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(values)), func(name string) bool { return strings.HasPrefix(name, keptAlert) })
		b.log.Info().Strs("values", names).Msg("state restored")
	}
	if k.room != nil {
		k.restoreAlerts(values)
	}
	k.seen = k.values()
	b.kept = k
}

// restoreRegions puts the kept masks in force. If they cannot be read, the whole picture is masked until people remove them.
func (k *roomState) restoreRegions(values map[string]json.RawMessage) {
	value, ok := values[keptRegions]
	if !ok {
		return
	}
	var kept region.Saved
	err := json.Unmarshal(value, &kept)
	if err = k.bot.Regions.Restore(kept, err); err != nil {
		k.unread = value
		k.bot.log.Error().Err(err).Str("value", keptRegions).Msg("kept masks not read; the whole picture is masked")
	}
	k.bot.Masked()
}

// decoded returns a function that restores the JSON of a value.
func decoded[T any](restore func(T) error) func(json.RawMessage) error {
	return func(value json.RawMessage) error {
		var kept T
		if err := json.Unmarshal(value, &kept); err != nil {
			return err
		}
		return restore(kept)
	}
}

// engine returns the engine that people chose in an earlier run; nil without. The bot begins with it.
func (k *roomState) engine(values map[string]json.RawMessage) *agent.EngineChoice {
	value, ok := values[keptEngine]
	if !ok {
		return nil
	}
	var kept keptEngineChoice
	if err := json.Unmarshal(value, &kept); err != nil {
		k.bot.log.Warn().Err(err).Str("value", keptEngine).Msg("kept value not restored")
		return nil
	}
	if kept.Over != choiceOf(k.bot.opts.Settings) {
		k.keep(keptEngine, nil)
		delete(values, keptEngine)
		return nil
	}
	return &kept.EngineChoice
}

// byState names the state in logs.
const byState = "the kept state"

// restoreAlerts gives the hub its last alerts, and keeps them from now on.
func (k *roomState) restoreAlerts(values map[string]json.RawMessage) {
	var past []events.KeptAlert
	for name, value := range values {
		id, ok := strings.CutPrefix(name, keptAlert)
		if !ok {
			continue
		}
		var a events.KeptAlert
		if err := json.Unmarshal(value, &a); err != nil || a.ID != id {
			k.keep(name, nil)
			continue
		}
		past = append(past, a)
	}
	k.bot.Hub.KeepAlerts(past, func(id string, a *events.KeptAlert) {
		if a == nil {
			k.keep(keptAlert+id, nil)
		} else {
			k.keep(keptAlert+id, marshal(a))
		}
	}, time.Now())
}

// restoreSettings applies the settings that are valid, the preset first, and then each that fits those before it.
func (k *roomState) restoreSettings(kept map[string]json.RawMessage) error {
	k.invalid = kept
	var errs []error
	var valid command.Change
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

func presetOf(v settings.Settings) string {
	if v.Preset == nil {
		return ""
	}
	return *v.Preset
}

// settings returns the settings to keep: those that people made, and those of the file that are not valid today until a
// new value or preset replaces them.
func (k *roomState) settings(live settings.Settings) map[string]json.RawMessage {
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
func fields(v settings.Settings) (out map[string]json.RawMessage) {
	if err := json.Unmarshal(marshal(v), &out); err != nil {
		panic(err)
	}
	return out
}

func (k *roomState) restoreProfiles(kept []prompt.Profile) error {
	var errs []error
	for _, p := range kept {
		if _, err := k.bot.PutProfile(p, false, byState); err != nil {
			errs = append(errs, fmt.Errorf("profile %s: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (k *roomState) restoreProfile(kept keptChoice) error {
	if kept.Over != k.bot.opts.Settings.Agent.Profile {
		k.keep(keptProfile, nil)
		return nil
	}
	if _, err := k.bot.Change(command.Change{Profile: &kept.Name}, byState); err != nil {
		return err
	}
	made := k.bot.Live().Settings.Only(func(s settings.Setting) bool { return slices.Contains(kept.Settings, s.Name) })
	_, err := k.bot.Change(command.Change{Settings: made}, byState)
	return err
}

func (k *roomState) restoreInstruction(kept keptOrder) error {
	switch {
	case kept.Over != k.bot.opts.Settings.Agent.Instruction:
		k.keep(keptInstruction, nil)
		return nil
	case kept.Active && kept.Text == "":
		if err := k.bot.Session.Start(kept.By); err != nil && !errors.Is(err, command.ErrRunning) {
			return err
		}
		return nil
	}
	_, err := k.bot.Change(command.Change{Instruction: &kept.Text}, kept.By)
	if err == nil && kept.Text != "" && !kept.Active {
		_, err = k.bot.Command(command.Stop, kept.By)
	}
	return err
}

// values returns the values to keep, by name; nil for a value that equals the settings.
func (k *roomState) values() map[string]json.RawMessage {
	live, configured := k.bot.Live(), k.bot.opts.Settings.Agent
	out := map[string]json.RawMessage{}
	keep := func(name string, changed bool, value any) {
		out[name] = nil
		if changed {
			out[name] = marshal(value)
		}
	}
	regions := marshal(k.bot.Regions.Saved())
	keep(keptRegions, !bytes.Equal(regions, k.regions), regions)
	if k.bot.Regions.Unread() {
		out[keptRegions] = k.unread
	}
	rules, made := marshal(k.bot.Alerts.Saved()), k.settings(live.Settings)
	engine, first := k.bot.engine.chosen(), choiceOf(k.bot.opts.Settings)
	keep(keptRules, !bytes.Equal(rules, k.rules), rules)
	keep(keptEngine, engine != first, keptEngineChoice{engine, first})
	keep(keptInstruction, live.Instruction != configured.Instruction || live.Active != k.active, keptOrder{
		Text: live.Instruction, By: live.InstructionBy, Active: live.Active, Over: configured.Instruction,
	})
	keep(keptProfiles, len(live.Profiles) > 0, live.Profiles)
	keep(keptBackground, live.Background != "", live.Background)
	keep(keptProfile, live.Profile != configured.Profile || len(live.BehindProfile) > 0,
		keptChoice{live.Profile, configured.Profile, live.OverProfile})
	keep(keptSettings, len(made) > 0, made)
	if s := k.bot.sources; s != nil { // else what is kept of them stays as it is
		out[keptCameras], out[keptWatched] = s.kept()
	}
	return out
}

// save stores the changes since the last call.
func (k *roomState) save() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.off {
		return
	}
	values := k.values()
	for name, value := range values {
		if !bytes.Equal(value, k.seen[name]) {
			k.keep(name, value)
		}
	}
	k.seen = values
}

// begin records the stored form of a value, so that save writes it only after a change.
func (k *roomState) begin(name string, value json.RawMessage) {
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

// end notes the end of the bot.
func (k *roomState) end() {
	if k.room != nil {
		k.room.Leave()
	}
}

// leave stops the keeping, because later changes are not made by people.
func (k *roomState) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.off = true
}
