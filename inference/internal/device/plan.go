package device

import (
	"fmt"
	"slices"
	"strings"

	"touchline/models"
)

// Plan is the memory of a loaded model on its device.
type Plan struct {
	Device string // name
	Parts  []PlanPart
}

// Add adds a part that is not empty.
func (p *Plan) Add(name string, bytes int64) {
	if bytes > 0 {
		p.Parts = append(p.Parts, PlanPart{name, bytes})
	}
}

// PlanPart is one use of memory.
type PlanPart struct {
	Name  string
	Bytes int64
}

// Total returns the bytes of all parts.
func (p Plan) Total() int64 {
	var n int64
	for _, part := range p.Parts {
		n += part.Bytes
	}
	return n
}

// String returns the plan as one line.
func (p Plan) String() string {
	parts := make([]string, len(p.Parts))
	for i, part := range p.Parts {
		parts[i] = part.Name + " " + Bytes(part.Bytes)
	}
	return fmt.Sprintf("%s on %s: %s", Bytes(p.Total()), p.Device, strings.Join(parts, ", "))
}

// Bytes formats a number of bytes.
func Bytes(n int64) string {
	switch {
	case n >= 10e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e9:
		return fmt.Sprintf("%.2f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.0f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%d bytes", n)
}

// DoesNotFitError is returned for a model that needs more memory than is free.
type DoesNotFitError struct {
	Plan Plan
	Free int64
	// Setting is the setting that allows no more than Free; "" if no more is free.
	Setting string
	// Would are settings that fit, best first.
	Would []string
}

// Error names the needed and the free memory, and settings that fit.
func (e *DoesNotFitError) Error() string {
	are := "free"
	if e.Setting != "" {
		are = "allowed by " + e.Setting
	}
	s := fmt.Sprintf("the model needs %s of memory on %s and %s are %s", Bytes(e.Plan.Total()), e.Plan.Device, Bytes(e.Free), are)
	if len(e.Would) == 0 {
		return s + ": no setting would make it fit"
	}
	return s + ": it would fit with " + strings.Join(e.Would, ", or with ")
}

// Plural returns a number with its noun.
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Lacks names the missing graph and the existing ones.
func Lacks(m *models.Manifest, k models.Kind, w models.Weights, d models.Device) error {
	var have []string
	for _, g := range m.Graphs {
		if g.Kind == k && !g.Check {
			have = append(have, fmt.Sprintf("%s for %s", g.Weights, g.Device))
		}
	}
	slices.Sort(have)
	return fmt.Errorf("expected a bundle with the %s in %s for %s, has %q: convert the checkpoint with --weights %s",
		k, w, d, have, w)
}
