package hearing

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"touchline/inference/live"
	"touchline/inference/vad"
	"touchline/internal/ticks"
	"touchline/media/sound"
)

// openDetector opens a speech detector when it is time for one, and feeds it the sound that the last one missed.
func (m *microphone) openDetector(ctx context.Context, now time.Time) error {
	if m.again.IsZero() || now.Before(m.again) {
		return nil
	}
	d, err := m.ears.opts.Detector()
	if err == nil {
		err = m.session.Detect(d, m.speech)
	}
	if errors.Is(err, live.ErrClosed) {
		return err
	}
	if err != nil {
		m.retryDetector(err, now)
		return nil
	}
	if m.deaf && !m.last.IsZero() {
		m.last = now // waiting sound comes before silence
	}
	m.deaf, m.again, m.opened = false, time.Time{}, now
	missing := max(0, m.fed-samples(m.session.Now()))
	sound := make([]float32, missing)
	n := min(int(missing), len(m.unheard))
	copy(sound[len(sound)-n:], m.unheard[len(m.unheard)-n:])
	m.unheard = nil
	return m.feed(ctx, sound)
}

func (m *microphone) feed(ctx context.Context, sound []float32) error {
	err := m.session.Write(ctx, sound)
	if err != nil {
		m.unheard = sound
	}
	return err
}

// retryDetector schedules the opening of another speech detector.
func (m *microphone) retryDetector(err error, now time.Time) {
	stood := time.Duration(0)
	if !m.opened.IsZero() {
		stood = now.Sub(m.opened)
	}
	wait := m.retry.Lost(stood, now, rand.Float64())
	m.again, m.opened = now.Add(wait), time.Time{}
	m.ears.log.Warn().Err(err).Str("participant", m.identity).Str("track", m.track).Int64("retry_in_ms", wait.Milliseconds()).
		Msg("speech detector failed")
}

// place feeds a piece of sound at its position: silence replaces missing sound, and repeated sound is left out.
func (m *microphone) place(ctx context.Context, p sound.Piece) error {
	const tick = sound.Rate / rate
	filled := m.filled
	m.last, m.filled = time.Now(), 0
	if p.Stream != m.stream {
		m.stream, m.base, m.from = p.Stream, p.Media, m.fed
	}
	at := m.from + (p.Media-m.base)/tick
	if filled > 0 && m.fed-at > samples(overlap) {
		m.base, m.from, at = p.Media, m.fed, m.fed
	}
	if at-m.fed > samples(maxFill) { // a pause: the utterance is over
		if err := m.write(ctx, make([]float32, samples(maxFill))); err != nil {
			return err
		}
		m.base, m.from, at = p.Media, m.fed, m.fed
	}
	pcm := p.PCM
	if at < m.fed {
		pcm = pcm[min(m.fed-at, int64(len(pcm))):]
	}
	sound := make([]float32, max(0, at-m.fed), max(0, at-m.fed)+int64(len(pcm)))
	for _, v := range pcm {
		sound = append(sound, float32(v)/32768)
	}
	m.mu.Lock()
	m.zero = p.Arrival.Add(-length(at))
	m.mu.Unlock()
	return m.write(ctx, sound)
}

// fill feeds silence while no sound arrives, so that an utterance ends.
func (m *microphone) fill(ctx context.Context, now time.Time) error {
	quiet := now.Sub(m.last)
	if m.last.IsZero() || quiet < lateAfter {
		return nil
	}
	missing := min(samples(quiet), samples(maxFill)) - m.filled
	if missing <= 0 {
		return nil
	}
	m.filled += missing
	return m.write(ctx, make([]float32, missing))
}

func (m *microphone) write(ctx context.Context, sound []float32) error {
	if len(sound) == 0 {
		return nil
	}
	m.fed += int64(len(sound))
	m.levels.add(sound)
	m.listenApart(len(sound))
	return m.feed(ctx, sound)
}

// detect changes the settings of the speech detector.
func (m *microphone) detect(c vad.Config, now time.Time) {
	if m.speech == c {
		return
	}
	if m.speech = c; !m.deaf { // else it is about to change
		m.again = now
	}
}

func samples(d time.Duration) int64 { return ticks.Count(d, rate) }

func length(n int64) time.Duration { return ticks.Duration(n, rate) }
