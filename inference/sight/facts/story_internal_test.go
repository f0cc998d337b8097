package facts

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
)

// stays tells a person who walks in after 4 s and stays for five minutes, in boxes that shake and sometimes fail, while others pass in
// front. wears is what that person wears in a look. It returns the sentences that have one of the texts, by it: each is told once.
func stays(t *testing.T, w *Watcher, noise *rand.Rand, o TellOptions, wears func() string, texts ...string) map[string]string {
	t.Helper()
	shake := func() float64 { return (noise.Float64() - 0.5) * 0.006 }
	said := map[string]string{}
	for i := range 800 {
		now := time.Duration(i) * 400 * time.Millisecond
		l := Look{PTS: now}
		if at := now - 4*time.Second; at > 0 && noise.IntN(20) > 0 {
			b := walker(min(0.09*at.Seconds(), 0.45)+shake(), 0, 0)
			b.Y0, b.Y1 = b.Y0+float32(shake()), b.Y1+float32(shake())
			l.Boxes = append(l.Boxes, b)
		}
		if passes := now % (40 * time.Second); passes >= 20*time.Second {
			b := walker(1, -0.09, passes-20*time.Second)
			b.Y0, b.Y1 = 0.65, 0.95
			l.Boxes = append(l.Boxes, b)
		}
		w.push(l, func(a area) string {
			if a.y1 < 0.8 {
				return wears()
			}
			return ""
		})
		told := w.Tell(o).Text
		for _, text := range texts {
			if strings.Contains(told, text) {
				require.NotContains(t, said, text, told)
				said[text] = told
			}
		}
	}
	return said
}

// TestStory: a person who was told by a colour that nobody else wears is named by it, and how long they stay is told.
func TestStory(t *testing.T) {
	for seed := range uint64(5) {
		noise := rand.New(rand.NewPCG(seed, 3))
		blue := func() string {
			if noise.IntN(10) == 0 { // not all looks agree
				return ""
			}
			return "blue"
		}
		times := []string{"ten seconds", "30 seconds", "two minutes", "five minutes"}
		story := stays(t, newTestWatcher(seed), noise, TellOptions{MaxSentences: 1}, blue, times...)
		for _, lasts := range times {
			require.Regexp(t, `(?i)\bthe person in blue\b`, story[lasts])
		}
	}
}

// TestStoryInAZone: where somebody stands has the name of the zone, if it is one zone alone.
func TestStoryInAZone(t *testing.T) {
	around := func(name string, x float64) inference.Region {
		return inference.Region{Name: name, Corners: [][2]float64{{x - 0.1, 0.6}, {x + 0.1, 0.6}, {x + 0.1, 0.85}, {x - 0.1, 0.85}}}
	}
	up := inference.Region{Name: "gate", Line: true, Corners: [][2]float64{{0.3, 0.9}, {0.3, 0.5}}}
	down := inference.Region{Name: "fence", Line: true, Corners: [][2]float64{{0.3, 0.5}, {0.3, 0.9}}}
	places := map[string][2]string{
		"en": {"at the door", "in the middle"}, "de": {"im Bereich door", "in der Mitte"},
		"es": {"en la zona door", "en el centro"}, "fr": {"dans la zone door", "au centre"},
	}
	minutes := map[string]string{"en": "two minutes", "de": "zwei Minuten", "es": "dos minutos", "fr": "deux minutes"}
	for _, tag := range Languages() {
		for _, c := range []struct {
			regions []inference.Region
			place   string
		}{
			{[]inference.Region{around("door", 0.45), around("yard", 0.8), up, down}, places[tag][0]},
			{[]inference.Region{around("door", 0.45), around("yard", 0.47)}, places[tag][1]},
			{[]inference.Region{around("yard", 0.8)}, places[tag][1]},
		} {
			w := newTestWatcher(1)
			w.SetRegions(c.regions)
			noise := rand.New(rand.NewPCG(1, 3))
			blue := func() string { return "blue" }
			story := stays(t, w, noise, TellOptions{Language: tag, MaxSentences: 1}, blue, minutes[tag])
			require.Contains(t, strings.ToLower(story[minutes[tag]]), strings.ToLower(c.place), tag)
		}
	}
}
