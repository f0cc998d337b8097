package sight

import "slices"

// order is what to speak of.
type order struct {
	only, ignore []string // groups and classes
}

func (o order) wants(group, name string) bool {
	listed := func(l []string) bool { return slices.Contains(l, group) || slices.Contains(l, name) }
	return (len(o.only) == 0 || listed(o.only)) && !listed(o.ignore)
}

func (w *Watcher) instruct(language, string) string { return "" }
