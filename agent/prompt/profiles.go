package prompt

import (
	"errors"
	"fmt"
	"slices"
)

// MaxProfiles bounds the own profiles of a room.
const MaxProfiles = 32

// Errors of Profiles.
var (
	ErrNoProfile       = errors.New("no such profile")
	ErrProfileTaken    = errors.New("the name is taken: choose another one, or change the profile that has it")
	ErrProfileBuiltIn  = errors.New("a built-in profile cannot be deleted")
	ErrProfileInUse    = errors.New("the profile is in use: choose another one first")
	ErrTooManyProfiles = fmt.Errorf("there are %d own profiles already: delete one first", MaxProfiles)
)

// Profiles are the built-in and own profiles of a room. Own is replaced, never changed in place.
type Profiles struct {
	BuiltIn, Own []Profile
}

// All returns all profiles with their kinds; a custom profile replaces the built-in one of its name.
func (p *Profiles) All() []Profile {
	out := slices.Clone(p.BuiltIn)
	for i := range out {
		out[i].Kind = ProfileBuiltIn
	}
	for _, own := range p.Own {
		own.Kind = ProfileOwn
		if i := slices.IndexFunc(out, named(own.Name)); i >= 0 {
			own.Kind = ProfileChanged
			out[i] = own
		} else {
			out = append(out, own)
		}
	}
	return out
}

// Find returns a profile, or nil and the names of all.
func (p *Profiles) Find(name string) (found *Profile, names []string) {
	for _, known := range p.All() {
		if known.Name == name {
			return &known, nil
		}
		names = append(names, known.Name)
	}
	return nil, names
}

// Put creates or changes a profile. With create set, the name must be free.
func (p *Profiles) Put(changed Profile, create bool) (created bool, err error) {
	own := slices.IndexFunc(p.Own, named(changed.Name))
	created = own < 0 && !slices.ContainsFunc(p.BuiltIn, named(changed.Name))
	switch {
	case create && !created:
		return false, fmt.Errorf("profile %s: %w", changed.Name, ErrProfileTaken)
	case own < 0 && len(p.Own) >= MaxProfiles:
		return false, ErrTooManyProfiles
	}
	p.Own = slices.Clone(p.Own)
	if own < 0 {
		p.Own = append(p.Own, changed)
	} else {
		p.Own[own] = changed
	}
	return created, nil
}

// Delete deletes an own profile that is not in use, or resets a changed built-in one, which it returns.
func (p *Profiles) Delete(name, inUse string) (reset *Profile, err error) {
	own := slices.IndexFunc(p.Own, named(name))
	builtIn := slices.IndexFunc(p.BuiltIn, named(name))
	switch {
	case own < 0 && builtIn >= 0:
		return nil, fmt.Errorf("profile %s: %w", name, ErrProfileBuiltIn)
	case own < 0:
		return nil, fmt.Errorf("profile %.60q: %w", name, ErrNoProfile)
	case builtIn < 0 && inUse == name:
		return nil, fmt.Errorf("profile %s: %w", name, ErrProfileInUse)
	}
	p.Own = slices.Delete(slices.Clone(p.Own), own, own+1)
	if builtIn >= 0 {
		reset = &p.BuiltIn[builtIn]
	}
	return reset, nil
}

func named(name string) func(Profile) bool {
	return func(p Profile) bool { return p.Name == name }
}
