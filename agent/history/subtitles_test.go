package history_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/history"
	"touchline/agent/look"
)

var kickOff = time.Date(2026, 5, 1, 20, 15, 0, 0, time.UTC)

// spoken is a comment with the times of its words, after kick-off.
func spoken(from, to time.Duration, words ...history.Word) history.Entry {
	var text strings.Builder
	for _, w := range words {
		text.WriteString(w.Text)
	}
	return history.Entry{At: kickOff.Add(from), Room: "match", Words: words, Record: look.Record{
		Outcome: look.OutcomeSpoken, Text: strings.TrimSpace(text.String()), Spoken: true,
		StartedAt: kickOff.Add(from), EndedAt: kickOff.Add(to),
	}}
}

func entries(all ...history.Entry) iter.Seq2[history.Entry, error] {
	return func(yield func(history.Entry, error) bool) {
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// match is a comment that fits, a long one, one without times, one that is cut
// by the next, silence, and words that look like markup.
func match() []history.Entry {
	long := spoken(5*time.Second, 11*time.Second,
		history.Word{At: 0, Text: "The striker "}, history.Word{At: 0.6, Text: "turns "}, history.Word{At: 1, Text: "and shoots "},
		history.Word{At: 2, Text: "from the edge "}, history.Word{At: 3, Text: "of the penalty area, "}, history.Word{At: 4, Text: "but the goalkeeper "},
		history.Word{At: 5, Text: "holds the ball."})
	plain := history.Entry{At: kickOff.Add(20 * time.Second), Room: "match", Record: look.Record{
		Outcome: look.OutcomeShown, Text: "Blue plays it back.", StartedAt: kickOff.Add(20 * time.Second), EndedAt: kickOff.Add(20 * time.Second),
	}}
	markup := spoken(30*time.Second, 32*time.Second, history.Word{Text: `<b>Tom</b> & {\an8}Jerry --> goal`})
	cut := spoken(40*time.Second, 44*time.Second, history.Word{Text: "And now "})
	cut.Record.Outcome = look.OutcomeCut
	next := spoken(41*time.Second, 43*time.Second, history.Word{Text: "42"}, history.Word{At: 1, Text: "\n\nminutes\x1b\x00 gone"})
	silent := history.Entry{At: kickOff.Add(15 * time.Second), Room: "match", Record: look.Record{Outcome: look.OutcomeSilent}}
	return []history.Entry{
		spoken(2*time.Second, 4*time.Second, history.Word{Text: " Kick"}, history.Word{At: 0.3, Text: "-off."}),
		long, silent, plain, markup, cut, next,
	}
}

func TestSRT(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	require.NoError(t, history.WriteSRT(&b, entries(match()...), kickOff))
	require.Equal(t, strings.TrimPrefix(`
1
00:00:02,000 --> 00:00:04,000
Kick-off.

2
00:00:05,000 --> 00:00:10,000
The striker turns and shoots from the edge
of the penalty area, but the goalkeeper

3
00:00:10,000 --> 00:00:11,000
holds the ball.

4
00:00:20,000 --> 00:00:21,117
Blue plays it back.

5
00:00:30,000 --> 00:00:32,000
<j>b>Tom<j>/b> & {j}\an8}Jerry --(j)> goal

6
00:00:40,000 --> 00:00:41,000
And now

7
00:00:41,000 --> 00:00:43,000
42 minutes gone

`, "\n"), strings.NewReplacer("<\u2060", "<j>", "{\u2060", "{j}", "--\u2060>", "--(j)>").Replace(b.String()))
}

func TestVTT(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	require.NoError(t, history.WriteVTT(&b, entries(match()...), time.Time{}))
	require.True(t, strings.HasPrefix(b.String(), "WEBVTT\n\n00:00:00.000 --> 00:00:02.000\nKick-off.\n\n"), b.String())
	require.Contains(t, b.String(), "\n&lt;b&gt;Tom&lt;/b&gt; &amp; {\\an8}Jerry --&gt; goal\n")
	b.Reset()
	// A comment that ended before zero is left out; one under way begins there.
	require.NoError(t, history.WriteVTT(&b, entries(match()...), kickOff.Add(10*time.Second)))
	require.True(t, strings.HasPrefix(b.String(), "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\nholds the ball.\n\n"), b.String())
	b.Reset()
	require.NoError(t, history.WriteVTT(&b, entries(), time.Time{}))
	require.Equal(t, "WEBVTT\n\n", b.String())
	b.Reset()
	late := spoken(100*time.Hour, 100*time.Hour+2*time.Second, history.Word{Text: "Extra time."})
	require.NoError(t, history.WriteVTT(&b, entries(late), kickOff))
	require.Contains(t, b.String(), "100:00:00.000 --> 100:00:02.000")
}

// TestSubtitleLayout: whatever is said, lines keep their length, cues do not
// overlap, and no word is lost.
func TestSubtitleLayout(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields("a of goal keeper penalty area. extraordinarily Übermittlungsgeschwindigkeit! 球 " + strings.Repeat("ab", 50))
	var all []history.Entry
	var said []string
	at := time.Duration(0)
	for range 300 {
		var w []history.Word
		length := time.Duration(random.IntN(9000)+100) * time.Millisecond
		for i, n := 0, random.IntN(40)+1; i < n; i++ {
			word := words[random.IntN(len(words))]
			said = append(said, word)
			w = append(w, history.Word{At: length.Seconds() * float64(i) / float64(n), Text: word + " "})
		}
		all = append(all, spoken(at, at+length, w...))
		at += length + time.Duration(random.IntN(2000))*time.Millisecond
	}
	var b bytes.Buffer
	require.NoError(t, history.WriteSRT(&b, entries(all...), kickOff))
	cue := regexp.MustCompile(`^\d+\n(\S+) --> (\S+)\n(.+)\n?(.*)$`)
	before := ""
	var got strings.Builder
	for block := range strings.SplitSeq(strings.TrimSpace(b.String()), "\n\n") {
		m := cue.FindStringSubmatch(block)
		require.NotNil(t, m, block)
		require.Less(t, m[1], m[2], block)
		require.LessOrEqual(t, before, m[1], block)
		before = m[2]
		for _, line := range m[3:] {
			require.LessOrEqual(t, utf8.RuneCountInString(line), 42, block)
			got.WriteString(line)
		}
	}
	without := func(s string) string { return strings.ReplaceAll(s, " ", "") }
	require.Equal(t, without(strings.Join(said, "")), without(got.String()))
}

func TestTextAndJSON(t *testing.T) {
	t.Parallel()
	all := match()
	all[2].Record.Reason = "nothing\nnew"
	all[5].Record.Reason = "a new instruction came"
	var b bytes.Buffer
	require.NoError(t, history.WriteText(&b, entries(all...), time.UTC))
	require.Equal(t, strings.TrimPrefix(`
2026-05-01 20:15:02  Kick-off.
2026-05-01 20:15:05  The striker turns and shoots from the edge of the penalty area, but the goalkeeper holds the ball.
2026-05-01 20:15:15  [silent: nothing new]
2026-05-01 20:15:20  Blue plays it back.
2026-05-01 20:15:30  <b>Tom</b> & {\an8}Jerry --> goal
2026-05-01 20:15:40  And now  [cut: a new instruction came]
2026-05-01 20:15:41  42  minutes   gone
`, "\n"), b.String())
	b.Reset()
	require.NoError(t, history.WriteJSON(&b, entries(all...)))
	var got []history.Entry
	require.NoError(t, json.Unmarshal(b.Bytes(), &got))
	require.Equal(t, all, got)
	require.Equal(t, len(all)+2, strings.Count(b.String(), "\n"), "an entry on each line")
	b.Reset()
	require.NoError(t, history.WriteJSON(&b, entries()))
	require.JSONEq(t, "[]", b.String())
}

// TestWhatPeopleSaid: it has the names of its speakers; two may speak at once.
func TestWhatPeopleSaid(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 1, 20, 15, 0, 0, time.UTC)
	said := func(name, text string, from, to time.Duration, order *agent.SpokenOrder) history.Entry {
		return history.Entry{At: at.Add(from), Room: "a", Heard: &agent.Heard{
			Identity: "id", Name: name, Text: text, Began: at.Add(from), Ended: at.Add(to), Order: order,
		}}
	}
	all := []history.Entry{
		said("Ann", "who is <that>?", 0, 4*time.Second, nil),
		said("", "stop", time.Second, 2*time.Second, &agent.SpokenOrder{Text: "stop", Effect: "Commenting has stopped."}),
		said("Ben", "louder", 5*time.Second, 6*time.Second, &agent.SpokenOrder{Text: "louder", Refused: "ben may not instruct"}),
	}
	var b bytes.Buffer
	require.NoError(t, history.WriteText(&b, entries(all...), time.UTC))
	require.Equal(t, `2026-05-01 20:15:00  Ann: who is <that>?
2026-05-01 20:15:01  id: stop  [order: Commenting has stopped.]
2026-05-01 20:15:05  Ben: louder  [order refused: ben may not instruct]
`, b.String())
	b.Reset()
	require.NoError(t, history.WriteVTT(&b, entries(all...), time.Time{}))
	require.Equal(t, `WEBVTT

00:00:00.000 --> 00:00:04.000
Ann: who is &lt;that&gt;?

00:00:01.000 --> 00:00:02.000
id: stop

00:00:05.000 --> 00:00:06.000
Ben: louder

`, b.String())
}

// TestNothingIsLostOfTheSameMoment: comments that begin at the same moment are all shown, and wide letters count as two.
func TestNothingIsLostOfTheSameMoment(t *testing.T) {
	t.Parallel()
	var all []history.Entry
	for i := range 4 {
		all = append(all, spoken(time.Second, 3*time.Second, history.Word{Text: fmt.Sprintf("Comment %d.", i)}))
	}
	all = append(all, spoken(5*time.Second, 9*time.Second, history.Word{Text: strings.Repeat("球", 60)}))
	var b bytes.Buffer
	require.NoError(t, history.WriteSRT(&b, entries(all...), kickOff))
	for i := range 4 {
		require.Contains(t, b.String(), fmt.Sprintf("Comment %d.", i))
	}
	require.Equal(t, 60, strings.Count(b.String(), "球"))
	require.NotContains(t, b.String(), strings.Repeat("球", 22), "a line of 42 columns")
}
