package minicpmo

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort/orttest"
	"touchline/inference/internal/sample"
	"touchline/inference/step"
	"touchline/models"
	"touchline/models/convert"
)

// toyPicture is the number of positions of a picture.
const toyPicture = 20

// look submits a prompt: a system part, a room's pictures by their contents, and a question. want is its answer without a store.
func (r *rig) look(room uint64, system int32, pictures []int64, question int32, n int) (_ *reply, want []int32) {
	c := &cycle{arrived: time.Now()}
	c.Settings, c.Most = sample.Chat(), n
	c.Settings.Greedy, c.Settings.RepetitionPenalty = true, 1
	text := func(first int32, n int) {
		for i := range n {
			c.prompt.ids = append(c.prompt.ids, (first+int32(i))%toyVocab)
		}
	}
	text(system, 100+int(system))
	for _, content := range pictures {
		begin := len(c.prompt.ids)
		c.prompt.ids = append(c.prompt.ids, make([]int32, toyPicture)...)
		c.prompt.spans = append(c.prompt.spans, span{Start: begin, End: begin + toyPicture})
		m := &image{embeds: []byte{1}, content: -1 - content}
		p := &picture{key: pictureKey{source: room}, state: pictureDone, images: []*image{m}}
		p.wanted.Add(1)
		c.pictures, c.prompt.images = append(c.pictures, p), append(c.prompt.images, m)
	}
	text(question, 30+int(question))
	words := toyWords(&c.prompt)
	return r.answer(c, nil), toyContinue(words, n)
}

// moves returns the prefills and the copies of the store so far.
func (d *toy) moves() []string {
	return slices.DeleteFunc(d.log(), func(e string) bool { return strings.HasPrefix(e, "decode") || strings.HasPrefix(e, "clear") })
}

func TestPromptsShareTheirBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newToy(t, 4)
		r := d.start(t, d.loopWith(t, 1000))
		defer r.stop()
		at := 0
		look := func(room uint64, system int32, pictures []int64, question int32, want ...string) {
			t.Helper()
			p, ids := r.look(room, system, pictures, question, 5)
			<-p.done
			require.NoError(t, p.err)
			require.Equal(t, ids, p.ids)
			all := d.moves()
			require.Equal(t, want, all[at:])
			at = len(all)
		}
		look(1, 0, []int64{1, 2}, 3, "prefill 0 0-173", "save 0 0-100", "save 0 100-140")
		look(1, 0, []int64{1, 2}, 7, "restore 0 0-100", "restore 0 100-140", "prefill 0 140-177")
		// Another room with another picture, then with an equal first one, then with the other look, which was dropped.
		look(2, 0, []int64{4, 2}, 3, "restore 0 0-100", "prefill 0 100-173", "save 0 100-140")
		look(2, 0, []int64{4, 5}, 3, "restore 0 0-100", "restore 0 100-120", "prefill 0 120-173", "save 0 100-140")
		look(2, 0, []int64{4, 2}, 3, "restore 0 0-100", "restore 0 100-120", "prefill 0 120-173", "save 0 100-140")
		// The look of the first room is still there.
		look(1, 0, []int64{1, 2}, 8, "restore 0 0-100", "restore 0 100-140", "prefill 0 140-178")
		look(3, 1, []int64{1, 2}, 3, "prefill 0 0-174", "save 0 0-101", "save 0 101-141") // another system part
		// Without pictures. The last token is fed.
		look(1, 0, nil, 9, "restore 0 0-100", "prefill 0 100-139")
		look(2, 0, nil, 9, "restore 0 0-100", "prefill 0 100-139")
		s := r.stats.read()
		require.EqualValues(t, 7, s.PrefixHits)
		require.EqualValues(t, 2, s.PrefixMisses)
		require.EqualValues(t, 7*100+40+20+20+40, s.PrefixTokens)
	})
}

// A prompt whose run or copy failed is not stored, and a failed save only costs the piece.
func TestFailedPromptsAreNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newToy(t, 1)
		r := d.start(t, d.loopWith(t, 1000))
		defer r.stop()
		failed := errors.New("no run")
		look := func(fail string) (*reply, []int32) {
			d.failing(func(e string) error {
				if fail != "" && strings.HasPrefix(e, fail) {
					return failed
				}
				return nil
			})
			p, ids := r.look(1, 0, []int64{1}, 3, 5)
			<-p.done
			return p, ids
		}
		p, _ := look("prefill")
		require.ErrorIs(t, p.err, failed)
		d.broken.Store(true)
		p, _ = look("")
		require.ErrorIs(t, p.err, step.ErrNotFinite)
		d.broken.Store(false)
		p, ids := look("save")
		require.NoError(t, p.err)
		require.Equal(t, ids, p.ids)
		p, ids = look("")
		require.NoError(t, p.err)
		require.Equal(t, ids, p.ids)
		require.EqualValues(t, 4, r.stats.read().PrefixMisses, "nothing was stored")
		p, ids = look("restore")
		require.NoError(t, p.err, "the positions are fed instead")
		require.Equal(t, ids, p.ids)
		p, ids = look("")
		require.NoError(t, p.err)
		require.Equal(t, ids, p.ids)
		require.Zero(t, r.Pool.InUse())
		require.EqualValues(t, 1, r.stats.read().PrefixHits)
	})
}

