package hearing

import (
	"math"
	"sync"
	"time"

	"touchline/agent/speech"
)

// An open microphone picks up the commentator's voice from a loudspeaker. The text of an utterance shows whether it is an echo, but
// only at its end. Until then the loudness shows it: the loudness of an echo follows the voice.
//
// The limits come from a trial with sentences of five synthetic voices: 150 echoes, 50 to 900 ms late, 10 to 25 dB lower, with
// reverberation and noise, and 150 people speaking at the same time as the voice. After 300 ms of speech, 98 % of the echoes are above
// echoLikeness. After 500 ms, 90 % of the people have been below it, and after 800 ms 97 %. So speech that resembles an echo is
// doubtful (speech.FloorDoubtful) until it diverges or has a text. A confirmed echo gives its delay: later speech that resembles an echo
// with the same delay is treated as an echo at once.
const (
	// levelStep is the duration of one level.
	levelStep = 20 * time.Millisecond
	// maxLevels is the number of stored levels: five seconds.
	maxLevels = 256
	// compared is the most levels of a comparison, fewest the least.
	compared, fewest = 75, 15
	// latestEcho is the longest delay of an echo.
	latestEcho = time.Second
	// echoLikeness is the least correlation between the levels of an echo and the levels of the voice.
	echoLikeness = 0.82
	// levelRange is the range below the loudest level of a comparison in which levels count, in dB.
	levelRange = 30
	// silence is the lowest level, in dB.
	silence = -90
)

// levels are the latest levels of a sound, in dB.
type levels struct {
	list [maxLevels]float64
	end  int64
}

// set sets level n. Skipped levels before it become silent.
func (l *levels) set(n int64, db float64) {
	for i := max(l.end, n-maxLevels+1); i < n; i++ {
		l.list[i%maxLevels] = silence
	}
	if n >= l.end {
		l.end = n + 1
		l.list[n%maxLevels] = db
	}
}

func (l *levels) at(n int64) float64 {
	if n < 0 || n >= l.end || n < l.end-maxLevels {
		return silence
	}
	return l.list[n%maxLevels]
}

// decibels returns the level of a mean square of samples from -1 to 1.
func decibels(square float64) float64 { return max(10*math.Log10(square+1e-12), silence) }

// voiceLevels are the levels of the commentator's voice, numbered from the time zero.
type voiceLevels struct {
	mu   sync.Mutex
	zero time.Time
	levels
}

// Voice records 20 ms of the voice that is sent at a time.
func (e *Ears) Voice(pcm []int16, at time.Time) {
	sum := 0.0
	for _, v := range pcm {
		sum += float64(v) * float64(v)
	}
	v := &e.voice
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := at.Sub(v.zero); n >= 0 {
		v.set(int64(n/levelStep), decibels(sum/float64(max(1, len(pcm)))/(1<<30)))
	}
}

// ownLevels measures the sound of a microphone.
type ownLevels struct {
	levels

	sum   float64
	n     int
	asked int64 // level up to which echoes has compared
	late  int64 // its result
	echo  bool
}

func (l *ownLevels) add(sound []float32) {
	const whole = rate / 50 // samples of a level
	for _, v := range sound {
		l.sum += float64(v) * float64(v)
		if l.n++; l.n == whole {
			l.set(l.end, decibels(l.sum/whole))
			l.sum, l.n = 0, 0
		}
	}
}

