package voice

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"touchline/internal/rescue"
)

// wordGap is espeak-ng's -g for the run that finds the words: about 300 ms
// between words, longer than any silence within one.
const (
	wordGap    = "30"
	minWordGap = 220 * time.Millisecond
)

// speakEspeak takes the sound from one run. espeak-ng tells no times, so that
// three quick runs beside it find them: the same text with wide gaps between
// the words shows how long each word is and how long the pauses are, and the
// phonemes of the text and of each word alone show which is which ("of the"
// becomes one).
func (s *Synthesizer) speakEspeak(ctx context.Context, tokens []token, lang string) (Speech, error) {
	voice := s.cfg.Name
	if voice == "" {
		voice = espeakVoice(lang)
	}
	// The text goes to standard input: it is no option whatever it begins with.
	text := script(tokens)
	var sound, wide, whole, each result
	g, gctx := rescue.WithContext(ctx)
	g.Go(func() (err error) {
		sound, err = run(gctx, espeak, text, false, "-v", voice, "--stdin", "--stdout")
		return err
	})
	g.Go(func() (err error) {
		wide, err = run(gctx, espeak, text, false, "-v", voice, "-g", wordGap, "--stdin", "--stdout")
		return err
	})
	g.Go(func() (err error) {
		whole, err = run(gctx, espeak, text, false, "-v", voice, "-q", "-x", "--stdin")
		return err
	})
	g.Go(func() (err error) {
		each, err = run(gctx, espeak, list(tokens, ",\n"), false, "-v", voice, "-q", "-x", "--stdin")
		return err
	})
	if err := g.Wait(); err != nil {
		return Speech{}, err
	}
	if len(sound.stdout) == 0 {
		return Speech{}, fmt.Errorf("expected espeak-ng to have a voice for %q, it has none: see espeak-ng --voices", voice)
	}
	rate, pcm, err := parseWAV(sound.stdout)
	if err != nil {
		return Speech{}, fmt.Errorf("read espeak-ng's sound: %w", err)
	}
	spans, ok := []span(nil), false
	if wideRate, widePCM, err := parseWAV(wide.stdout); err == nil {
		words := strings.Fields(string(whole.stdout))
		if phones, found := spreadPhones(words, rate, pcm, wideRate, widePCM); found {
			spans, ok = placeWords(phones, espeakGroups(string(each.stdout)), tokens)
		}
	}
	if !ok {
		spans = estimate(tokens, rate, pcm)
	}
	return Speech{Audio: pcm, Rate: rate, Words: wordTimes(tokens, spans)}, nil
}

// spreadPhones gives each phoneme of words (as espeak-ng -x writes them) its
// time in pcm: wide is the same text with gaps, which are taken out again.
// Within a word the phonemes are spread evenly.
func spreadPhones(words []string, rate int, pcm []int16, wideRate int, wide []int16) ([]phone, bool) {
	words = slices.DeleteFunc(words, func(w string) bool { return len(phonemes(w)) == 0 })
	heard := sounding(rate, pcm, time.Hour)
	parts := sounding(wideRate, wide, minWordGap)
	if len(words) == 0 || len(heard) != 1 || len(parts) != len(words) {
		return nil, false
	}
	long := heard[0].end - heard[0].start
	inserted := gaps(parts, long)
	scale := float64(long) / float64(parts[len(parts)-1].end-parts[0].start-inserted[len(parts)-1])
	if scale < 0.8 || scale > 1.25 {
		return nil, false
	}
	at := func(t time.Duration, k int) time.Duration {
		return heard[0].start + time.Duration(scale*float64(t-parts[0].start-inserted[k]))
	}
	var phones []phone
	for k, p := range parts {
		names := phonemes(words[k])
		start, end := at(p.start, k), at(p.end, k)
		each := (end - start) / time.Duration(len(names))
		for i, n := range names {
			phones = append(phones, phone{
				name:  n,
				start: start + time.Duration(i)*each,
				end:   start + time.Duration(i+1)*each,
			})
		}
	}
	return phones, true
}

// gaps tells how much silence was put in before each part. The gaps are all
// alike; what a silence is longer than the shortest is a pause or a closure,
// which the sound has as well. Some languages get two at the end of a clause:
// whichever reading comes nearer to the length of the sound is taken.
func gaps(parts []span, long time.Duration) []time.Duration {
	one := time.Duration(0)
	for k := 1; k < len(parts); k++ {
		if s := parts[k].start - parts[k-1].end; k == 1 || s < one {
			one = s
		}
	}
	single := make([]time.Duration, len(parts))
	double := make([]time.Duration, len(parts))
	for k := 1; k < len(parts); k++ {
		single[k] = single[k-1] + one
		double[k] = double[k-1] + one
		if parts[k].start-parts[k-1].end >= 2*one {
			double[k] += one
		}
	}
	last := len(parts) - 1
	whole := parts[last].end - parts[0].start
	if (whole - double[last] - long).Abs() < (whole - single[last] - long).Abs() {
		return double
	}
	return single
}

// espeakGroups reads -x output of one word per line.
func espeakGroups(s string) [][]string {
	var groups [][]string
	for line := range strings.Lines(s) {
		if g := phonemes(line); len(g) > 0 {
			groups = append(groups, g)
		}
	}
	return groups
}

// phonemes cuts espeak-ng's mnemonics into characters, without stress, length
// and pause marks. A long or double vowel counts as two.
func phonemes(word string) []string {
	// (en) and the like say that a word is read in another language.
	for {
		from := strings.IndexByte(word, '(')
		to := strings.IndexByte(word, ')')
		if from < 0 || to < from {
			break
		}
		word = word[:from] + word[to+1:]
	}
	var names []string
	for _, r := range word {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), strings.ContainsRune("@&", r):
			names = append(names, string(r))
		}
	}
	return names
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
