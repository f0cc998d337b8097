package hearing

import (
	"math"
	"sync"
	"time"

	"touchline/agent"
)

// An open microphone hears the voice of the commentator from a loudspeaker. Text tells an echo from speech, but comes at the end;
// until then the loudness does: that of an echo follows the voice.
//
// The limits are from a trial with sentences of five synthetic voices: 150 echoes, 50 to 900 ms late, 10 to 25 dB lower, with
// reverberation and noise, and 150 people who speak while the voice does. After 300 ms of speech 98 % of the echoes are above
// echoLikeness; after 500 ms 90 % of the people have been below it, and after 800 ms 97 %. So speech like an echo leaves doubt
// (agent.FloorDoubtful), until it goes on otherwise or has a text. Doubt that was an echo tells its delay: from then on speech that
// is like an echo of that delay leaves none.
const (
	// levelStep is the time of a level.
	levelStep = 20 * time.Millisecond
	// keptLevels is how many are kept: five seconds.
	keptLevels = 256
	// compared is how many levels are compared at most, and fewest how many at least.
	compared, fewest = 75, 15
	// latestEcho is the delay of the latest echo.
	latestEcho = time.Second
	// echoLikeness is the least correlation of an echo's levels with those of the voice.
	echoLikeness = 0.82
	// levelRange is how far below the loudest level of a comparison others count, dB.
	levelRange = 30
	// silence is the least level, dB.
	silence = -90
)

// levels are the last of a sound, in dB.
type levels struct {
	list [keptLevels]float64
	end  int64
}

// set sets level n; those before it that were not set are silent.
func (l *levels) set(n int64, db float64) {
	for i := max(l.end, n-keptLevels+1); i < n; i++ {
		l.list[i%keptLevels] = silence
	}
	if n >= l.end {
		l.end = n + 1
		l.list[n%keptLevels] = db
	}
}

func (l *levels) at(n int64) float64 {
	if n < 0 || n >= l.end || n < l.end-keptLevels {
		return silence
	}
	return l.list[n%keptLevels]
}

// decibels returns the level of a mean square of samples from -1 to 1.
func decibels(square float64) float64 { return max(10*math.Log10(square+1e-12), silence) }

// voiceLevels are those of the commentator's voice, by time.
type voiceLevels struct {
	mu   sync.Mutex
	zero time.Time
	levels
}

// Voice takes 20 ms of the voice as it is sent, from a time.
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
	asked int64 // level up to which echoes answered
	late  int64 // the answer
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

// echoes reports whether what a microphone hears, from a sample of its session on, follows the voice, and how many levels late. zero
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
	heard := make([]float64, mic.end-first)
	for i := range heard {
		heard[i] = mic.at(first + int64(i))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	start := first + int64(math.Round(float64(zero.Sub(v.zero))/float64(levelStep)))
	said := make([]float64, len(heard))
	best := float64(echoLikeness)
	for late := range int64(latestEcho/levelStep) + 1 {
		for i := range said {
			said[i] = v.at(start - late + int64(i))
		}
		if c := correlation(heard, said); c >= best {
			best, mic.late, mic.echo = c, late, true
		}
	}
	return mic.late, mic.echo
}

// echoPath is the delay of the voice's echo in a microphone, where there is one.
type echoPath struct {
	late  int64 // levels, of the last speech like an echo
	known bool  // it was one
}

const (
	// pathSlack is how much the delay of an echo varies, in levels.
	pathSlack = 2
	// judgedIn bounds the doubt after the end of speech.
	judgedIn = 2 * time.Second
)

// is reports whether speech like an echo of a delay is one.
func (p echoPath) is(late int64) bool {
	return p.known && late >= p.late-pathSlack && late <= p.late+pathSlack
}

// follow decides whether a person who may instruct speaks, or the microphone hears the voice.
func (m *microphone) follow(now time.Time) {
	held := m.ears.talks(m.identity)
	m.mu.Lock()
	floor, start, zero, path := m.floor, m.start, m.zero, m.echo
	talks := m.inside && m.info.Instructs && m.fed-start >= samples(talksAfter)
	expired := floor == agent.FloorDoubtful && !m.inside && now.Sub(m.ended) > judgedIn
	m.mu.Unlock()
	if expired { // its text does not come
		m.judge(false)
	}
	if !talks || floor == agent.FloorTaken {
		return
	}
	late, echo := m.ears.voice.echoes(&m.levels, start, zero)
	switch {
	case !echo || held:
		floor = agent.FloorTaken
	case !path.is(late):
		floor = agent.FloorDoubtful
	default:
		return
	}
	m.mu.Lock()
	if m.inside {
		m.floor, m.took = floor, floor == agent.FloorTaken
		if echo {
			m.echo.late = late
		}
	}
	m.mu.Unlock()
	m.ears.takeFloor()
}

// judge ends the doubt about who spoke: a person, or the voice's echo.
func (m *microphone) judge(person bool) {
	m.mu.Lock()
	doubtful := m.floor == agent.FloorDoubtful
	switch {
	case person && !m.took:
		m.echo.known = false
	case doubtful && !person:
		m.echo.known = true
	}
	m.mu.Unlock()
	if doubtful && person {
		m.setFloor(agent.FloorTaken) // also if it is over by now
	}
	if doubtful {
		m.setFloor(agent.FloorFree)
	}
}

// setFloor says who speaks into the microphone.
func (m *microphone) setFloor(f agent.Floor) {
	m.mu.Lock()
	m.floor = f
	m.mu.Unlock()
	m.ears.takeFloor()
}

// correlation returns that of two lists of levels, 0 where either does not change.
func correlation(heard, said []float64) float64 {
	a, b := centre(heard), centre(said)
	var ab, aa, bb float64
	for i := range heard {
		x, y := a(heard[i]), b(said[i])
		ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
	}
	if aa < 1 || bb < 1 {
		return 0
	}
	return ab / math.Sqrt(aa*bb)
}

// centre returns what makes the mean of levels 0, within levelRange of the loudest.
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
