package convert_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"touchline/inference/conformance/synth"
	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/convert"
)

var (
	benchLayers  = flag.Int("layers", 1, "decoder and vision layers of the benchmark's checkpoint, at most (36: all of the real model)")
	benchDir     = flag.String("dir", "", "folder for the benchmark's files (default: a temporary one)")
	benchWeights = flag.String("weights", "int4,fp16", "weights to convert to")
)

// BenchmarkConvertFolder writes a checkpoint of the published model's widths
// to disk and converts it. It reports the source's megabytes per second and
// core (each byte counted once, though int4 and fp16 both read it) and the
// largest anonymous memory seen. For the whole model:
//
//	go test ./models/convert -run '^$' -bench Folder -benchtime 1x -timeout 1h -layers 36 -dir DIR
func BenchmarkConvertFolder(b *testing.B) {
	dir := *benchDir
	if dir == "" {
		dir = b.TempDir()
	}
	shape, err := synth.Find("minicpm-o-4.5")
	require.NoError(b, err)
	shape.Decoder.Layers = min(shape.Decoder.Layers, *benchLayers)
	shape.Vision.Layers = min(shape.Vision.Layers, *benchLayers)
	made, err := synth.New(shape, 1)
	require.NoError(b, err)
	folder := filepath.Join(dir, "synth-"+strconv.Itoa(*benchLayers))
	if _, err := os.Stat(filepath.Join(folder, "config.json")); err != nil {
		start := time.Now()
		require.NoError(b, made.Write(b.Context(), folder, 2<<30, nil))
		b.Logf("wrote %.1f GB in %.1f s", float64(made.Bytes())/1e9, time.Since(start).Seconds())
	}
	o := convert.Options{Now: time.Now}
	for w := range strings.SplitSeq(*benchWeights, ",") {
		o.Weights = append(o.Weights, models.Weights(w))
	}
	stop := make(chan struct{})
	var peak int
	var watch sync.WaitGroup
	var took, busy time.Duration
	for b.Loop() {
		src, err := checkpoint.Open(folder)
		require.NoError(b, err)
		watch.Go(func() {
			for tick := time.NewTicker(20 * time.Millisecond); ; {
				select {
				case <-stop:
					tick.Stop()
					return
				case <-tick.C:
					peak = max(peak, anonymous(b))
				}
			}
		})
		bundle := filepath.Join(dir, "bundle")
		start, used := time.Now(), cpu(b)
		require.NoError(b, convert.Convert(b.Context(), src, bundle, o))
		took, busy = took+time.Since(start), busy+cpu(b)-used
		close(stop)
		watch.Wait()
		stop = make(chan struct{})
		require.NoError(b, src.Close())
		require.NoError(b, os.RemoveAll(bundle))
	}
	seconds := took.Seconds() / float64(b.N)
	speed := float64(made.Bytes()) / 1e6 / seconds
	b.ReportMetric(seconds, "s")
	b.ReportMetric(speed, "MB/s")
	b.ReportMetric(speed/float64(runtime.GOMAXPROCS(0)), "MB/s/core")
	b.ReportMetric(float64(made.Bytes())*float64(b.N)/1e6/busy.Seconds(), "MB/cpu-s")
	b.ReportMetric(float64(peak)/1e6, "MB-anonymous")
}

// cpu returns the CPU time of the process, which predicts the speed on an idle
// machine.
func cpu(tb testing.TB) time.Duration {
	tb.Helper()
	var u unix.Rusage
	require.NoError(tb, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// anonymous returns the anonymous memory of the process in bytes.
func anonymous(tb testing.TB) int {
	tb.Helper()
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(tb, err)
	m := regexp.MustCompile(`RssAnon:\s+(\d+) kB`).FindSubmatch(status)
	require.NotNil(tb, m)
	kb, err := strconv.Atoi(string(m[1]))
	require.NoError(tb, err)
	return kb * 1024
}