// Any order of prompts, further looks and cancellations gives the answers without a store, also with a store that drops most pieces or
// has no room for one.
func TestSharedPromptsInAnyOrder(t *testing.T) {
	for _, tt := range []struct{ positions, chunk int }{{5000, 512}, {5000, 32}, {250, 512}, {130, 32}, {30, 512}, {0, 512}} {
		synctest.Test(t, func(t *testing.T) {
			d := newToy(t, 4)
			l := d.loopWith(t, tt.positions)
			l.shape.chunk = tt.chunk
			r := d.start(t, l)
			defer r.stop()
			rng := rand.New(rand.NewPCG(uint64(tt.positions), uint64(tt.chunk)))
			type asked struct {
				p         *reply
				want      []int32
				cancelled bool
			}
			var all []asked
			newest := map[uint64]int64{}
			for range 300 {
				room := rng.Uint64N(5) + 1
				if rng.IntN(2) == 0 {
					newest[room]++
				}
				var pictures []int64
				for i := range int64(rng.IntN(4)) {
					pictures = append(pictures, newest[room]+i)
				}
				a := asked{cancelled: rng.IntN(5) == 0}
				a.p, a.want = r.look(room, int32(rng.IntN(3)), pictures, int32(rng.IntN(9)), 1+rng.IntN(9))
				time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
				if a.cancelled {
					r.Cancel(a.p.c)
				}
				all = append(all, a)
			}
			for _, a := range all {
				<-a.p.done
				if a.p.err == nil || !a.cancelled {
					require.NoError(t, a.p.err)
					require.Equal(t, a.want, a.p.ids)
				}
			}
			require.Zero(t, r.Pool.InUse())
			require.Equal(t, tt.positions > 100, r.stats.read().PrefixHits > 0)
		})
	}
}

// A prompt whose beginning comes from the store has the results of one that was fed, on a GPU too.
func TestRestoredPrompts(t *testing.T) {
	orttest.NoLeaks(t)
	t.Run("cpu", func(t *testing.T) {
		b := converted(t, "tiny", convert.Options{
			Weights: []models.Weights{models.WeightsFloat32}, Devices: []models.Device{models.DeviceCPU},
		})
		d := openOn(t, b, "cpu", "fp32", Options{Threads: 1})
		for _, length := range []int{65, 100, 300, 414} {
			want, got := restoredSteps(t, d, length, length-24)
			for i := range want {
				// Equal bits on an AMD EPYC. Kernels of other CPUs may round a run of another length otherwise.
				require.InDeltaSlice(t, want[i].logits, got[i].logits, 2e-6*largest(want[i].logits), "%d positions, step %d", length, i)
				require.Equal(t, want[i].ids[0], got[i].ids[0])
			}
		}
		differs, err := d.checkStore(0, 1)
		require.NoError(t, err)
		require.Empty(t, differs)
	})
	t.Run("cuda", func(t *testing.T) {
		needGPU(t)
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		b := cudaBundle(t, "tiny", 8)
		for _, weights := range []string{"auto", "int4", "fp16"} {
			d := openOwn(t, b, weights, Options{})
			differs, err := d.checkStore(0, 1)
			require.NoError(t, err)
			require.Empty(t, differs)
			for _, length := range []int{65, 100, 300, 414} {
				want, got := restoredSteps(t, d, length, length-24)
				for i := range want { // the ids of the largest logits too
					require.Empty(t, differ(got[i].logits, want[i].logits), "%s, %d positions, step %d", weights, length, i)
				}
			}
		}
	})
}

// restoredSteps returns the results of a prompt and of the steps after it: fed as a whole, and with the positions before last from two
// pieces of the store.
func restoredSteps(t *testing.T, d *device, length, last int) (fed, restored []ownResults) {
	t.Helper()
	const slot, first = 6, 20
	f := &ownSteps{t, d}
	p := &prompt{}
	for i := range length {
		p.ids = append(p.ids, f.token(slot, i))
	}
	part := kvcache.NewPrefixes(d.sel.layout, 1<<10, d.sel.prefixes)
	var pieces []kvcache.Piece
	for _, end := range []int{first, last} {
		from := 0
		if len(pieces) > 0 {
			from = first
		}
		piece, ok := part.Put(p.words(end), from, 0)
		require.True(t, ok)
		pieces = append(pieces, piece)
	}
	steps := func(from int) (out []ownResults) {
		require.NoError(t, d.prefill(d.sel.prefill, slot, p, from, length, 1))
		out = append(out, f.results(slot))
		for n := range 5 {
			tokens, positions := f.inputs([]int{slot}, []int{length}, n)
			require.NoError(t, d.decode(0, kvcache.Range{Start: slot, Size: 1}, tokens, positions, true))
			out = append(out, f.results(slot))
		}
		return out
	}
	require.NoError(t, d.clear(slot))
	fed = steps(0)
	for _, piece := range pieces {
		require.NoError(t, d.save(slot, piece))
	}
	require.NoError(t, d.clear(slot))
	require.NoError(t, d.restore(slot, 0, first, pieces[0]))
	require.NoError(t, d.restore(slot, first, first+10, pieces[1]))
	require.NoError(t, d.restore(slot, first+10, last, pieces[1]))
	return fed, steps(last)
}
