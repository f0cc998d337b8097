//go:build gpu

package qwen3asr

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort"
	"touchline/models"
)

func TestParts(t *testing.T) {
	runtime.LockOSThread()
	b, err := models.OpenBundle(os.Getenv("PARTS_BUNDLE"))
	require.NoError(t, err)
	e := &Engine{name: b.Manifest.Name, o: Options{Runtime: os.Getenv("TOUCHLINE_ORT")}.withDefaults()}
	require.NoError(t, e.check(b))
	rt, err := ort.Open(e.o.Runtime)
	require.NoError(t, err)
	dev, err := rt.NewDevice(ort.CUDA, 0)
	require.NoError(t, err)
	sel, err := e.choose(b, dev)
	require.NoError(t, err)
	d, err := openDevice(sel, rt, dev, 0, func(string) {})
	require.NoError(t, err)
	n := sel.layout.Slots
	tokens, lengths := make([]int32, n), make([]int32, n)
	med := func(f func()) time.Duration {
		for range 20 {
			f()
		}
		var took []time.Duration
		for range 200 {
			begin := time.Now()
			f()
			took = append(took, time.Since(begin))
		}
		slices.Sort(took)
		return took[len(took)/2]
	}
	r := kvcache.Range{Start: 0, Size: 1}
	for _, length := range []int32{126, 420} {
		for i := range lengths {
			lengths[i] = length
		}
		fmt.Printf("length %d: step %v", length, med(func() { require.NoError(t, d.decode(r, tokens, lengths)) }))
		fmt.Printf(", of it: row of the table %v", med(func() { d.table.Copy(d.fed.Host(0, 1), tokens[0]) }))
		var host []time.Duration
		whole := med(func() {
			begin := time.Now()
			require.NoError(t, d.decoder.Step(0, r, lengths))
			host = append(host, time.Since(begin))
			require.NoError(t, dev.Synchronize())
		})
		slices.Sort(host)
		fmt.Printf(", queueing %v, queueing and waiting %v", host[len(host)/2], whole)
		fmt.Printf(", results %v", med(func() { require.NoError(t, d.decoder.Fetch(r, d.values, d.ids)) }))
		begin := time.Now()
		for range 100 {
			require.NoError(t, d.decoder.Step(0, r, lengths))
		}
		require.NoError(t, dev.Synchronize())
		fmt.Printf(", one after another without waiting %v\n", time.Since(begin)/100)
	}
	// The last graph is one step of one answer.
	require.NoError(t, d.decode(r, tokens, lengths))
	require.NoError(t, d.close())
}
