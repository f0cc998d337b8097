//go:build integration

package scene_test

import (
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/scene"
	"touchline/worlds"
	"touchline/worlds/match"
)

// The pictures are encoded at a low rate, decoded, sampled at 5 a second and
// scaled to 448 pixels, as in the bot.
const (
	clipWidth, clipHeight, clipFPS = 640, 360, 10
	seenWidth, seenHeight, seenFPS = 448, 252, 5
	seenEvery                      = time.Second / seenFPS
)

// encode renders and encodes a world.
func encode(tb testing.TB, o worlds.Options, length time.Duration, encoder, file string) {
	tb.Helper()
	o.Width, o.Height, o.FPS = clipWidth, clipHeight, clipFPS
	w, err := worlds.New(o)
	require.NoError(tb, err)
	args := fmt.Sprintf("-hide_banner -loglevel error -y -f rawvideo -pix_fmt yuv420p -s %dx%d -r %d -i - -g 60 %s %s",
		clipWidth, clipHeight, clipFPS, encoder, file)
	cmd := exec.CommandContext(tb.Context(), "ffmpeg", strings.Fields(args)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	in, err := cmd.StdinPipe()
	require.NoError(tb, err)
	require.NoError(tb, cmd.Start())
	buf := make([]byte, w.I420Size())
	for n := uint32(0); w.PTS(n) < length; n++ {
		require.NoError(tb, w.Render(n, buf))
		_, err = in.Write(buf)
		require.NoError(tb, err)
	}
	require.NoError(tb, in.Close())
	require.NoError(tb, cmd.Wait(), errs.String())
}

// decode calls see for every sampled picture of a clip.
func decode(tb testing.TB, file string, see func(inference.Frame)) {
	tb.Helper()
	args := fmt.Sprintf("-hide_banner -loglevel error -i %s -vf select=not(mod(n\\,%d)),scale=%d:%d:flags=area "+
		"-vsync passthrough -pix_fmt rgb24 -f rawvideo -", file, clipFPS/seenFPS, seenWidth, seenHeight)
	cmd := exec.CommandContext(tb.Context(), "ffmpeg", strings.Fields(args)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	require.NoError(tb, err)
	require.NoError(tb, cmd.Start())
	for i := 0; ; i++ {
		pix := make([]byte, seenWidth*seenHeight*3)
		if _, err := io.ReadFull(out, pix); err != nil {
			require.ErrorIs(tb, err, io.EOF)
			break
		}
		see(inference.Frame{PTS: time.Duration(i) * seenEvery, Width: seenWidth, Height: seenHeight, Pix: pix})
	}
	require.NoError(tb, cmd.Wait(), errs.String())
}

// said is a statement with the time of its sentence.
type said struct {
	scene.Statement
	by time.Duration
}

// listen observes every picture and prompts the session twice a second.
func listen(tb testing.TB, file string) (all []said, texts []string) {
	tb.Helper()
	session := newSession(tb)
	next := time.Duration(0)
	decode(tb, file, func(f inference.Frame) {
		session.Observe(f)
		if f.PTS < next {
			return
		}
		next += 500 * time.Millisecond
		text := generate(tb, session, inference.Prompt{Frames: []inference.Frame{f}})
		texts = append(texts, text)
		for _, s := range session.Said() {
			all = append(all, said{s, f.PTS})
		}
		require.Equal(tb, text == inference.Silence, len(session.Said()) == 0)
	})
	return all, texts
}

// score compares the statements with the events.
type score struct {
	events, heard    map[match.Kind]int
	statements, true int
	wrong            []string
}

func (s *score) add(w *worlds.World, length time.Duration, all []said) {
	if s.events == nil {
		s.events, s.heard = map[match.Kind]int{}, map[match.Kind]int{}
	}
	const soon = 2 * time.Second
	for _, event := range w.Events(0, length-soon) {
		e := event.Match
		var kinds []scene.Kind
		switch e.Kind {
		case match.Cut:
			kinds = []scene.Kind{scene.Cut}
		case match.Goal:
			kinds = []scene.Kind{scene.Flash, scene.Graphic}
		case match.Turn:
			kinds = []scene.Kind{scene.Turn}
		case match.Dim:
			kinds = []scene.Kind{scene.Darker}
		case match.Brighten:
			kinds = []scene.Kind{scene.Brighter}
		case match.Tint:
			kinds = []scene.Kind{scene.Colour}
		case match.StillStart:
			kinds = []scene.Kind{scene.Stop}
		case match.StillEnd:
			kinds = []scene.Kind{scene.Start, scene.Motion}
		default: // players and ball; a new view is a cut
			continue
		}
		s.events[e.Kind]++
		found := false
		for _, x := range all {
			for _, k := range kinds {
				ok := x.Kind == k && x.At >= e.At && x.by <= e.At+soon
				if e.Kind == match.Turn {
					ok = ok && x.Direction.String() == e.Direction.String()
				}
				found = found || ok
			}
		}
		if found {
			s.heard[e.Kind]++
		} else {
			s.wrong = append(s.wrong, fmt.Sprintf("unsaid: %s at %v", e.Text, e.At))
		}
	}
	for _, x := range all {
		s.statements++
		if why := lie(w, x.Statement); why != "" {
			s.wrong = append(s.wrong, fmt.Sprintf("untrue: %s %s %s %s at %v: %s", x.Kind, x.Direction, x.Pace, x.Where, x.At, why))
		} else {
			s.true++
		}
	}
}

// lie returns what is false in a statement, "" for a true one.
func lie(w *worlds.World, s scene.Statement) string {
	within := func(k match.Kind, before time.Duration) *match.Event {
		for _, e := range w.Events(max(0, s.At-before), s.At+1) {
			if e.Match.Kind == k {
				return e.Match
			}
		}
		return nil
	}
	const settle = 2 * time.Second
	switch s.Kind {
	case scene.Flash:
		if within(match.Goal, 500*time.Millisecond) == nil {
			return "no flash"
		}
	case scene.Graphic:
		if !w.Truth(s.At).Match.Banner {
			return "no banner"
		}
	case scene.Cut:
		if within(match.Cut, 450*time.Millisecond) == nil {
			return "no cut"
		}
	case scene.Darker:
		if within(match.Dim, settle) == nil {
			return "not dimmed"
		}
	case scene.Brighter:
		if within(match.Brighten, settle) == nil {
			return "not brightened"
		}
	case scene.Colour:
		e := within(match.Tint, settle)
		if e == nil {
			return "colour did not change"
		}
		if !strings.HasSuffix(e.Text, "white again") && !strings.HasSuffix(e.Text, s.Hue) {
			return "said " + s.Hue + ", but " + e.Text
		}
	case scene.Stop:
		// The ball, a keeper and small graphics may move while the players stand.
		if t := w.Truth(s.At).Match; !t.Still && (t.Speed > 0.001 || t.Flash > 0 || t.Camera == match.ShotCrowd) {
			return "not still"
		}
	case scene.Turn:
		e := within(match.Turn, settle)
		if e == nil { // after a save or a shot wide it goes the other way after a short stand
			e = within(match.StillEnd, settle)
		}
		if e == nil || e.Direction.String() != s.Direction.String() {
			return "no such turn"
		}
		return falseMotion(w, s)
	case scene.Start:
		if !w.Truth(max(0, s.At-settle)).Match.Still && !w.Truth(max(0, s.At-settle/2)).Match.Still {
			return "it was not still before"
		}
		return falseMotion(w, s)
	case scene.Motion:
		return falseMotion(w, s)
	}
	return ""
}

// falseMotion compares direction, pace and place with the true figures of the
// analyzer's window.
func falseMotion(w *worlds.World, s scene.Statement) string {
	why := ""
	for _, ago := range []time.Duration{0, 200 * time.Millisecond, 400 * time.Millisecond} {
		t := w.Truth(max(0, s.At-ago)).Match
		columns := [3]float64{}
		for i, share := range t.Regions {
			columns[i%3] += share
		}
		switch {
		case t.Flow.String() != s.Direction.String():
			why = fmt.Sprintf("flow is %s", t.Flow)
		case s.Pace == scene.Slow && t.Speed > 1.5*scene.BriskFrom,
			s.Pace == scene.Brisk && (t.Speed < scene.BriskFrom/1.5 || t.Speed > 1.5*scene.FastFrom),
			s.Pace == scene.Fast && t.Speed < scene.FastFrom/1.5:
			why = fmt.Sprintf("speed is %.3f, said %.3f", t.Speed, s.Speed)
		case s.Where != scene.Across && columns[s.Where-scene.LeftSide] < 0.4:
			why = fmt.Sprintf("columns are %.2f", columns)
		default:
			return ""
		}
	}
	return why
}

// The thresholds were tuned on seeds 1 to 10.
func TestSaysWhatHappensInUnseenWorlds(t *testing.T) {
	tests := []struct {
		seed    uint64
		encoder string
		length  time.Duration
	}{
		{40961, h264, 120 * time.Second},
		{5550123, vp8, 60 * time.Second},
		{8191, h264, 120 * time.Second},
	}
	var sum score
	var mu sync.Mutex
	t.Run("worlds", func(t *testing.T) {
		for _, tt := range tests {
			t.Run(strconv.FormatUint(tt.seed, 10), func(t *testing.T) {
				t.Parallel()
				file := filepath.Join(t.TempDir(), "clip.mkv")
				encode(t, worlds.Options{Seed: tt.seed}, tt.length, tt.encoder, file)
				w, err := worlds.New(worlds.Options{Seed: tt.seed})
				require.NoError(t, err)
				all, _ := listen(t, file)
				mu.Lock()
				defer mu.Unlock()
				sum.add(w, tt.length, all)
			})
		}
	})
	for _, line := range sum.wrong {
		t.Log(line)
	}
	events, heard := 0, 0
	for k := range sum.events {
		t.Logf("%s: %d of %d said within 2 s", k, sum.heard[k], sum.events[k])
	}
	for _, k := range []match.Kind{match.Goal, match.Cut, match.Turn} {
		require.Positive(t, sum.events[k])
		require.GreaterOrEqual(t, 10*sum.heard[k], 9*sum.events[k], "%s", k)
		events, heard = events+sum.events[k], heard+sum.heard[k]
	}
	t.Logf("goals, cuts and turns: %d of %d said within 2 s; true statements: %d of %d", heard, events, sum.true, sum.statements)
	require.GreaterOrEqual(t, 100*sum.true, 95*sum.statements)
	require.Greater(t, sum.statements, events/2)
}

// Two low rates, as on a weak connection.
const (
	h264 = "-c:v libx264 -b:v 250k -maxrate 250k -bufsize 125k -preset ultrafast -tune zerolatency"
	vp8  = "-c:v libvpx -b:v 300k -deadline realtime -cpu-used 16 -threads 2"
)

func TestStillSceneIsSilent(t *testing.T) {
	for name, encoder := range map[string]string{"H264": h264, "VP8": vp8, "H264 very low": strings.ReplaceAll(h264, "250k", "60k")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "clip.mkv")
			encode(t, worlds.Options{Seed: 40961, Still: true}, 24*time.Second, encoder, file)
			_, texts := listen(t, file)
			require.Len(t, texts, 48)
			for i, text := range texts {
				require.Equal(t, inference.Silence, text, "answer %d", i)
			}
		})
	}
}
