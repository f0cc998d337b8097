package command

import (
	"touchline/agent/prompt"
	"touchline/agent/settings"
)

// Profiles returns the built-in and own profiles of the room.
func (s *Steering) Profiles() []prompt.Profile {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.profiles.All()
}

// PutProfile creates or changes a profile of the room; a changed built-in one can be reset by DeleteProfile. A change
// of the active profile acts at once, as choosing it does. With create set, the name must be free.
func (s *Steering) PutProfile(p prompt.Profile, create bool, by string) (created bool, err error) {
	if p, err = p.Trimmed(); err != nil {
		return false, err
	}
	err = s.do(func() error {
		if p.Name == s.state.Profile.Name {
			if err := checkProfile(s.engine, p); err != nil {
				return err
			}
		}
		if created, err = s.profiles.Put(p, create); err == nil {
			s.actOnProfile(p)
		}
		return err
	})
	if err == nil {
		s.log.Info().Str("profile", p.Name).Str("by", by).Msg("profile changed")
	}
	return created, err
}

// DeleteProfile deletes an own profile that is not in use, or resets a changed built-in one.
func (s *Steering) DeleteProfile(name, by string) error {
	err := s.do(func() error {
		reset, err := s.profiles.Delete(name, s.state.Profile.Name)
		if reset != nil {
			s.actOnProfile(*reset)
		}
		return err
	})
	if err == nil {
		s.log.Info().Str("profile", name).Str("by", by).Msg("profile deleted")
	}
	return err
}

// useProfile makes a profile the active one and puts its own settings in force.
func (s *Steering) useProfile(p prompt.Profile) {
	s.state.Profile = p
	s.settle(func() { s.live.UseProfile(settingsOf(p)) })
}

// settingsOf returns the settings that a profile has of its own.
func settingsOf(p prompt.Profile) settings.Settings {
	own := settings.Settings{Speech: p.Speech, VoiceGain: p.VoiceGain}
	if p.Language != "" {
		own.Language = &p.Language
	}
	if p.Voice != "" {
		own.Voice = &p.Voice
	}
	return own
}

// actOnProfile applies a changed profile if it is the active one.
func (s *Steering) actOnProfile(p prompt.Profile) {
	if s.state.Profile.Name != p.Name {
		return
	}
	s.useProfile(p)
	if s.state.Active {
		s.room.ActNow(s.now())
	}
}

// Background returns the background of the room.
func (s *Steering) Background() prompt.Background { return s.State().Background }

// SetBackground replaces the background; "" removes it. The next look has it. The error joins all that is wrong with the text.
func (s *Steering) SetBackground(text, by string) (prompt.Background, error) {
	background, err := prompt.ReadBackground([]byte(text))
	if err != nil {
		return prompt.Background{}, err
	}
	_ = s.do(func() error {
		s.state.Background = background
		s.room.Look(s.now())
		return nil
	})
	s.log.Info().Str("by", by).Int("bytes", len(background.Text)).Msg("new background")
	return background, nil
}
