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
}

func (v *vocabulary) Recognizes() inference.Recognizes {
	return inference.Recognizes{Model: "vocabulary"}
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
	last := 0
	for _, v := range pcm {
		n := int(v*32768+0.5) / 10
		if n != last && n > 0 && n <= len(u.of.words) {
			out = append(out, u.of.words[n-1])
		}
		last = n
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

// modes are those in which orders act.
func modes() []string { return []string{settings.HearingOrders, settings.HearingAll} }

// hear plays the lines of several microphones, and returns the orders and the operator's refusals. Without captions, nothing that others
// say leaves the Ears.
func hear(t *testing.T, mode string, lines ...line) (orders, refused []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg := settings.DefaultHearing()
		cfg.Mode, cfg.Camera, cfg.Confirm = mode, true, false
		v := &vocabulary{}
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
		const piece = 20 * time.Millisecond
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
					Stream: 1, Media: 48 * now.Milliseconds(), Arrival: time.Now(), PCM: slices.Repeat([]int16{level}, 320),
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
			require.True(t, cfg.Captions() || s.mics[people[h.Identity].at].Instructs, "%v", h)
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
// No order of 40 is refused.
func TestOrdersInASharedRoom(t *testing.T) {
	t.Parallel()
	for i, text := range spokenOrders() {
		late := time.Duration(i%15-7) * 20 * time.Millisecond // -140 to 140 ms
		at := 3 * time.Second
		lines := []line{
			{identity: "operator", at: at, text: text},
			{identity: "ben", at: at + late, text: text, change: stranger},
			{identity: "far", at: at + 400*time.Millisecond, text: text, change: stranger},
			{identity: "camera", at: at + time.Second, text: text, change: camera},
		}
		switch i % 4 {
		case 1: // somebody speaks before the order, in the same breath
			lines[1].text = "what a lovely day " + text
			lines[1].at -= 4 * wordTime
		case 2: // and answers
			lines[1].text += " no do not"
		case 3: // and said much the same long before
			lines = append(lines, line{identity: "ben", at: 0, text: "hey touchline"})
		}
		for _, mode := range modes() {
			orders, refused := hear(t, mode, lines...)
			require.Len(t, orders, 1, "%s %d %s %v", mode, i, text, refused)
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
		for _, mode := range modes() {
			orders, refused := hear(t, mode,
				line{identity: "stranger", at: at, text: own, change: who},
				line{identity: "operator", at: 3*time.Second + late, text: text},
			)
			require.Empty(t, orders, "%s %d %s", mode, i, text)
			require.Len(t, refused, 1, "%s %d %s", mode, i, text)
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
		{"the microphone is gone", []line{
			{identity: "stranger", at: 3 * time.Second, text: order, change: func(m *agent.Microphone) { m.Instructs, m.Name = false, "leaves" }},
			{identity: "operator", at: 4500 * time.Millisecond, text: order},
		}, 0},
	}
	for _, tt := range tests {
		for _, mode := range modes() {
			orders, _ := hear(t, mode, tt.lines...)
			require.Len(t, orders, tt.orders, "%s: %s", mode, tt.name)
		}
	}
}
