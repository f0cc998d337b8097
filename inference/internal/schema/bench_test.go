//go:build linux

package schema_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"touchline/inference/internal/schema"
)

// realPieces returns as many pieces as the real model has, with similar lengths:
// most are words of 2 to 12 bytes with or without a space before them.
func realPieces() [][]byte {
	rng := rand.New(rand.NewPCG(1, 1))
	seen := map[string]bool{}
	var pieces [][]byte
	add := func(p string) {
		if !seen[p] {
			seen[p] = true
			pieces = append(pieces, []byte(p))
		}
	}
	for i := range 256 {
		add(string([]byte{byte(i)}))
	}
	for _, p := range []string{`{"`, `":`, `":"`, `",`, `","`, `"}`, `[{"`, `[]`, `}]}`, `"},{"`, "true", "false", "fired", "rule", "reason"} {
		add(p)
	}
	syllables := strings.Fields("a e i o u an en er in on re st th ing tion com pro ve le ⚽ 球 é ß ")
	for len(pieces) < 151748 {
		var b strings.Builder
		if rng.IntN(2) == 0 {
			b.WriteByte(' ')
		}
		for range 2 + rng.IntN(4) {
			b.WriteString(syllables[rng.IntN(len(syllables))])
		}
		add(b.String())
	}
	return pieces
}

// cpu returns the processor time of the thread, which other programs do not change.
func cpu(tb testing.TB) time.Duration {
	tb.Helper()
	var t unix.Timespec
	require.NoError(tb, unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t))
	return time.Duration(t.Nano())
}

// BenchmarkStep measures the host time of a step in answers to the schema of alert rules:
// the check of all of 256 candidates, and the whole row.
func BenchmarkStep(b *testing.B) {
	pieces := realPieces()
	v, err := schema.NewVocabulary(pieces)
	require.NoError(b, err)
	s := parse(b, rules(4, 1, 12, 80))
	rng := rand.New(rand.NewPCG(2, 2))
	row := make([]float32, len(pieces))
	for i := range row {
		row[i] = float32(rng.NormFloat64())
	}
	ids := make([]int32, 256)
	run := func(b *testing.B, whole bool) {
		b.Helper()
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var c *schema.Constraint
		var took []time.Duration
		for b.Loop() {
			if c == nil || c.Complete() {
				c, err = v.Constrain(s, 200)
				require.NoError(b, err)
			}
			for i := range ids {
				ids[i] = int32(rng.IntN(len(pieces)))
			}
			begin := cpu(b)
			next, ok := c.Only()
			if !ok && whole {
				next, ok = c.Best(row)
			} else if !ok {
				for _, id := range ids {
					if c.Allows(id) && !ok {
						next, ok = id, true
					}
				}
			}
			if ok {
				c.Accept(next)
			}
			took = append(took, cpu(b)-begin)
			if !ok {
				next, _ = c.Best(row)
				c.Accept(next)
			}
			row[next] = float32(rng.NormFloat64())
		}
		slices.Sort(took)
		for name, i := range map[string]int{"p50-µs": len(took) / 2, "p99-µs": len(took) * 99 / 100, "max-µs": len(took) - 1} {
			b.ReportMetric(float64(took[i].Microseconds()), name)
		}
	}
	b.Run("candidates", func(b *testing.B) { run(b, false) })
	b.Run("row", func(b *testing.B) { run(b, true) })
	b.Run("vocabulary", func(b *testing.B) {
		for b.Loop() {
			_, _ = schema.NewVocabulary(pieces)
		}
	})
}
