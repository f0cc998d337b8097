package voice

import (
	"context"
	"fmt"
	"strings"
)

// speakEspeak reads the sound from one run.
func (s *Synthesizer) speakEspeak(ctx context.Context, tokens []token, lang string) (Speech, error) {
	voice := s.cfg.Name
	if voice == "" {
		voice = espeakVoice(lang)
	}
	// The text goes to standard input: it is no option whatever it begins with.
	sound, err := run(ctx, espeak, script(tokens), false, "-v", voice, "--stdin", "--stdout")
	if err != nil {
		return Speech{}, err
	}
	if len(sound.stdout) == 0 {
		return Speech{}, fmt.Errorf("expected espeak-ng to have a voice for %q, it has none: see espeak-ng --voices", voice)
	}
	rate, pcm, err := parseWAV(sound.stdout)
	if err != nil {
		return Speech{}, fmt.Errorf("read espeak-ng's sound: %w", err)
	}
	return Speech{Audio: pcm, Rate: rate, Words: wordTimes(tokens, estimate(tokens, rate, pcm))}, nil
}

// espeakVoice is espeak-ng's name for a BCP 47 language.
func espeakVoice(lang string) string {
	lang = strings.ToLower(strings.ReplaceAll(lang, "_", "-"))
	switch base, _, _ := strings.Cut(lang, "-"); {
	case lang == "":
		return "en"
	case lang == "zh-hk", lang == "zh-mo", base == "yue":
		return "yue"
	case base == "zh":
		return "cmn"
	case base == "no", base == "nn":
		return "nb"
	case lang == "en-us", lang == "en-gb", lang == "pt-br", lang == "es-419", lang == "fr-ch", lang == "fr-be":
		return lang
	default:
		return base
	}
}
