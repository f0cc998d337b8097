package alert

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // images without a zone database
)

// hours is a daily span of time in a zone. The zero value is always.
type hours struct {
	zone     *time.Location
	from, to clock
	days     []time.Weekday // on which the span begins; nil for every day
}

// clock is a local time of day in minutes since midnight; 24:00 is the end of a day.
type clock int

const minutesPerDay clock = 24 * 60

const maxDays = 7 // in a list, with repeated ones

// parseClock reads "22:00".
func parseClock(s string) (clock, bool) {
	if s == "24:00" {
		return minutesPerDay, true
	}
	t, err := time.Parse("15:04", s)
	return clock(t.Hour()*60 + t.Minute()), err == nil && len(s) == len("15:04")
}

var (
	errHours = errors.New(`must be a span such as "22:00-06:00", from 00:00 to 24:00`)
	errDays  = errors.New("must be of mon, tue, wed, thu, fri, sat, sun")
	errZone  = errors.New("must be a time zone of the IANA database, such as Europe/Madrid or UTC, when hours or days are set")
)

// parseHours reads the hours of a rule. Its errors name the field.
func parseHours(span, zone string, days []string) (hours, error) {
	if span == "" && zone == "" && len(days) == 0 {
		return hours{}, nil
	}
	h := hours{to: minutesPerDay}
	var errs []error
	if span != "" {
		from, to, _ := strings.Cut(span, "-")
		var ok1, ok2 bool
		h.from, ok1 = parseClock(strings.TrimSpace(from))
		h.to, ok2 = parseClock(strings.TrimSpace(to))
		if len(span) > maxWord || !ok1 || !ok2 || h.from == h.to || h.from == minutesPerDay {
			errs = append(errs, fmt.Errorf("hours: %w, is %.40q", errHours, span))
		}
	}
	var err error
	if h.zone, err = time.LoadLocation(zone); err != nil || zone == "" || zone == "Local" || len(zone) > maxWord {
		errs = append(errs, fmt.Errorf("zone: %w, is %.40q", errZone, zone))
	}
	if len(days) > maxDays {
		return h, errors.Join(append(errs, fmt.Errorf("days: %w, at most %d, are %d", errDays, maxDays, len(days)))...)
	}
	for _, day := range days {
		i := slices.Index([]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}, strings.ToLower(day))
		if i < 0 {
			errs = append(errs, fmt.Errorf("days: %w, is %.40q", errDays, day))
			continue
		}
		h.days = append(h.days, time.Weekday(i))
	}
	return h, errors.Join(errs...)
}

// active reports whether now is in the hours. A span begins when a local clock first shows its begin and ends when the clock
// last shows its end, even on a day with a clock change. If the clock skips a time, the span begins or ends at the change.
func (h hours) active(now time.Time) bool {
	if h.zone == nil {
		return true
	}
	y, m, d := now.In(h.zone).Date()
	for _, back := range []int{0, 1} { // the span may have begun yesterday
		day := time.Date(y, m, d-back, 0, 0, 0, 0, time.UTC)
		if h.days != nil && !slices.Contains(h.days, day.Weekday()) {
			continue
		}
		from, to := time.Duration(h.from)*time.Minute, time.Duration(h.to)*time.Minute
		if h.to <= h.from {
			to += 24 * time.Hour
		}
		begin, _ := moments(day.Add(from), h.zone)
		_, end := moments(day.Add(to), h.zone)
		if !now.Before(begin) && now.Before(end) {
			return true
		}
	}
	return false
}

// moments returns the first and the last moment at which a local clock of a zone shows the time that wall shows in UTC. They
// differ if the clock is set back over this time. For a time that the clock skips, both are the change.
func moments(wall time.Time, zone *time.Location) (first, last time.Time) {
	// The offsets before and after a change near this time.
	_, before := wall.Add(-24 * time.Hour).In(zone).Zone()
	_, after := wall.Add(24 * time.Hour).In(zone).Zone()
	a := wall.Add(-time.Duration(before) * time.Second)
	b := wall.Add(-time.Duration(after) * time.Second)
	_, atA := a.In(zone).Zone()
	_, atB := b.In(zone).Zone()
	switch aShows, bShows := atA == before, atB == after; {
	case aShows && bShows:
		return a, b
	case aShows:
		return a, a
	case bShows:
		return b, b
	}
	change, _ := a.In(zone).ZoneBounds()
	return change, change
}
