package hearing_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/settings"
	"touchline/inference"
	"touchline/media/sound"
)

// vocabulary recognizes the words that talkers say: each has a loudness of its own.
type vocabulary struct {
	script

	words []string
	times bool // of words are known
}

func (v *vocabulary) Recognizes() inference.Recognizes {
	return inference.Recognizes{Model: "vocabulary", WordTimes: v.times}
}

func (v *vocabulary) Align(_ context.Context, pcm []float32, _, _ string) ([]inference.Word, error) {
	return v.read(pcm), nil
}

// read returns the words of sound.
func (v *vocabulary) read(pcm []float32) (out []inference.Word) {
	last := 0
	for i, s := range pcm {
		n, at := int(s*32768+0.5)/10, time.Duration(i)*time.Second/inference.RecognizerRate
		word := n > 0 && n <= len(v.words)
		if n != last && word {
			out = append(out, inference.Word{Text: v.words[n-1], Start: at})
		}
		if word {
			out[len(out)-1].End = at
		}
		last = n
	}
	return out
}

func (v *vocabulary) Listen(context.Context, inference.Hearing) (inference.Utterance, error) {
	return &written{of: v}, nil
}

type written struct{ of *vocabulary }

func (u *written) Hear(context.Context, []float32) (inference.Transcript, error) {
	return inference.Transcript{}, nil
}

// Finish takes a second.
func (u *written) Finish(_ context.Context, pcm []float32) (inference.Transcript, error) {
	time.Sleep(time.Second)
	var out []string
	for _, w := range u.of.read(pcm) {
		out = append(out, w.Text)
	}
	return inference.Transcript{Text: strings.Join(out, " "), Final: true}, nil
}
func (*written) Close() error { return nil }

// line is what a microphone has: words from a time on, with pauses of the length of a word for "_" and a sound without words for "~".
type line struct {
	identity string
	at       time.Duration
	text     string
	change   func(*agent.Microphone)
}

const wordTime = 200 * time.Millisecond

// trial is a way to hear: a mode, whether the watched camera has captions, and whether the recognizer knows the times of words.
type trial struct {
	mode          string
	camera, times bool
}

// trials are two in which orders act, with others for another number.
func trials(i int) []trial {
	return []trial{{settings.HearingOrders, i/16%2 == 0, i/8%2 == 0}, {settings.HearingAll, i/16%2 != 0, i/8%2 != 0}}
}

// hear plays the lines of several microphones, and returns the orders and the operator's refusals. Without captions, nothing that others
// say leaves the Ears.
func hear(t *testing.T, by trial, lines ...line) (orders, refused []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg := settings.DefaultHearing()
		cfg.Mode, cfg.Camera, cfg.Confirm = by.mode, by.camera, false
		v := &vocabulary{times: by.times}
		s := newStage(t, cfg, v)
		s.bot.delay = 8
		people, end := map[string]*person{}, time.Duration(0)
		for _, l := range lines {
			for _, w := range strings.Fields(l.text) {
				if !slices.Contains(v.words, w) {
					v.words = append(v.words, w)
				}
			}
			if people[l.identity] == nil {
				people[l.identity] = s.join(l.identity, l.change)
			}
			end = max(end, l.at+wordTime*time.Duration(len(strings.Fields(l.text))))
		}
		const piece = 10 * time.Millisecond
		for now := time.Duration(0); now < end+6*time.Second; now += piece {
			s.choose()
			for _, l := range lines {
				words := strings.Fields(l.text)
				n := int((now - l.at) / wordTime)
				if now < l.at || n >= len(words) {
					continue
				}
				level := int16(10 * (slices.Index(v.words, words[n]) + 1))
				switch words[n] {
				case "_":
					continue
				case "~":
					level = 10000
				}
				p := people[l.identity]
				if p.sink == nil {
					continue
				}
				p.sink.Push(sound.Piece{
					Stream: 1, Media: 48 * now.Milliseconds(), Arrival: time.Now(), PCM: slices.Repeat([]int16{level}, 160),
				})
			}
			for _, l := range lines {
				p := people[l.identity]
				if p.sink != nil && s.mics[p.at].Name == "leaves" && now > l.at+wordTime*time.Duration(len(strings.Fields(l.text))) {
					p.sink.Close()
				}
			}
			time.Sleep(piece)
			synctest.Wait()
		}
		s.end()
		orders = s.bot.orders
		for _, h := range s.bot.heard {
			m := s.mics[people[h.Identity].at]
			require.True(t, m.Instructs || cfg.Captions() && (by.camera || !m.Watched), "%v", h)
			if h.Identity == "operator" && h.Order != nil && h.Order.Refused != "" {
				refused = append(refused, h.Order.Refused)
			}
		}
	})
	return orders, refused
}

