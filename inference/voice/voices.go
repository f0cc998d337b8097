package voice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"touchline/inference"
)

// Voice is a voice of an installed speech program.
type Voice struct {
	// ID is the program and the voice's name, such as "flite:slt" or "espeak-ng:en-gb"; a value of Prompt.Voice.
	ID string
	// Language is a BCP 47 tag; "" is any, as for voices of a speech server.
	Language string
}

// limited are flite's voices with a limited vocabulary.
var limited = []string{"awb_time"} //nolint:gochecknoglobals // a table

// Installed lists the voices of the configured speech server, whose default is "remote", then those of the installed speech
// programs.
func Installed(ctx context.Context, cfg inference.VoiceConfig) []Voice {
	var out []Voice
	if cfg.URL != "" {
		out = append(out, Voice{ID: remote})
		for _, name := range newServer(cfg).voices(ctx) {
			out = append(out, Voice{ID: remote + ":" + name})
		}
	}
	for _, p := range programs() {
		if list, err := run(ctx, p.name, "", p.list); err == nil {
			out = append(out, p.voices(string(list))...)
		}
	}
	return out
}

// fliteVoices reads "Voices available: kal awb rms slt".
func fliteVoices(list string) []Voice {
	_, names, _ := strings.Cut(list, ":")
	var out []Voice
	for _, name := range strings.Fields(names) {
		if plain(name) && !slices.Contains(limited, name) {
			out = append(out, Voice{flite + ":" + name, "en"})
		}
	}
	return out
}

// espeakVoices reads the table of espeak-ng --voices, whose second column has the language.
func espeakVoices(table string) []Voice {
	var out []Voice
	for line := range strings.Lines(table) {
		cells := strings.Fields(line)
		if len(cells) < 4 || cells[0] == "Pty" || !plain(cells[1]) {
			continue
		}
		if v := (Voice{espeak + ":" + cells[1], cells[1]}); !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// Speaks reports whether a voice speaks a language (BCP 47; "" means English).
func (v Voice) Speaks(language string) bool {
	return v.Language == "" || inference.Primary(espeakVoice(v.Language)) == inference.Primary(espeakVoice(cmp.Or(language, "en")))
}

// Check returns an error if a voice is not in the list of Installed or does not speak the language. It accepts VoiceAuto and
// VoiceModel.
func Check(list []Voice, id, language string) error {
	if id == inference.VoiceAuto || id == inference.VoiceModel || id == "" || strings.HasPrefix(id, inference.VoiceModel+":") {
		return nil // the model checks its own
	}
	if name, ok := strings.CutPrefix(id, remote+":"); ok && name != "" && serverVoice(name) {
		id = remote // its list may be incomplete
	}
	i := slices.IndexFunc(list, func(v Voice) bool { return v.ID == id })
	if i < 0 && id == remote {
		return errors.New("there is no speech server: set inference.voice.url")
	}
	if i < 0 {
		return fmt.Errorf("the voice %.80q is not installed", id)
	}
	if !list[i].Speaks(language) {
		return fmt.Errorf("the voice %s speaks %s, not %s", id, list[i].Language, cmp.Or(language, "en"))
	}
	return nil
}

// as returns the Synthesizer with another voice, an ID; "" is its own.
func (s *Synthesizer) as(id string) *Synthesizer {
	program, name, _ := strings.Cut(id, ":")
	known := slices.Contains(inference.VoiceChoices(), program) && plain(name)
	if program == remote {
		known = s.server != nil && serverVoice(name)
	}
	if !known {
		return s
	}
	other := *s
	other.cfg.Program, other.cfg.Name = program, name
	return &other
}
