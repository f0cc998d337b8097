// Package match is a generated football match: its script, its pictures, its sound, and the truth
// about them.
//
// A seed determines the match. Everything is a function of time alone: any moment can be drawn
// without the moments before it. The package keeps no time and paints into buffers of others.
package match

import (
	"bytes"
	"compress/flate"
	"errors"
	"io"
	"time"

	"touchline/worlds/paint"
)

// Match is one match. It is not safe for concurrent use.
type Match struct {
	width, height int
	seed          uint64

	team         [figures]footballer
	kits         [2]kit
	fans         []spectator
	shift        int64  // of the clock, s
	goals, shots [2]int // added to the displayed numbers

	script *script
	packed map[Shot][]byte // the static background of each shot, unlit, compressed
	lit    litScene        // the last one
}

// litScene is a shot's background under the current lights.
type litScene struct {
	shot  Shot
	light paint.Light
	pix   []byte
}

// New makes a match for pictures of the given even size. In a still match nothing ever moves,
// except the match clock. It draws nothing yet.
func New(seed uint64, width, height int, still bool) *Match {
	all := kits()
	m := &Match{
		width: width, height: height, seed: seed,
		team: lineUp(seed), kits: all[int(paint.Chance(seed, 3, 1)*float64(len(all)))],
		packed: map[Shot][]byte{},
	}
	m.script = newScript(seed, still, &m.team, [2]string{m.kits[0].name, m.kits[1].name})
	m.fans = m.spectators()
	return m
}

// Hurry makes free kicks more frequent, and lets all players of the attack shoot equally often. Training pictures use it to show rare
// events. Call it first.
func (m *Match) Hurry() { m.script.busy = true }

// ShiftClock advances the clock on the board by a time, within the half and while it runs, and
// nothing else. Training pictures use it to show other times than the play's.
func (m *Match) ShiftClock(by time.Duration) { m.shift = int64(max(0, by) / time.Second) }

// ShiftScore adds to the displayed goals and shots of both teams, and changes nothing else; a sum
// stays within 0 and 9 for goals, 99 for shots. Training pictures use it to show rare scores.
func (m *Match) ShiftScore(goals, shots [2]int) { m.goals, m.shots = goals, shots }

// scoreAt returns the displayed score.
func (m *Match) scoreAt(t int64) [2]int { return shifted(m.script.scoreAt(t), m.goals, mostGoals) }

// shotsAt returns the displayed number of shots.
func (m *Match) shotsAt(t int64) [2]int { return shifted(m.script.shotsAt(t), m.shots, mostShots) }

func shifted(n, by [2]int, most int) [2]int {
	for i := range n {
		n[i] = max(0, min(most, n[i]+by[i]))
	}
	return n
}

// Draw paints the picture of a moment.
func (m *Match) Draw(at time.Duration, c *paint.Canvas) {
	t := at.Milliseconds()
	m.script.until(t)
	now := m.script.showing(t)
	c.Light = now.light
	c.Copy(m.background(now.shot, now.light))
	if now.shot == ShotCrowd {
		m.drawCrowd(c, t)
	} else {
		m.drawPlay(c, now.shot, now.moment)
	}
	c.Light = paint.Daylight() // graphics are laid over, without the lamps
	switch {
	case now.live:
		m.overlay(c, t)
	case now.shot != ShotCrowd:
		m.sign(c)
	}
	m.board(c, t)
}

// Prepare paints background n before its first use. It reports whether there is one.
func (m *Match) Prepare(n int) bool {
	if n < 0 || n > int(ShotReplayRight) {
		return false
	}
	m.background(Shot(n), paint.Daylight())
	return true
}

// background returns a shot's static part under the lights. It is valid until the next call.
func (m *Match) background(s Shot, l paint.Light) []byte {
	if m.lit.pix != nil && m.lit.shot == s && m.lit.light == l {
		return m.lit.pix
	}
	if packed, ok := m.packed[s]; !ok || !unpack(m.lit.pix, packed) {
		m.lit.pix = m.bake(s)
		m.packed[s] = pack(m.lit.pix)
	}
	m.lit.shot, m.lit.light = s, l
	if l != paint.Daylight() {
		l.Relight(m.lit.pix, m.lit.pix, m.width, m.height)
	}
	return m.lit.pix
}

// pack compresses a background. All six of 1280x720 need 0.7 instead of 8.3 MB.
func pack(pix []byte) []byte {
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestSpeed)
	if err == nil {
		_, err = w.Write(pix)
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		return nil // painted anew each time
	}
	return bytes.Clone(out.Bytes())
}

// unpack decompresses a background of dst's size, in 2 to 4 ms for 1280x720; painting it needs 140 to 240 ms.
func unpack(dst, packed []byte) bool {
	_, err := io.ReadFull(flate.NewReader(bytes.NewReader(packed)), dst)
	return err == nil
}