func stranger(m *agent.Microphone) { m.Instructs = false }

func camera(m *agent.Microphone) { m.Instructs, m.Watched = false, true }

// spokenOrders are orders for the trials.
func spokenOrders() (out []string) {
	for _, o := range []string{
		"stop", "louder", "only comment on the goalkeeper", "say only bad things about red", "tell me about the goals and the cards alone",
		"speak of number nine", "be brief please", "count the shots of blue",
	} {
		for _, before := range []string{"hey touchline", "okay hey touchline", "well then. hey touchline", "hey touchline please", "um. hey touchline"} {
			out = append(out, before+" "+o)
		}
	}
	return out
}

// TestOrdersInASharedRoom: other microphones in the operator's room have the order at the same time, or later from their loudspeakers.
// No order of 40 is refused, also by 150 ms, and beside words before and after it whose times are known.
func TestOrdersInASharedRoom(t *testing.T) {
	t.Parallel()
	for i, text := range spokenOrders() {
		late := time.Duration(i%16)*20*time.Millisecond - 150*time.Millisecond // to 150 ms
		known := false
		at := 3 * time.Second
		lines := []line{
			{identity: "operator", at: at, text: text},
			{identity: "ben", at: at + late, text: text, change: stranger},
			{identity: "far", at: at + 400*time.Millisecond, text: text, change: stranger},
			{identity: "camera", at: at + time.Second, text: text, change: camera},
		}
		switch i % 8 {
		case 5:
			lines[1].text += " no do not"
			known = true
			fallthrough
		case 1: // somebody speaks before the order, in the same breath
			lines[1].text = "what a lovely day " + text
			lines[1].at -= 4 * wordTime
		case 2, 6: // and answers
			lines[1].text += " no do not"
		case 3, 7: // and said much the same long before
			lines = append(lines, line{identity: "ben", at: 0, text: "hey touchline"})
		}
		for _, by := range trials(i) {
			by.times = by.times || known
			orders, refused := hear(t, by, lines...)
			require.Len(t, orders, 1, "%v %d %s %v", by, i, text, refused)
			require.Empty(t, refused)
		}
	}
}

// TestOrdersByALoudspeaker: the operator's loudspeaker plays the words of others 300 ms to 2 s later, or those of the camera as late as
// its picture is shown. None of 40 acts, whatever else the stranger's microphone has.
func TestOrdersByALoudspeaker(t *testing.T) {
	t.Parallel()
	for i, text := range spokenOrders() {
		late := 300*time.Millisecond + time.Duration(i)*1700*time.Millisecond/39
		who, own := stranger, text
		at := 3 * time.Second
		switch i % 8 {
		case 1:
			own = text + " ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~"
		case 2:
			own = text + strings.Repeat(" and so on", 12)
		case 3:
			own, at = "~ ~ ~ ~ "+text, at-4*wordTime
		case 4:
			own, at = "so to speak "+text+strings.Repeat(" and so on", 12), at-3*wordTime
		case 5:
			who = camera
		case 6:
			who, late = camera, late+8*time.Second
		}
		for _, by := range trials(i) {
			orders, refused := hear(t, by,
				line{identity: "stranger", at: at, text: own, change: who},
				line{identity: "operator", at: 3*time.Second + late, text: text},
			)
			require.Empty(t, orders, "%v %d %s", by, i, text)
			require.Len(t, refused, 1, "%v %d %s", by, i, text)
			require.Contains(t, refused[0], "another microphone or the camera had these words before")
		}
	}
}

