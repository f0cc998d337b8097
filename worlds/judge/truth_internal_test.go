package judge

import (
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/window"
	"touchline/worlds"
	"touchline/worlds/claims"
	"touchline/worlds/train/words"
	"touchline/worlds/yard"
)

// Raw pictures are scaled without a change of colour, also between bars.
func TestPictures(t *testing.T) {
	t.Parallel()
	const w, h = 64, 36
	grey := make([]byte, w*h*3/2)
	for i := range grey {
		grey[i] = 126 // of luma 16 to 235; of chroma almost none
	}
	pix := shrink(grey, w, h, 28, 16)
	require.Len(t, pix, 28*16*3)
	for _, v := range pix {
		require.InDelta(t, 128, v, 5)
	}
	out := boxed([]window.Frame{{VideoFrame: media.VideoFrame{Width: 28, Height: 16, Pix: pix}}}, 50)[0]
	require.Zero(t, out.Pix[0])
	require.Equal(t, pix[0], out.Pix[(8*28+14)*3])
	require.NotZero(t, out.Epoch, "another picture than the one without bars")
}

// Strange pictures differ, and files are scaled to fit.
func TestStrangers(t *testing.T) {
	t.Parallel()
	for n := range 10 {
		f := stranger(n, 112, 62)
		require.Len(t, f.Pix, 112*62*3)
		require.NotEqual(t, f.Pix, stranger(n+1, 112, 62).Pix)
		require.Equal(t, f.Pix, stranger(n, 112, 62).Pix)
	}
	img := image.NewRGBA(image.Rect(0, 0, 40, 30))
	for i := range 40 * 30 {
		img.Set(i%40, i/40, color.RGBA{R: 200, G: 100, B: 50, A: 255})
	}
	dir := t.TempDir()
	file, err := os.Create(filepath.Join(dir, "a.png"))
	require.NoError(t, err)
	require.NoError(t, png.Encode(file, img))
	require.NoError(t, file.Close())
	all, err := readPictures(dir, 16, 10)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, []byte{200, 100, 50}, all[0].Pix[:3])
}

// ask finds a moment in a film, and prepares the film for orders.
func ask(t *testing.T, world string, fits func(worlds.Truth) bool) (*viewing, time.Duration) {
	t.Helper()
	for seed := uint64(1); seed < 30; seed++ {
		w, err := worlds.New(worlds.Options{World: world, Seed: seed})
		require.NoError(t, err)
		v := &viewing{world: w, language: "en", topics: topics(world), length: 10 * time.Minute, followed: map[string]claims.Share{}}
		for at := 10 * time.Second; at < v.length; at += 200 * time.Millisecond {
			if fits(w.Truth(at)) {
				return v, at
			}
		}
	}
	require.FailNow(t, "no such moment")
	return nil, 0
}

// Answers are judged by what the order asked for and by the truth.
func TestFollows(t *testing.T) {
	t.Parallel()
	v, at := ask(t, worlds.Match, func(x worlds.Truth) bool {
		return x.Match.Score[0] == 1 && x.Match.Score[1] == 0 && x.Match.Live && x.Match.Phase == "play" && x.Match.Since > 2 && x.Match.Attempt == nil
	})
	x := v.world.Truth(at).Match
	has, other := x.Teams[*x.Possession], x.Teams[1-*x.Possession]
	tests := []struct {
		kind, answer string
		want         bool
	}{
		{"q_score", "It's one-nil.", true},
		{"q_score", "It's two-nil.", false},
		{"q_score", "...", false},
		{"q_score", has + " have the ball.", false},
		{"q_leads", x.Teams[0] + " are in front.", true},
		{"q_leads", x.Teams[1] + " are in front.", false},
		{"q_goals", "One goal so far.", true},
		{"q_ball", has + " have it.", true},
		{"q_ball", other + " have it.", false},
		{"goals", "...", true},
		{"goals", has + " have the ball.", false},
		{"cannot", "I can't see that.", true},
		{"cannot", "...", false},
		{"quiet", "...", true},
		{"quiet", has + " have the ball.", false},
		{"short", has + " have it.", true},
		{"all", "I can't see that.", false},
	}
	for _, tt := range tests {
		require.Equal(t, tt.want, v.follows(order{kind: tt.kind}, tt.answer, at), "%s: %s", tt.kind, tt.answer)
	}
	require.True(t, v.follows(order{kind: "team", team: "nobody"}, "...", at))
	require.False(t, v.follows(order{kind: "team", team: "nobody"}, has+" have the ball.", at))
}

