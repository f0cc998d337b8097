package voice

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"touchline/inference"
	"touchline/internal/rescue"
	"touchline/internal/wav"
)

// speakFlite speaks with one run of flite, which also returns the phones with their times. A second run, with the fastest voice and the
// same pronunciations, reads the words one by one to assign the phones to words.
func (s *Synthesizer) speakFlite(ctx context.Context, tokens []token, _ string) (Speech, error) {
	voice := cmp.Or(s.cfg.Name, "slt")
	var phones, sound, words []byte
	g, gctx := rescue.WithContext(ctx)
	g.Go(func() (err error) {
		// flite never parses the argument of -t as an option, so the text may start with a dash. The phones come on standard output.
		args := []string{"-voice", voice, "-psdur", "-t", script(tokens), "-o", "/dev/fd/3"}
		if speed := inference.Speed(ctx); speed != 1 {
			args = append(args, "--setf", fmt.Sprintf("duration_stretch=%.3f", 1/speed))
		}
		phones, sound, err = runWithFile(gctx, flite, args...)
		return err
	})
	g.Go(func() (err error) {
		words, err = run(gctx, flite, "", "-voice", "kal16", "-ps", "-t", list(tokens, ", "), "-o", "none")
		return err
	})
	if err := g.Wait(); err != nil {
		return Speech{}, err
	}
	samples, rate, err := wav.Parse(sound)
	if err != nil {
		return Speech{}, fmt.Errorf("read flite's sound: %w", err)
	}
	pcm := wav.PCM(samples)
	spans, ok := placeWords(parsePhones(string(phones)), phoneGroups(string(words)), tokens)
	if !ok {
		spans = estimate(tokens, rate, pcm)
	}
	return Speech{Audio: pcm, Rate: rate, Words: wordTimes(tokens, spans)}, nil
}

// phone is one sound with its time in the audio.
type phone struct {
	name       string
	start, end time.Duration
}

// parsePhones parses "pau:0.164 hh:0.255 ": each phone with its end in seconds.
// It skips pauses and unreadable fields.
func parsePhones(s string) []phone {
	var phones []phone
	var at time.Duration
	for _, f := range strings.Fields(s) {
		name, end, ok := strings.Cut(f, ":")
		if !ok {
			continue
		}
		sec, err := strconv.ParseFloat(end, 64)
		if err != nil || sec < 0 || sec > 3600 {
			continue
		}
		t := max(at, time.Duration(sec*float64(time.Second)))
		if name != pause {
			phones = append(phones, phone{name: name, start: at, end: t})
		}
		at = t
	}
	return phones
}

// pause is flite's name for silence.
const pause = "pau"

// phoneGroups parses "pau hh ax pau w er l d pau": the phones between pauses.
func phoneGroups(s string) [][]string {
	var groups [][]string
	var group []string
	for _, f := range append(strings.Fields(s), pause) {
		switch {
		case f != pause:
			group = append(group, f)
		case len(group) > 0:
			groups = append(groups, group)
			group = nil
		}
	}
	return groups
}
