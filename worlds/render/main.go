// Command render draws generated worlds for training and evaluation: for each seed the raw
// pictures, and the truth about each of them.
//
// SEED.i420 holds the pictures one after another, I420 without padding, scaled by area from the
// size at which the world is drawn. SEED.jsonl holds one record per picture, as worlds.Truth writes
// it, with the events since the previous picture. Files get their names when they are complete. The
// same arguments give the same files.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"touchline/worlds"
)

// worldFPS is the frame rate of the worlds; every Nth frame becomes a picture.
const worldFPS = 30

type settings struct {
	world        string
	out          string
	first        uint64
	seeds        int
	seconds      int
	fps          int
	size, source size
	offset       int
	clockEvery   int
	every        int
	counter      float64
	busy         float64
	pixels       bool
}

// size is the size of pictures, written as 448x252.
type size struct{ width, height int }

// String implements flag.Value.
func (s *size) String() string { return fmt.Sprintf("%dx%d", s.width, s.height) }

// Set implements flag.Value.
func (s *size) Set(text string) error {
	if _, err := fmt.Sscanf(text, "%dx%d", &s.width, &s.height); err != nil {
		return fmt.Errorf("size %q: must be WIDTHxHEIGHT: %w", text, err)
	}
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

// parse reads the command line.
func parse(args []string, log io.Writer) (settings, error) {
	s := settings{size: size{448, 252}, source: size{640, 360}}
	flags := flag.NewFlagSet("render", flag.ContinueOnError)
	flags.SetOutput(log)
	flags.StringVar(&s.world, "world", worlds.Match, "`name` of the world: "+strings.Join(worlds.Worlds(), ", "))
	flags.StringVar(&s.out, "out", "", "`folder` of the files")
	flags.Uint64Var(&s.first, "first", 1000, "first seed")
	flags.IntVar(&s.seeds, "seeds", 16, "number of seeds")
	flags.IntVar(&s.seconds, "seconds", 60, "length of each world's film")
	flags.IntVar(&s.fps, "fps", 5, "pictures a second; a divisor of 30")
	flags.Var(&s.size, "size", "size of the pictures")
	flags.Var(&s.source, "source", "size at which the world is drawn")
	flags.IntVar(&s.offset, "offset", 2000, "latest start of a film in its world, in `seconds`; it depends on the seed")
	flags.IntVar(&s.clockEvery, "clock-every", 0, "show another clock and score every `N` pictures; 0 for the true ones")
	flags.Float64Var(&s.counter, "counter", 0, "`share` of the seeds that show the frame counter")
	flags.Float64Var(&s.busy, "busy", 0, "`share` of the seeds in which more happens")
	flags.IntVar(&s.every, "every", 1, "write the pixels of every `N`th picture only; the names of such films end in -N")
	flags.BoolVar(&s.pixels, "pixels", true, "write pictures, not only the truth")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case s.out == "":
		return s, errors.New("-out: must name a folder")
	case s.fps < 1 || worldFPS%s.fps != 0:
		return s, fmt.Errorf("-fps: must be a divisor of %d, is %d", worldFPS, s.fps)
	case s.seeds < 1 || s.seconds < 1 || s.every < 1 || s.offset < 0 || s.clockEvery < 0:
		return s, errors.New("-seeds, -seconds and -every: must be positive; -offset and -clock-every: must not be negative")
	case s.size.width > s.source.width || s.size.height > s.source.height:
		return s, fmt.Errorf("-size: must not be larger than -source %s, is %s", &s.source, &s.size)
	case s.size.width < 2 || s.size.height < 2 || s.size.width%2+s.size.height%2 != 0:
		return s, fmt.Errorf("-size: must be even, is %s", &s.size)
	}
	return s, nil
}

