package cuda

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// registers is the number of a multiprocessor's registers.
const registers = 65536

// published is the language model of MiniCPM-o 4.5.
var published = Shape{
	Layers: 36, Hidden: 4096, FFN: 12288, Heads: 32, KVHeads: 8, HeadDim: 128, Vocab: 151748, Head: 4, Top: 256, Epsilon: 1e-6, MaxLen: 1088,
}

type card struct{ arch, blocks, shared, rows int }

// cards are the architectures, with the multiprocessors of a card (A100, A10, L4, H200, B200, RTX 5090), the shared memory that a block can
// have there and the rows for which the published shape fits.
var cards = []card{
	{80, 108, 163 << 10, 8}, {86, 72, 99 << 10, 4}, {89, 58, 99 << 10, 4}, {90, 132, 227 << 10, 8}, {100, 148, 227 << 10, 8}, {120, 170, 99 << 10, 4},
}

func TestPlansFit(t *testing.T) {
	for _, card := range cards {
		for i := range 4 {
			s := published
			s.Head, s.Zeros = 4+i%2*4, i > 1
			require.NoError(t, s.check())
			plans, err := plansFor(s, card.blocks, card.shared)
			require.NoError(t, err, "sm_%d", card.arch)
			for i, p := range plans {
				require.Equal(t, rowCounts()[i], p.rows)
				require.LessOrEqual(t, p.shared, card.shared, "sm_%d, %d rows", card.arch, p.rows)
			}
			require.Equal(t, card.rows, plans[len(plans)-1].rows, "sm_%d", card.arch)
		}
	}
	_, err := plansFor(published, 132, 48<<10)
	require.ErrorIs(t, err, ErrNone, "not one row fits")
}
