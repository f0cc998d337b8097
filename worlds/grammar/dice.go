package grammar

import (
	"iter"
	"math/rand/v2"
)

// Dice draws random values. The same seed gives the same draws on any machine.
type Dice struct{ *rand.Rand }

// NewDice returns dice with a seed.
func NewDice(seed uint64) Dice {
	return Dice{rand.New(rand.NewPCG(seed, 0))}
}

// chance is true with probability p.
func (d Dice) chance(p float64) bool { return d.Float64() < p }

// between draws a number from a to b.
func (d Dice) between(a, b float64) float64 { return a + float64((b-a)*d.Float64()) }

// from draws an integer from a to b-1.
func (d Dice) from(a, b int) int { return a + d.IntN(b-a) }

// Pick draws one of the values.
func Pick[T any](d Dice, some []T) T { return some[d.IntN(len(some))] }

// Weighted draws one of the values, with probabilities in proportion to the weights.
func Weighted[T any](d Dice, some []T, weights []int) T {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	x := d.Float64() * float64(sum)
	for i, w := range weights {
		if x < float64(w) {
			return some[i]
		}
		x -= float64(w)
	}
	return some[len(some)-1]
}

// shuffled yields the integers from 0 to n-1 in random order. Each is drawn when it is needed.
func (d Dice) shuffled(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		moved := map[int]int{} // positions where another integer stands
		at := func(i int) int {
			if v, ok := moved[i]; ok {
				return v
			}
			return i
		}
		for i := range n {
			k := i + d.IntN(n-i)
			chosen := at(k)
			moved[k] = at(i)
			if !yield(chosen) {
				return
			}
		}
	}
}

// sample draws k of the values, in random order.
func sample[T any](d Dice, some []T, k int) []T {
	out := make([]T, 0, k)
	for i := range d.shuffled(len(some)) {
		if out = append(out, some[i]); len(out) == k {
			break
		}
	}
	return out
}