// run renders all seeds, one per core in parallel.
func run(ctx context.Context, args []string, log io.Writer) error {
	s, err := parse(args, log)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.out, 0o755); err != nil {
		return fmt.Errorf("make the folder: %w", err)
	}
	start := time.Now()
	var pictures atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range s.seeds {
		g.Go(func() error {
			n, err := s.film(ctx, s.first+uint64(i))
			pictures.Add(int64(n))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	took := time.Since(start).Seconds()
	fmt.Fprintf(log, "%d pictures of %d seeds in %.1f s: %.0f a second on %d cores\n",
		pictures.Load(), s.seeds, took, float64(pictures.Load())/took, runtime.GOMAXPROCS(0))
	return nil
}

// film renders one seed and returns the number of pictures.
func (s *settings) film(ctx context.Context, seed uint64) (n int, err error) {
	dice := rand.New(rand.NewPCG(seed, 0x6e616e6f))
	offset := uint32(dice.IntN(s.offset*worldFPS + 1))
	world, err := worlds.New(worlds.Options{
		World: s.world, Seed: seed, Width: s.source.width, Height: s.source.height, FPS: worldFPS,
		Counter: dice.Float64() < s.counter,
	})
	if err != nil {
		return 0, err
	}
	if dice.Float64() < s.busy {
		world.Hurry()
	}
	name := filepath.Join(s.out, strconv.FormatUint(seed, 10))
	if s.every > 1 {
		name += "-" + strconv.Itoa(s.every)
	}
	truth, err := create(name + ".jsonl")
	if err != nil {
		return 0, err
	}
	defer truth.abandon()
	var film *file
	if s.pixels {
		if film, err = create(name + ".i420"); err != nil {
			return 0, err
		}
		defer film.abandon()
	}
	lines, shrink := json.NewEncoder(truth), newScaler(s.source, s.size)
	drawn, kept := make([]byte, world.I420Size()), make([]byte, s.size.width*s.size.height*3/2)
	step := uint32(worldFPS / s.fps)
	for n = range s.seconds * s.fps {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		frame := offset + uint32(n)*step
		if s.clockEvery > 0 && n%s.clockEvery == 0 {
			shiftClock(world, world.PTS(frame), dice)
			shiftScore(world, world.PTS(frame), world.PTS(frame+uint32(s.clockEvery)*step), dice)
		}
		if err := lines.Encode(world.Record(frame, frame-min(frame, step))); err != nil {
			return n, fmt.Errorf("write the truth: %w", err)
		}
		if film == nil || n%s.every != 0 {
			continue
		}
		if err := world.Render(frame, drawn); err != nil {
			return n, err
		}
		shrink.scale(kept, drawn)
		if _, err := film.Write(kept); err != nil {
			return n, fmt.Errorf("write a picture: %w", err)
		}
	}
	if film != nil {
		if err := film.finish(); err != nil {
			return n, err
		}
	}
	return s.seconds * s.fps, truth.finish()
}

// file is a file that gets its name when it is complete.
type file struct {
	*bufio.Writer

	name string
	f    *os.File
}

func create(name string) (*file, error) {
	f, err := os.Create(name + ".part")
	if err != nil {
		return nil, fmt.Errorf("create a file: %w", err)
	}
	return &file{Writer: bufio.NewWriterSize(f, 1<<20), name: name, f: f}, nil
}

// finish flushes the file and gives it its name.
func (f *file) finish() error {
	if err := errors.Join(f.Flush(), f.f.Close(), os.Rename(f.f.Name(), f.name)); err != nil {
		return fmt.Errorf("complete %s: %w", f.name, err)
	}
	return nil
}

// abandon removes an incomplete file.
func (f *file) abandon() {
	_ = f.f.Close()
	_ = os.Remove(f.f.Name())
}

// shiftClock shows another time of the half, every third time one of its first ten minutes, which have words of their own.
func shiftClock(world *worlds.World, at time.Duration, dice *rand.Rand) {
	const half = 45 * 60
	by := dice.IntN(half)
	world.ShiftClock(0)
	if m := world.Truth(at).Match; m != nil && dice.IntN(3) == 0 {
		by = half - m.Clock%half + dice.IntN(10*60)
	}
	world.ShiftClock(time.Duration(by) * time.Second)
}

// shiftScore changes the displayed score in an interval, such that the goals within it still count up.
func shiftScore(world *worlds.World, from, to time.Duration, dice *rand.Rand) {
	world.ShiftScore([2]int{}, [2]int{})
	first, last := world.Truth(from).Match, world.Truth(to).Match
	if first == nil || last == nil || first.Half > last.Half {
		return // another match begins, at nil-nil
	}
	var goals, shots [2]int
	for i := range goals {
		goals[i] = dice.IntN(10-last.Score[i]+first.Score[i]) - first.Score[i]
		shots[i] = dice.IntN(20) - first.Shots[i]
	}
	world.ShiftScore(goals, shots)
}