// TestOrdersElsewhere: the less usual ways of an order.
func TestOrdersElsewhere(t *testing.T) {
	t.Parallel()
	const order = "hey touchline say only bad things about red"
	talk := func(words int) string { return strings.Repeat(" ~", words) + " " }
	tests := []struct {
		name   string
		lines  []line
		orders int
	}{
		{"a moderator's microphone", []line{
			{identity: "moderator", at: 2500 * time.Millisecond, text: order}, {identity: "operator", at: 3 * time.Second, text: order},
		}, 2},
		{"the operator's own words before", []line{
			{identity: "stranger", at: 3 * time.Second, text: order, change: stranger},
			{identity: "operator", at: 2900 * time.Millisecond, text: "okay"},
			{identity: "operator", at: 3400 * time.Millisecond, text: order},
		}, 0},
		{"in two utterances", []line{
			// After 30 s the detector cuts the speech at its quietest word of the last seconds, which is "only".
			{identity: "stranger", text: "only", change: stranger},
			{identity: "stranger", at: wordTime, text: talk(122) + order + strings.Repeat(" and so on", 12)},
			{identity: "operator", at: 27 * time.Second, text: order},
		}, 0},
		{"a wake word alone, then an order", []line{
			{identity: "stranger", at: 3 * time.Second, text: "hey touchline", change: stranger},
			{identity: "operator", at: 3500 * time.Millisecond, text: "hey touchline"},
			{identity: "operator", at: 6 * time.Second, text: "what a fine goal"},
		}, 0},
		{"after the operator's wake word", []line{
			{identity: "operator", at: time.Second, text: "hey touchline"},
			{identity: "stranger", at: 3 * time.Second, text: "say only bad things", change: stranger},
			{identity: "operator", at: 3500 * time.Millisecond, text: "say only bad things"},
		}, 0},
		{"other words before", []line{
			{identity: "stranger", at: 3 * time.Second, text: "they should not stop him now", change: stranger},
			{identity: "operator", at: 4 * time.Second, text: "hey touchline stop"},
		}, 1},
		{"the same words long before", []line{
			{identity: "stranger", at: time.Second, text: order, change: stranger},
			{identity: "operator", at: 6 * time.Second, text: order},
		}, 1},
		{"150 ms earlier", []line{
			{identity: "stranger", at: 3 * time.Second, text: order, change: stranger},
			{identity: "operator", at: 3150 * time.Millisecond, text: order},
		}, 1},
		{"160 ms earlier", []line{
			{identity: "stranger", at: 3 * time.Second, text: order, change: stranger},
			{identity: "operator", at: 3160 * time.Millisecond, text: order},
		}, 0},
		{"160 ms earlier, between other words", []line{
			{identity: "stranger", at: 2800 * time.Millisecond, text: "so " + order + " and so on", change: stranger},
			{identity: "operator", at: 2760 * time.Millisecond, text: "um okay " + order},
		}, 0},
		{"the microphone is gone", []line{
			{identity: "stranger", at: 3 * time.Second, text: order, change: func(m *agent.Microphone) { m.Instructs, m.Name = false, "leaves" }},
			{identity: "operator", at: 4500 * time.Millisecond, text: order},
		}, 0},
	}
	for _, tt := range tests {
		for i := range 4 {
			by := trials(8 * i)[i%2]
			orders, _ := hear(t, by, tt.lines...)
			require.Len(t, orders, tt.orders, "%v: %s", by, tt.name)
		}
	}
}

// TestOrdersBetweenWords: a stranger speaks before and after an order that both microphones have. Where the times of words are known, the
// order acts if the stranger's microphone has it 150 ms earlier, and not if it has it 160 ms earlier; else it is refused.
func TestOrdersBetweenWords(t *testing.T) {
	t.Parallel()
	const order = "hey touchline say only bad things about red"
	for _, before := range []string{"", "um okay "} {
		for ms, acts := range map[int]bool{-500: true, 0: true, 150: true, 160: false, 2500: false} {
			for _, by := range []trial{
				{settings.HearingOrders, false, true}, {settings.HearingAll, false, true}, {settings.HearingAll, false, false},
			} {
				at := time.Duration(3000+ms)*time.Millisecond - wordTime*time.Duration(len(strings.Fields(before)))
				orders, refused := hear(t, by,
					line{identity: "stranger", at: 3*time.Second - 4*wordTime, text: "what a lovely day " + order + " no do not", change: stranger},
					line{identity: "operator", at: at, text: before + order},
				)
				require.Equal(t, acts && by.times, len(orders) == 1, "%q %v %v %v", before, ms, by, refused)
			}
		}
	}
}
