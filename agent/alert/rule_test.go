package alert_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/alert"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		rule alert.Rule
		want []string // none: valid
	}{
		{"a sentence alone", alert.Rule{When: "a goal is scored"}, nil},
		{"everything", alert.Rule{
			Name: "door", When: "somebody enters by the left door", Level: "critical", Votes: "3 of 5", Cadence: "500ms", Pause: "0s",
			Hours: "22:00-06:00", Zone: "Europe/Madrid", Days: []string{"fri", "Sat"}, Interrupt: true,
		}, nil},
		{"200 characters", alert.Rule{When: strings.Repeat("ñ", 200)}, nil},
		{"days alone", alert.Rule{When: "x", Days: []string{"mon"}, Zone: "UTC"}, nil},
		{"to midnight", alert.Rule{When: "x", Hours: "18:00-24:00", Zone: "UTC"}, nil},
		{"no sentence", alert.Rule{Name: "x", When: " "}, []string{`rules[0].when: must be a sentence of at most 200 characters in one line, is ""`}},
		{"a long sentence", alert.Rule{When: strings.Repeat("x", 201)}, []string{"rules[0].when: must be a sentence of at most 200 "}},
		{"two lines", alert.Rule{When: "a\n2. b"}, []string{`is "a\n2. b"`}},
		{"a long name", alert.Rule{When: "x", Name: strings.Repeat("x", 65)}, []string{"rules[0].name: must be at most 64 characters"}},
		{"level", alert.Rule{When: "x", Level: "loud"}, []string{`rules[0].level: must be info, warning or critical, is "loud"`}},
		{"votes", alert.Rule{When: "x", Votes: "3 of 2"}, []string{`rules[0].votes: must be "K of N" looks`, `is "3 of 2"`}},
		{"votes in words", alert.Rule{When: "x", Votes: "two"}, []string{`is "two"`}},
		{"many votes", alert.Rule{When: "x", Votes: "2 of 17"}, []string{"N at most 16"}},
		{"cadence", alert.Rule{When: "x", Cadence: "2"}, []string{`rules[0].cadence: must be a time between 200ms and 1h, is "2"`}},
		{"pause", alert.Rule{When: "x", Pause: "-1s"}, []string{`rules[0].pause: must be a time between 0s and 24h, is "-1s"`}},
		{"hours", alert.Rule{When: "x", Hours: "22-6", Zone: "UTC"}, []string{`rules[0].hours: must be a span such as "22:00-06:00"`, `is "22-6"`}},
		{"empty hours", alert.Rule{When: "x", Hours: "06:00-06:00", Zone: "UTC"}, []string{"rules[0].hours: "}},
		{"no such time", alert.Rule{When: "x", Hours: "06:00-25:00", Zone: "UTC"}, []string{"rules[0].hours: "}},
		{"no zone", alert.Rule{When: "x", Hours: "22:00-06:00"}, []string{"rules[0].zone: must be a time zone of the IANA database", `is ""`}},
		{"the zone of the machine", alert.Rule{When: "x", Hours: "22:00-06:00", Zone: "Local"}, []string{"rules[0].zone: "}},
		{"days", alert.Rule{When: "x", Days: []string{"monday"}, Zone: "UTC"}, []string{"rules[0].days: must be of mon, tue", `is "monday"`}},
		{"all that is wrong", alert.Rule{Level: "loud", Votes: "x", Zone: "Moon"}, []string{"[0].when", "[0].level", "[0].votes", "[0].zone"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := alert.Config{Rules: []alert.Rule{tt.rule}}.Validate()
			if tt.want == nil {
				require.NoError(t, err)
			}
			for _, want := range tt.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
	require.NoError(t, alert.Config{}.Validate())
	many := alert.Config{Rules: make([]alert.Rule, alert.MaxRules+1)}
	require.ErrorContains(t, many.Validate(), "rules: must be at most 16, is 17")
}

// Europe/Madrid goes from UTC+1 to UTC+2 on 2026-03-29 at 01:00 UTC (02:00 becomes 03:00) and back on 2026-10-25 at
// 01:00 UTC (03:00 becomes 02:00). America/New_York is at UTC-5, and at UTC-4 from 2026-03-08 at 07:00 UTC.
func TestHours(t *testing.T) {
	t.Parallel()
	const madrid = "Europe/Madrid"
	tests := []struct {
		name, hours, zone string
		days              []string
		at                string // UTC
		want              bool
	}{
		{"always", "", "", nil, "2026-01-01T00:00:00Z", true},
		{"before", "08:00-18:00", "UTC", nil, "2026-01-01T07:59:59Z", false},
		{"from", "08:00-18:00", "UTC", nil, "2026-01-01T08:00:00Z", true},
		{"until", "08:00-18:00", "UTC", nil, "2026-01-01T18:00:00Z", false},
		{"over midnight, evening", "22:00-06:00", "UTC", nil, "2026-01-01T23:00:00Z", true},
		{"over midnight, morning", "22:00-06:00", "UTC", nil, "2026-01-01T05:59:59Z", true},
		{"over midnight, day", "22:00-06:00", "UTC", nil, "2026-01-01T12:00:00Z", false},
		{"to 24:00", "18:00-24:00", "UTC", nil, "2026-01-01T23:59:59Z", true},
		{"after 24:00", "18:00-24:00", "UTC", nil, "2026-01-02T00:00:00Z", false},

		{"winter", "08:00-18:00", madrid, nil, "2026-01-15T07:30:00Z", true},
		{"summer, an hour earlier in UTC", "08:00-18:00", madrid, nil, "2026-07-15T06:30:00Z", true},
		{"summer, in UTC of winter", "08:00-18:00", madrid, nil, "2026-07-15T16:30:00Z", false},

		{"spring: still winter time", "22:00-06:00", madrid, nil, "2026-03-28T20:59:59Z", false},
		{"spring: begins in winter time", "22:00-06:00", madrid, nil, "2026-03-28T21:00:00Z", true},
		{"spring: ends in summer time", "22:00-06:00", madrid, nil, "2026-03-29T03:59:59Z", true},
		{"spring: seven hours long", "22:00-06:00", madrid, nil, "2026-03-29T04:00:00Z", false},
		{"spring: before a begin that is skipped", "02:30-04:00", madrid, nil, "2026-03-29T00:59:59Z", false},
		{"spring: a skipped begin is the change", "02:30-04:00", madrid, nil, "2026-03-29T01:00:00Z", true},
		{"spring: before an end that is skipped", "01:00-02:30", madrid, nil, "2026-03-29T00:59:59Z", true},
		{"spring: a skipped end is the change", "01:00-02:30", madrid, nil, "2026-03-29T01:00:00Z", false},
		{"spring: all skipped", "02:15-02:45", madrid, nil, "2026-03-29T01:00:00Z", false},
		{"spring, west", "01:00-03:30", "America/New_York", nil, "2026-03-08T07:29:59Z", true},
		{"spring, west: over", "01:00-03:30", "America/New_York", nil, "2026-03-08T07:30:00Z", false},

		{"autumn: begins in summer time", "22:00-06:00", madrid, nil, "2026-10-24T20:00:00Z", true},
		{"autumn: ends in winter time", "22:00-06:00", madrid, nil, "2026-10-25T04:59:59Z", true},
		{"autumn: nine hours long", "22:00-06:00", madrid, nil, "2026-10-25T05:00:00Z", false},
		{"autumn: the first of two begins", "02:30-04:00", madrid, nil, "2026-10-25T00:30:00Z", true},
		{"autumn: goes on when the clock shows less", "02:30-04:00", madrid, nil, "2026-10-25T01:15:00Z", true},
		{"autumn: goes on to the second of two ends", "01:00-02:30", madrid, nil, "2026-10-25T00:45:00Z", true},
		{"autumn: before the second end", "01:00-02:30", madrid, nil, "2026-10-25T01:29:59Z", true},
		{"autumn: the second end", "01:00-02:30", madrid, nil, "2026-10-25T01:30:00Z", false},

		{"day", "", "UTC", []string{"thu"}, "2026-01-01T12:00:00Z", true},
		{"another day", "", "UTC", []string{"fri"}, "2026-01-01T12:00:00Z", false},
		{"the day of the begin", "22:00-06:00", "UTC", []string{"thu"}, "2026-01-02T05:00:00Z", true},
		{"not the day of the end", "22:00-06:00", "UTC", []string{"fri"}, "2026-01-02T05:00:00Z", false},
		{"the day in the zone", "", madrid, []string{"fri"}, "2026-01-01T23:30:00Z", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set, err := alert.NewSet(alert.Config{Rules: []alert.Rule{{When: "x", Hours: tt.hours, Zone: tt.zone, Days: tt.days}}})
			require.NoError(t, err)
			at, err := time.Parse(time.RFC3339, tt.at)
			require.NoError(t, err)
			require.Equal(t, tt.want, set.List(at)[0].Active)
			require.Equal(t, tt.want, len(set.Due(at)) == 1)
		})
	}
}

func TestRuleDefaults(t *testing.T) {
	t.Parallel()
	set, err := alert.NewSet(alert.Config{Rules: []alert.Rule{{When: " the pan smokes "}}})
	require.NoError(t, err)
	require.Equal(t, []alert.RuleStatus{{
		ID: "r1", Active: true,
		RuleText: alert.RuleText{When: "the pan smokes", Level: "warning", Votes: "2 of 3", Cadence: "2s", Pause: "30s", By: "auto"},
	}}, set.List(time.Now()))
}
