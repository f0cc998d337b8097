package settings

import (
	"cmp"
	"fmt"

	"touchline/inference"
)

// voices is the kind of the setting voice.
func voices() kind[string] {
	return kind[string]{
		field: func(v *Settings) **string { return &v.Voice }, same: equal[string],
		get: func(f *InForce) *string { return new(f.VoiceID()) },
		set: func(f *InForce, v string) { f.Voice = v },
		check: func(v string) (string, any) {
			if inference.IsVoice(v) {
				return "", nil
			}
			return inference.VoiceRule, fmt.Sprintf("%.80q", v)
		},
	}
}

// VoiceID returns the voice in force, as in Settings.
func (f InForce) VoiceID() string {
	configured := f.Inference.Voice
	switch {
	case f.Voice != "":
		return f.Voice
	case configured.Name == "":
		return cmp.Or(configured.Program, inference.VoiceAuto)
	}
	return configured.Program + ":" + configured.Name
}

// languages is the kind of the setting language.
func languages() kind[string] {
	k := at(func(v *Settings) **string { return &v.Language }, func(f *InForce) *string { return &f.Inference.Voice.Language })
	k.check = func(v string) (string, any) {
		if inference.IsLanguageTag(v) {
			return "", nil
		}
		return "a BCP 47 tag such as en or pt-BR", fmt.Sprintf("%q", v)
	}
	return k
}