func TestFollowsInTheYard(t *testing.T) {
	t.Parallel()
	v, at := ask(t, worlds.Yard, func(x worlds.Truth) bool {
		return len(x.Yard.People) == 1 && x.Yard.People[0].Place == "door" && x.Yard.People[0].Doing == "standing"
	})
	coat := v.world.Truth(at).Yard.People[0].Coat
	for _, tt := range []struct {
		kind, answer string
		want         bool
	}{
		{"q_door", "Someone in " + coat + ".", true},
		{"q_door", "Nobody.", false},
		{"q_gate", "Nobody.", true},
		{"q_gate", "Someone in " + coat + ".", false},
		{"q_people", "There is one person in the yard.", true},
		{"q_people", "Nobody is there.", false},
		{"q_coat", "The " + coat + " coat is at the door.", true},
		{"q_coat", "I can't see that.", false},
		{"q_coat", "...", false},
	} {
		require.Equal(t, tt.want, v.follows(order{kind: tt.kind, colour: coat}, tt.answer, at), "%s: %s", tt.kind, tt.answer)
	}
}

// Danger is told once the ball is plainly in the box, and a rule may fire for what any picture of the look shows.
func TestWhatShows(t *testing.T) {
	t.Parallel()
	ball := func(lo, hi float64) func(worlds.Truth) bool {
		return func(x worlds.Truth) bool {
			at := x.Match.Pitch[0]
			if x.Match.Direction < 0 {
				at = 105 - at
			}
			return x.Match.Live && x.Match.Phase == "play" && x.Match.Since > 1.5 && at > lo && at < hi
		}
	}
	v, at := ask(t, worlds.Match, ball(77, 79))
	require.True(t, v.follows(order{kind: "danger"}, "...", at), "hardly there")
	v, at = ask(t, worlds.Match, ball(84, 95))
	require.False(t, v.follows(order{kind: "danger"}, "...", at))

	someone := func(x worlds.Truth) bool { return len(x.Yard.People) > 0 }
	v, at = ask(t, worlds.Yard, func(x worlds.Truth) bool { return someone(x) && x.Yard.People[0].Place == "path" })
	for someone(v.world.Truth(at)) {
		at += 200 * time.Millisecond
	}
	v.cfg.Agent.Frames, v.cfg.Agent.Stride, v.cfg.Media.CaptureFPS = 4, 3, 5
	people := func(at time.Duration) bool { return slices.ContainsFunc(v.shown(at), someone) }
	require.True(t, people(at+1500*time.Millisecond))
	require.False(t, people(at+1900*time.Millisecond))
}

// Silence is wrong while an event of the order shows plainly, and only then.
func TestMaySilent(t *testing.T) {
	t.Parallel()
	v, _ := ask(t, worlds.Yard, func(worlds.Truth) bool { return true })
	event := func(fits func(yard.Event) bool) time.Duration {
		for _, e := range v.world.Events(10*time.Second, 2*time.Hour) {
			alone := len(v.happened("people", "", e.At()-6*time.Second, e.At()+6*time.Second)) <= 1
			if alone && len(v.happened("light", "", e.At()-6*time.Second, e.At()+6*time.Second)) <= 1 && fits(*e.Yard) {
				return e.At()
			}
		}
		require.FailNow(t, "no such event")
		return 0
	}
	silent := func(kind string, at time.Duration) bool { return v.follows(order{kind: kind}, "...", at) }
	car := event(func(e yard.Event) bool { return e.Kind == yard.Arrive && e.Place == "parking" })
	require.True(t, silent("coming", car+700*time.Millisecond), "getting in or out")
	require.False(t, silent("coming", car+1500*time.Millisecond))
	require.True(t, silent("going", car+1500*time.Millisecond))
	gate := event(func(e yard.Event) bool { return e.Kind == yard.Arrive && e.Place == "gate" })
	require.False(t, silent("coming", gate+700*time.Millisecond))

	fails := event(func(e yard.Event) bool { return e.Kind == yard.LampFails }) + 800*time.Millisecond
	require.False(t, silent("light", fails))
	require.False(t, silent("lamp_fails", fails))
	require.True(t, silent("dusk", fails))
	require.True(t, silent("lamp_on", fails))
}

// Every kind of order is known, and every text is filled.
func TestSchedule(t *testing.T) {
	t.Parallel()
	for _, world := range worlds.Worlds() {
		for _, language := range []string{"en", "es"} {
			v, _ := ask(t, world, func(worlds.Truth) bool { return true })
			var err error
			v.book, err = words.Open(world, language)
			require.NoError(t, err)
			v.slots.spanish = language == "es"
			c := &Command{Orders: 4, Seeds: 2, Letterbox: 10, Alerts: true}
			c.schedule(v)
			boxed := 0
			if world == worlds.Match {
				boxed = 2 * c.Orders / c.Seeds
			}
			require.Len(t, v.orders, 2*len(v.book.Kinds())+boxed)
			for i, o := range v.orders {
				require.NotContains(t, o.text, "{")
				require.True(t, i == 0 || o.at >= v.orders[i-1].at)
				if _, known := v.topics[o.kind]; !known {
					require.Contains(t, []string{"all", "short", "calm", "boil", "quiet", "cannot", "nodog", "nocat"}, o.kind)
				}
			}
			require.GreaterOrEqual(t, len(c.newAlerts(v).kinds), 7)
		}
	}
}
