package hearing

import "time"

// clearFor is how long what a microphone hears must not follow the voice before the recognizer hears it: an echo may seem to be
// speech for a moment.
const clearFor = 6 * levelStep

// apartFor is for how long the voice must sound and a microphone hear no speech, with no echo between, until it is known to hear none: a
// headset, or an echo canceller. Speech that follows the voice by chance need not wait there.
const apartFor = 6 * time.Second

// plain is how many levels seldom follow the voice by chance.
const plain = 40

// echoFilter keeps echoes of the voice from the recognizer. Only the goroutine that feeds the session touches it.
type echoFilter struct {
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

// listenApart adds the length of n new samples to apart if the voice sounds while the microphone hears no speech.
func (m *microphone) listenApart(n int) {
	m.mu.Lock()
	zero, inside := m.zero, m.inside
	m.mu.Unlock()
	if !inside && m.ears.voice.soundsSince(zero.Add(length(m.fed-int64(n)))) {
		m.apart.Add(int64(length(int64(n))))
	}
}

// heardEcho counts an utterance that was the voice's.
func (m *microphone) heardEcho() {
	m.ears.counts.echoes.Add(1)
	m.apart.Store(0)
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
