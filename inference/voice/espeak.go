package voice

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"touchline/inference"
	"touchline/internal/rescue"
	"touchline/internal/wav"
)

// wordGap is espeak-ng's -g for the run that finds the words: pauses of about
// 300 ms, longer than any silence within a word.
const (
	wordGap    = "30"
	minWordGap = 220 * time.Millisecond
)

// espeakPace is espeak-ng's default of -s, in words per minute.
const espeakPace = 175

// speakEspeak speaks with one run of espeak-ng. Three further runs give the times of the words: the text with wide gaps between the
// words shows the lengths of words and pauses; the phonemes of the text and of each word alone assign them, since espeak-ng joins words
// ("of the").
func (s *Synthesizer) speakEspeak(ctx context.Context, tokens []token, lang string) (Speech, error) {
	voice := cmp.Or(s.cfg.Name, espeakVoice(lang))
	text := script(tokens)
	common := []string{"-v", voice, "--stdin"}
	if speed := inference.Speed(ctx); speed != 1 {
		common = append(common, "-s", strconv.Itoa(int(espeakPace*speed)))
	}
	var sound, wide, whole, each []byte
	g, gctx := rescue.WithContext(ctx)
	for _, r := range []struct {
		out  *[]byte
		text string
		args []string
	}{
		{&sound, text, []string{"--stdout"}},
		{&wide, text, []string{"-g", wordGap, "--stdout"}},
		{&whole, text, []string{"-q", "-x"}},
		{&each, list(tokens, ",\n"), []string{"-q", "-x"}},
	} {
		g.Go(func() (err error) {
			// A text on standard input cannot be an option.
			*r.out, err = run(gctx, espeak, r.text, slices.Concat(common, r.args)...)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return Speech{}, err
	}
	if len(sound) == 0 {
		return Speech{}, fmt.Errorf("espeak-ng has no voice %q: see espeak-ng --voices", voice)
	}
	samples, rate, err := wav.Parse(sound)
	if err != nil {
		return Speech{}, fmt.Errorf("read espeak-ng's sound: %w", err)
	}
	pcm := wav.PCM(samples)
	spans, ok := []span(nil), false
	if wideSamples, wideRate, err := wav.Parse(wide); err == nil {
		words := strings.Fields(string(whole))
		if phones, found := spreadPhones(words, rate, pcm, wideRate, wav.PCM(wideSamples)); found {
			spans, ok = placeWords(phones, espeakGroups(string(each)), tokens)
		}
	}
	if !ok {
		spans = estimate(tokens, rate, pcm)
	}
	return Speech{Audio: pcm, Rate: rate, Words: wordTimes(tokens, spans)}, nil
}

// spreadPhones returns the time in pcm of each phoneme of words (as written by
// espeak-ng -x). wide is the same text with gaps, which it subtracts. Within a
// word the phonemes are spread evenly.
func spreadPhones(words []string, rate int, pcm []int16, wideRate int, wide []int16) ([]phone, bool) {
	words = slices.DeleteFunc(words, func(w string) bool { return len(phonemes(w)) == 0 })
	sounds := sounding(rate, pcm, time.Hour)
	parts := sounding(wideRate, wide, minWordGap)
	if len(words) == 0 || len(sounds) != 1 || len(parts) != len(words) {
		return nil, false
	}
	long := sounds[0].end - sounds[0].start
	inserted := gaps(parts, long)
	scale := float64(long) / float64(parts[len(parts)-1].end-parts[0].start-inserted[len(parts)-1])
	if scale < 0.8 || scale > 1.25 {
		return nil, false
	}
	at := func(t time.Duration, k int) time.Duration {
		return sounds[0].start + time.Duration(scale*float64(t-parts[0].start-inserted[k]))
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

// gaps returns the inserted silence before each part. All gaps are equal; a
// silence longer than the shortest contains a pause or closure of the sound
// itself. Some languages get two gaps at the end of a clause: gaps returns the
// variant that is nearer to the length of the sound.
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
	// Marks such as (en) switch the language of a word.
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

// espeakVoice returns espeak-ng's name of a BCP 47 language.
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
