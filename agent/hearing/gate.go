package hearing

import "time"

// clearFor is how long what a microphone hears must not follow the voice before the recognizer hears it: an echo may seem to be
// speech for a moment.
const clearFor = 6 * levelStep

// echoGate keeps echoes of the voice from the recognizer. Only the goroutine that feeds the session touches it.
type echoGate struct {
	start int64         // of the utterance that is judged
	until int64         // level up to which it was judged
	clear time.Duration // for which it has not followed the voice
}

// admit reports whether the recognizer may hear the utterance whose speech begins at a sample of the session. While the voice sounds,
// that is when the utterance is surely no echo of it.
func (m *microphone) admit(start int64, ended bool) bool {
	m.mu.Lock()
	zero := m.zero
	m.mu.Unlock()
	g, v, mic := &m.gate, &m.ears.voice, &m.levels
	if g.start != start {
		*g = echoGate{start: start, until: start / (rate / 50)}
	}
	if m.pushed.Load() || !v.soundsSince(zero.Add(length(start)-latestEcho)) {
		return true
	}
	if mic.end-start/(rate/50) < fewest { // too short to tell
		return ended
	}
	if _, echo := v.echoes(mic, start, zero); echo {
		g.clear, g.until = 0, mic.end
		return false
	}
	g.clear += time.Duration(mic.end-g.until) * levelStep
	g.until = mic.end
	return ended || g.clear >= clearFor
}

// soundsSince reports whether the voice has sounded since a time.
func (v *voiceLevels) soundsSince(from time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	first := max(int64(from.Sub(v.zero)/levelStep), v.end-keptLevels, 0)
	for n := v.end - 1; n >= first; n-- {
		if v.at(n) > quietVoice {
			return true
		}
	}
	return false
}

// quietVoice is the level up to which the voice is silent, dB.
const quietVoice = -60
