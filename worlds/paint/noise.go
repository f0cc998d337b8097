package paint

// Noise is a random value from -1 to 1 that changes slowly: random values every Step ticks,
// linearly interpolated, so that it has no frequencies above their rate. It depends on its fields
// only.
type Noise struct {
	// Seed and Layer choose the values.
	Seed, Layer uint64
	// Step is the number of ticks between two values; it must be positive.
	Step int64

	known       bool
	point       int64
	left, right float64
}

// At returns the value at a tick. Consecutive ticks are cheap.
func (n *Noise) At(tick int64) float64 {
	point := tick / n.Step
	if !n.known || point != n.point {
		value := func(p int64) float64 { return 2*Chance(n.Seed, n.Layer, uint64(p)) - 1 }
		n.known, n.point, n.left, n.right = true, point, value(point), value(point+1)
	}
	return n.left + (n.right-n.left)*float64(tick-point*n.Step)/float64(n.Step)
}
