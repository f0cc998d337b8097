package subtitle_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/internal/subtitle"
)

const ms = time.Millisecond

// TestHostileText: text cannot become a tag, a line of times, an empty line or a control character.
func TestHostileText(t *testing.T) {
	cues := []subtitle.Cue{
		{2 * time.Second, 3 * time.Second, []string{"<b>bold</b> {\\an8}", "00:00:01,000 --> 00:00:02,000"}},
		{0, time.Second, []string{"a\x00b\x1b[31m\rc\u2028d", " ", "R&D \xff"}},
		{4 * time.Second, 5 * time.Second, []string{"", "\n"}},
	}
	var srt, vtt strings.Builder
	require.NoError(t, subtitle.WriteSRT(&srt, cues))
	require.NoError(t, subtitle.WriteVTT(&vtt, cues))
	require.Equal(t, "1\n00:00:00,000 --> 00:00:01,000\nab[31m c d\nR&D \uFFFD\n\n"+
		"2\n00:00:02,000 --> 00:00:03,000\n<\u2060b>bold<\u2060/b> {\u2060\\an8}\n00:00:01,000 --\u2060> 00:00:02,000\n\n", srt.String())
	require.Equal(t, "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\nab[31m c d\nR&amp;D \uFFFD\n\n"+
		"00:00:02.000 --> 00:00:03.000\n&lt;b&gt;bold&lt;/b&gt; {\\an8}\n00:00:01,000 --&gt; 00:00:02,000\n\n", vtt.String())
}

// TestTimes: cues are in order, none is shorter than a player shows, and no text is lost.
func TestTimes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	times := regexp.MustCompile(`(\d+):(\d\d):(\d\d),(\d{3}) --> (\d+):(\d\d):(\d\d),(\d{3})`)
	for range 300 {
		var cues []subtitle.Cue
		for i := range 1 + random.IntN(12) {
			start := time.Duration(random.IntN(20)-2) * 100 * ms
			cues = append(cues, subtitle.Cue{start, start + time.Duration(random.IntN(10)-3)*60*ms, []string{fmt.Sprintf("text %d.", i)}})
		}
		var out strings.Builder
		require.NoError(t, subtitle.WriteSRT(&out, cues))
		for i := range cues {
			require.Equal(t, 1, strings.Count(out.String(), fmt.Sprintf("text %d.", i)), out.String())
		}
		last := -time.Second
		for _, m := range times.FindAllStringSubmatch(out.String(), -1) {
			var at [2]time.Duration
			for k := range at {
				var h, m60, s, milli int
				_, err := fmt.Sscan(strings.Join(m[1+4*k:5+4*k], " "), &h, &m60, &s, &milli)
				require.NoError(t, err)
				at[k] = time.Duration(h)*time.Hour + time.Duration(m60)*time.Minute + time.Duration(s)*time.Second + time.Duration(milli)*ms
			}
			require.GreaterOrEqual(t, at[0], last, out.String())
			require.GreaterOrEqual(t, at[1]-at[0], 200*ms, out.String())
			last = at[0]
		}
	}
}

func TestWidth(t *testing.T) {
	for text, want := range map[string]int{"abc": 3, "ゴール": 6, "골": 2, "é": 1, "e\u0301": 1, "a\u2060b": 2, "⚽": 1, "😀": 2, "": 0} {
		require.Equal(t, want, subtitle.Width(text), text)
	}
	require.Equal(t, "a b", subtitle.Clean("\uFEFFa\tb\x00\n"))
}