// echoes reports whether the sound of a microphone, from a sample of its session on, follows the voice, and how many levels late. zero
// is the time of the session's first sample.
func (v *voiceLevels) echoes(mic *ownLevels, from int64, zero time.Time) (late int64, echo bool) {
	if mic.asked == mic.end {
		return mic.late, mic.echo
	}
	mic.asked, mic.late, mic.echo = mic.end, 0, false
	first := max(from/(rate/50), mic.end-compared, 0)
	if mic.end-first < fewest {
		return 0, false
	}
	received := make([]float64, mic.end-first)
	for i := range received {
		received[i] = mic.at(first + int64(i))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	start := first + int64(math.Round(float64(zero.Sub(v.zero))/float64(levelStep)))
	sent := make([]float64, len(received))
	best := float64(echoLikeness)
	for late := range int64(latestEcho/levelStep) + 1 {
		for i := range sent {
			sent[i] = v.at(start - late + int64(i))
		}
		if c := correlation(received, sent); c >= best {
			best, mic.late, mic.echo = c, late, true
		}
	}
	return mic.late, mic.echo
}

// echoPath is the delay of the voice's echo in a microphone.
type echoPath struct {
	late  int64 // of the last speech that resembled an echo, in levels
	known bool  // that speech was an echo
}

const (
	// pathSlack is how much the delay of an echo varies, in levels.
	pathSlack = 2
	// judgedIn bounds how long speech stays doubtful after its end.
	judgedIn = 2 * time.Second
)

// matches reports whether speech that resembles an echo with this delay is one.
func (p echoPath) matches(late int64) bool {
	return p.known && late >= p.late-pathSlack && late <= p.late+pathSlack
}

// follow decides whether an authorised person speaks or the microphone picks up the voice.
func (m *microphone) follow(now time.Time) {
	held := m.ears.talks(m.identity)
	m.mu.Lock()
	floor, start, zero, path := m.floor, m.start, m.zero, m.echo
	talks := m.inside && m.info.Instructs && m.fed-start >= samples(talksAfter)
	expired := floor == speech.FloorDoubtful && !m.inside && now.Sub(m.ended) > judgedIn
	m.mu.Unlock()
	if expired { // no text arrives
		m.judge(false)
	}
	if !talks || floor == speech.FloorTaken {
		return
	}
	late, echo := m.ears.voice.echoes(&m.levels, start, zero)
	switch {
	case !echo || held:
		floor = speech.FloorTaken
	case !path.matches(late):
		floor = speech.FloorDoubtful
	default:
		return
	}
	m.mu.Lock()
	if m.inside {
		m.floor, m.took = floor, floor == speech.FloorTaken
		if echo {
			m.echo.late = late
		}
	}
	m.mu.Unlock()
	m.ears.takeFloor()
}

// judge ends the doubt about whether a person spoke or the voice echoed.
func (m *microphone) judge(person bool) {
	m.mu.Lock()
	doubtful := m.floor == speech.FloorDoubtful
	switch {
	case person && !m.took:
		m.echo.known = false
	case doubtful && !person:
		m.echo.known = true
	}
	m.mu.Unlock()
	if doubtful && person {
		m.setFloor(speech.FloorTaken) // also if the speech is over
	}
	if doubtful {
		m.setFloor(speech.FloorFree)
	}
}

// setFloor sets whether a person speaks into the microphone.
func (m *microphone) setFloor(f speech.Floor) {
	m.mu.Lock()
	m.floor = f
	m.mu.Unlock()
	m.ears.takeFloor()
}

// correlation returns the correlation of two lists of levels, 0 if either is constant.
func correlation(received, sent []float64) float64 {
	a, b := centre(received), centre(sent)
	var ab, aa, bb float64
	for i := range received {
		x, y := a(received[i]), b(sent[i])
		ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
	}
	if aa < 1 || bb < 1 {
		return 0
	}
	return ab / math.Sqrt(aa*bb)
}

// centre returns a function that subtracts the mean of levels, counting levels within levelRange of the loudest.
func centre(list []float64) func(float64) float64 {
	loudest := float64(silence)
	for _, v := range list {
		loudest = max(loudest, v)
	}
	least, sum := loudest-levelRange, 0.0
	for _, v := range list {
		sum += max(v, least)
	}
	mean := sum / float64(len(list))
	return func(v float64) float64 { return max(v, least) - mean }
}
