package mel

import (
	"errors"
	"fmt"
	"math"

	"touchline/internal/quantile"
)

// Lengths of a reference voice in speech tokens, 25 a second.
const (
	LongReference  = 150 // 6 s
	ShortReference = 75  // 3 s
)

const (
	tokenSamples = Rate / 25
	blocks       = 100 // per second: levels are of 10 ms
	tokenBlocks  = blocks / 25

	minLevel  = 0.005 // -46 dBFS: softer speech is refused
	maxLevel  = 2     // beyond it something else is wrong
	dynamic   = 0.03  // of the level of speech: softer blocks are silence (-30 dB)
	shortGap  = 30    // blocks: a shorter silence between sounds counts as sound
	fullScale = 0.999 // a sample of this size or more is clipped
	maxShare  = 0.001 // of clipped samples
	edge      = 5     // blocks on the inner side of a cut that must be silent
	fullShare = 0.75  // least share of sound in a long reference
)

var (
	// ErrShort is returned for a reference voice with less than 3 s of sound.
	ErrShort = errors.New("too short")
	// ErrSilent is returned for a reference voice that is too soft.
	ErrSilent = errors.New("too soft")
	// ErrClipped is returned for a reference voice that was recorded too loudly.
	ErrClipped = errors.New("clipped")
)

// CheckReference checks that the sound can be the reference of a voice. The errors are ErrShort,
// ErrSilent and ErrClipped, with the measured value and the remedy.
func CheckReference(samples []float32, rate int) error {
	if rate < blocks {
		return fmt.Errorf("reference voice: sample rate %d Hz; use 16000 Hz or more", rate)
	}
	need := float64(ShortReference) / 25
	if length := float64(len(samples)) / float64(rate); length < need {
		return fmt.Errorf("reference voice: %w: %.1f s; use %.0f s of speech or more", ErrShort, length, need)
	}
	level := levels(samples, rate)
	loud := loudness(level)
	if loud < minLevel {
		return fmt.Errorf("reference voice: %w: speech at %.0f dBFS; use a recording above %.0f dBFS",
			ErrSilent, decibels(max(loud, 1e-5)), decibels(minLevel))
	}
	length, clipped, total := 0, 0, 0
	for i, sound := range soundIn(level) {
		if !sound {
			continue
		}
		if !(level[i] <= maxLevel) { // NaN fails too
			return fmt.Errorf("reference voice: samples at %.2f s are not between -1 and 1; use another recording", float64(i)/blocks)
		}
		block := samples[i*rate/blocks : (i+1)*rate/blocks]
		length, total = length+1, total+len(block)
		for _, v := range block {
			if v >= fullScale || v <= -fullScale {
				clipped++
			}
		}
	}
	if share := float64(clipped) / float64(total); share > maxShare {
		return fmt.Errorf("reference voice: %w: %.1f %% of the samples are at full scale; record it with less gain", ErrClipped, 100*share)
	}
	if length < ShortReference*tokenBlocks {
		return fmt.Errorf("reference voice: %w: %.1f s without the silence; use %.0f s of speech or more", ErrShort, float64(length)/blocks, need)
	}
	return nil
}

// CutReference returns the part of a sound at 16 kHz that is used as the reference: LongReference
// tokens long if the sound and tokens allow it, else ShortReference. It begins and ends in pauses
// where possible, and has as much speech as possible. The result is a part of samples; nil if the
// sound is shorter.
func CutReference(samples []float32, tokens int) []float32 {
	level := levels(samples, Rate)
	sound := soundIn(level)
	for _, n := range []int{LongReference, ShortReference} {
		if n > tokens || n*tokenSamples > len(samples) {
			continue
		}
		at, share := bestPart(level, sound, n*tokenBlocks)
		if n == ShortReference || share >= fullShare {
			return samples[at*Rate/blocks:][:n*tokenSamples]
		}
	}
	return nil
}

// levels returns the root mean square of each 10 ms.
func levels(samples []float32, rate int) []float64 {
	level := make([]float64, len(samples)*blocks/rate)
	for i := range level {
		block := samples[i*rate/blocks : (i+1)*rate/blocks]
		sum := 0.0
		for _, v := range block {
			sum += float64(v) * float64(v)
		}
		level[i] = math.Sqrt(sum / float64(len(block)))
	}
	return level
}

// loudness returns the level of the speech: the loudest second of blocks exceeds it.
func loudness(level []float64) float64 {
	return quantile.Of(level, 1-blocks/float64(max(len(level), blocks)))
}

// soundIn marks the blocks of speech, including short silences between them.
func soundIn(level []float64) []bool {
	least := dynamic * loudness(level)
	sound := make([]bool, len(level))
	last := len(level) // no speech yet
	for i, v := range level {
		if v <= least {
			continue
		}
		for j := last + 1; j < i && i-last <= shortGap; j++ {
			sound[j] = true
		}
		sound[i] = true
		last = i
	}
	return sound
}

// bestPart returns the beginning of the best n blocks, and the share of speech in them. A cut
// through speech counts like the loss of up to half a second.
func bestPart(level []float64, sound []bool, n int) (at int, share float64) {
	const cost = blocks / 2
	loud := loudness(level)
	count := 0
	best := math.Inf(-1)
	for end := range sound {
		if sound[end] {
			count++
		}
		from := end + 1 - n
		if from < 0 {
			continue
		}
		score := float64(count) - cost*(cut(level[from:][:edge], loud)+cut(level[end+1-edge:][:edge], loud))
		if score > best {
			best, at, share = score, from, float64(count)/float64(n)
		}
		if sound[from] {
			count--
		}
	}
	return at, share
}

// cut returns 0 for a cut in silence, up to 1 for a cut in loud speech.
func cut(level []float64, loud float64) float64 {
	sum := 0.0
	for _, v := range level {
		sum += v
	}
	return min(1, sum/(loud*float64(len(level))))
}

func decibels(x float64) float64 { return 20 * math.Log10(x) }
