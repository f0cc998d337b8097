package alert

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzRule: an accepted rule is short, and parses again to itself and the same terms.
func FuzzRule(f *testing.F) {
	for _, r := range []RuleText{
		{When: "a goal is scored"},
		{
			Name: "door", When: " somebody enters ", Level: "critical", Votes: "3 of 5", Cadence: "500ms", Pause: "0s", Hours: "22:00-06:00",
			Zone: "Europe/Madrid", Days: []string{"fri", "Sat"}, By: "facts",
		},
		{When: "x", Votes: " 2  of  3 ", Cadence: "1m0.5s", Pause: "24h", Hours: " 18:00 - 24:00 ", Zone: "UTC"},
		{When: "x", Votes: "17 of 3", Cadence: "2", Pause: "-1s", Hours: "22-6", Zone: "Local"},
		{When: "x", Votes: strings.Repeat(" ", 5000) + "2 of 3"},
		{When: "x", Cadence: "1." + strings.Repeat("0", 5000) + "s"},
		{When: "x", Zone: strings.Repeat("./", 1000) + "UTC", Hours: "22:00-06:00", Votes: strings.Repeat("0", 4000) + "1 of 2"},
		{When: "x", Hours: strings.Repeat(" ", 5000) + "22:00-06:00", Zone: "UTC"},
		{When: "x", Zone: "UTC", Days: slices.Repeat([]string{"mon"}, 5000)},
		{When: "x", Zone: "UTC", Days: slices.Repeat([]string{"monday"}, 5000)},
		{When: "a\n2. b", Name: "\xff", Zone: "../UTC", Days: []string{"monday"}},
	} {
		f.Add(r.Name, r.When, r.Level, r.Votes, r.Cadence, r.Pause, r.Hours, r.Zone, strings.Join(r.Days, ","), r.By)
	}
	f.Fuzz(func(t *testing.T, name, when, level, votes, cadence, pause, span, zone, days, by string) {
		r := RuleText{Name: name, When: when, Level: level, Votes: votes, Cadence: cadence, Pause: pause, Hours: span, Zone: zone, By: by}
		if days != "" {
			r.Days = strings.Split(days, ",")
		}
		text, terms, err := parse(r)
		if err != nil {
			require.Less(t, len(err.Error()), 8<<10)
			return
		}
		again, same, err := parse(text)
		require.NoError(t, err)
		require.Equal(t, text, again)
		require.Equal(t, terms, same)
		require.Positive(t, terms.cadence)
		require.NotNil(t, terms.votes())
		_ = terms.hours.active(time.Unix(1_800_000_000, 0))
		b, err := json.Marshal(text)
		require.NoError(t, err)
		require.Less(t, len(b), 4<<10, "it must fit an answer in the room")
	})
}
