package agent

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"touchline/agent/prompt"
	"touchline/inference"
)

// MaxProfiles bounds the own profiles of a room.
const MaxProfiles = 32

// Errors of PutProfile and DeleteProfile.
var (
	ErrNoProfile       = errors.New("no such profile")
	ErrProfileTaken    = errors.New("the name is taken: choose another one, or change the profile that has it")
	ErrProfileBuiltIn  = errors.New("a built-in profile cannot be deleted")
	ErrProfileInUse    = errors.New("the profile is in use: choose another one first")
	ErrTooManyProfiles = fmt.Errorf("there are %d own profiles already: delete one first", MaxProfiles)
)

// Profiles returns the built-in and own profiles of the room.
func (s *Session) Profiles() []prompt.Profile {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.profilesLocked()
}

func (s *Session) profilesLocked() []prompt.Profile {
	out := slices.Clone(s.opts.Profiles)
	for i := range out {
		out[i].Kind = prompt.ProfileBuiltIn
	}
	for _, p := range s.own {
		p.Kind = prompt.ProfileOwn
		if i := slices.IndexFunc(out, named(p.Name)); i >= 0 {
			p.Kind = prompt.ProfileChanged
			out[i] = p
		} else {
			out = append(out, p)
		}
	}
	return out
}

// suggestedLocked returns the profiles with the suggestion in the language of the comments alone, where they have it.
func (s *Session) suggestedLocked() []prompt.Profile {
	out := s.profilesLocked()
	language := inference.Primary(s.engine.Capabilities().AnswersIn(s.live.Inference.Voice.Language))
	for i := range out {
		out[i].Suggestion = cmp.Or(out[i].Suggestions[language], out[i].Suggestion)
		out[i].Suggestions = nil
	}
	return out
}

func named(name string) func(prompt.Profile) bool {
	return func(p prompt.Profile) bool { return p.Name == name }
}

// PutProfile creates or changes a profile of the room; a changed built-in one can be reset by DeleteProfile. A change
// of the active profile acts at once, as choosing it does. With create set, the name must be free.
func (s *Session) PutProfile(p prompt.Profile, create bool, by string) (created bool, err error) {
	if p, err = p.Trimmed(); err != nil {
		return false, err
	}
	s.locked(func() {
		if p.Name == s.profile.Name {
			if err = s.checkProfileLocked(p); err != nil {
				return
			}
		}
		own := slices.IndexFunc(s.own, named(p.Name))
		created = own < 0 && !slices.ContainsFunc(s.opts.Profiles, named(p.Name))
		switch {
		case create && !created:
			err = fmt.Errorf("profile %s: %w", p.Name, ErrProfileTaken)
			return
		case own >= 0:
			s.own = slices.Clone(s.own)
			s.own[own] = p
		case len(s.own) >= MaxProfiles:
			err = ErrTooManyProfiles
			return
		default:
			s.own = append(slices.Clone(s.own), p)
		}
		s.actOnProfileLocked(p)
	})
	if err != nil {
		return false, err
	}
	s.log.Info().Str("profile", p.Name).Str("by", by).Msg("profile changed")
	s.nudge()
	return created, nil
}

// DeleteProfile deletes an own profile that is not in use, or resets a changed built-in one.
func (s *Session) DeleteProfile(name, by string) (err error) {
	s.locked(func() {
		own := slices.IndexFunc(s.own, named(name))
		builtIn := slices.IndexFunc(s.opts.Profiles, named(name))
		switch {
		case own < 0 && builtIn >= 0:
			err = fmt.Errorf("profile %s: %w", name, ErrProfileBuiltIn)
			return
		case own < 0:
			err = fmt.Errorf("profile %.60q: %w", name, ErrNoProfile)
			return
		case builtIn < 0 && s.profile.Name == name:
			err = fmt.Errorf("profile %s: %w", name, ErrProfileInUse)
			return
		}
		s.own = slices.Delete(slices.Clone(s.own), own, own+1)
		if builtIn >= 0 {
			s.actOnProfileLocked(s.opts.Profiles[builtIn])
		}
	})
	if err != nil {
		return err
	}
	s.log.Info().Str("profile", name).Str("by", by).Msg("profile deleted")
	s.nudge()
	return nil
}

// useProfileLocked makes a profile the active one, with its language and its settings of the voice, or else those that were set.
func (s *Session) useProfileLocked(p prompt.Profile) {
	s.profile = p
	s.settleLocked(func() { s.live.UseProfile(settingsOf(p)) })
}

// settingsOf returns the settings that a profile has of its own.
func settingsOf(p prompt.Profile) Settings {
	own := Settings{Speech: p.Speech, VoiceGain: p.VoiceGain}
	if p.Language != "" {
		own.Language = &p.Language
	}
	if p.Voice != "" {
		own.Voice = &p.Voice
	}
	return own
}

// checkProfileLocked returns the error of a profile whose language the engine does not speak, or whose voice it lacks.
func (s *Session) checkProfileLocked(p prompt.Profile) error {
	can := s.engine.Capabilities()
	if can.CheckVoice(p.Voice) != nil {
		want := "one with another voice, as " + wantOwn(s.engine.current())
		return &RangeError{Name: "profile", Want: want, Got: fmt.Sprintf("%q with %q", p.Name, p.Voice)}
	}
	if p.Language == "" || can.Speaks(p.Language) {
		return nil
	}
	want := fmt.Sprintf("one whose language is one of %q, as the %s engine speaks nothing else", can.Languages, s.engine.Name())
	return &RangeError{Name: "profile", Want: want, Got: fmt.Sprintf("%q with %q", p.Name, p.Language)}
}

// actOnProfileLocked applies a changed profile if it is the active one.
func (s *Session) actOnProfileLocked(p prompt.Profile) {
	if s.profile.Name != p.Name {
		return
	}
	s.useProfileLocked(p)
	if s.active {
		s.actNowLocked(errReplaced)
	}
}

// Background returns the background of the room.
func (s *Session) Background() prompt.Background {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.background
}

// SetBackground replaces the background; "" removes it. The next look has it. The error joins all that is wrong with the text.
func (s *Session) SetBackground(text, by string) (prompt.Background, error) {
	background, err := prompt.ReadBackground([]byte(text))
	if err != nil {
		return prompt.Background{}, err
	}
	s.mu.Lock()
	s.background = background
	s.mu.Unlock()
	s.log.Info().Str("by", by).Int("bytes", len(background.Text)).Msg("new background")
	s.nudge()
	return background, nil
}
