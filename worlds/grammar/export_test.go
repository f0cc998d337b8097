package grammar

import "slices"

// Last is what the last comment told.
func (c *Commentator) Last() *News { return c.last }

// Told counts the events that show in the middle of a film of the yard, and those of them that news tells.
func Told(f *Film, news []News) (told, due int) {
	const edge = 50 // pictures
	facts := f.Facts[edge : len(f.Facts)-edge]
	var events []*News
	for i := range facts {
		for _, e := range facts[i].events {
			if facts[0].t+2 < e.at && e.at < f.Facts[len(f.Facts)-edge].t && !slices.Contains(events, e) {
				events = append(events, e)
			}
		}
	}
	for _, e := range events {
		if slices.ContainsFunc(news, func(n News) bool { return n.is(e) || n.also.is(e) }) {
			told++
		}
	}
	return told, len(events)
}
