package hearing

import "time"

// clearFor is how long speech must not follow the voice before the recognizer gets it, because an echo can resemble speech for a
// moment.
const clearFor = 6 * levelStep

// apartFor is how long the voice must sound without speech or echo in a microphone until the microphone is known to pick up no echo,
// as with a headset or an echo canceller. Then speech that follows the voice by chance is not delayed.
const apartFor = 6 * time.Second

// plain is the number of levels that rarely follow the voice by chance.
const plain = 40

// echoFilter keeps echoes of the voice from the recognizer. Only the goroutine that feeds the session uses it.
type echoFilter struct {
	start int64         // of the present utterance
	until int64         // level up to which it was compared
	clear time.Duration // how long it has not followed the voice
}

// admit reports whether the utterance that begins at sample start may be recognized. While the commentator's voice plays, it
// may once the utterance is clearly no echo.
func (m *microphone) admit(start int64, ended bool) bool {
	m.mu.Lock()
	zero := m.zero
	m.mu.Unlock()
	g, v, mic := &m.filter, &m.ears.voice, &m.levels
	if g.start != start {
		*g = echoFilter{start: start, until: start / (rate / 50)}
	}
	if m.pushed.Load() || !v.soundsSince(zero.Add(length(start)-latestEcho)) {
		return true
	}
	spoken, apart := mic.end-start/(rate/50), m.apart.Load() >= int64(apartFor)
	if spoken < fewest { // too short to tell
		return ended || apart
	}
	if _, echo := v.echoes(mic, start, zero); echo {
		if g.clear, g.until = 0, mic.end; spoken >= plain {
			m.apart.Store(0)
		}
		return apart
	}
	g.clear += time.Duration(mic.end-g.until) * levelStep
	g.until = mic.end
	return ended || apart || g.clear >= clearFor
}

// listenApart adds the length of n new samples to apart if the voice sounds and the microphone has no speech.
func (m *microphone) listenApart(n int) {
	m.mu.Lock()
	zero, inside := m.zero, m.inside
	m.mu.Unlock()
	if !inside && m.ears.voice.soundsSince(zero.Add(length(m.fed-int64(n)))) {
		m.apart.Add(int64(length(int64(n))))
	}
}

// countEcho counts an utterance that was an echo.
func (m *microphone) countEcho() {
	m.ears.counts.echoes.Add(1)
	m.apart.Store(0)
}

// soundsSince reports whether the voice has sounded since a time.
func (v *voiceLevels) soundsSince(from time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	first := max(int64(from.Sub(v.zero)/levelStep), v.end-maxLevels, 0)
	for n := v.end - 1; n >= first; n-- {
		if v.at(n) > quietVoice {
			return true
		}
	}
	return false
}

// quietVoice is the level up to which the voice counts as silent, in dB.
const quietVoice = -60
