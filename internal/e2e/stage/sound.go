package stage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"touchline/agent"
	"touchline/configs"
)

// The camera hums at one pitch all the time, or not, and beeps at another each
// second, with the picture whose number is a multiple of its pictures a second.
const (
	humPitch, beepPitch = 300, 1200 // Hz
	humLevel, beepLevel = 3000, 12000
	beepLength          = sampleRate / 10
	beepAudible         = 1500 // amplitude

	soundFPS = 30 // of the camera
)

// Beeps is such a camera's sound.
func Beeps(hum bool) func(from int64, pcm []int16) {
	return func(from int64, pcm []int16) {
		for i := range pcm {
			n := from + int64(i)
			v := 0.0
			if hum {
				v += humLevel * math.Sin(2*math.Pi*humPitch*float64(n%sampleRate)/sampleRate)
			}
			if n%sampleRate < beepLength {
				v += beepLevel * math.Sin(2*math.Pi*beepPitch*float64(n%sampleRate)/sampleRate)
			}
			pcm[i] = int16(v)
		}
	}
}

// Noise is 10 ms of the camera's sound as it was heard: the amplitudes of hum and beep.
type Noise struct {
	At        time.Time
	Hum, Beep float64
}

func (v *Viewer) hearCamera(at time.Time, block []int16) {
	n := Noise{At: at, Hum: amplitude(block, humPitch), Beep: amplitude(block, beepPitch)}
	v.mu.Lock()
	v.camera = append(v.camera, n)
	v.mu.Unlock()
}

// amplitude of one frequency, by the algorithm of Goertzel.
func amplitude(pcm []int16, hz float64) float64 {
	c := 2 * math.Cos(2*math.Pi*hz/sampleRate)
	var s1, s2 float64
	for _, v := range pcm {
		s1, s2 = float64(v)+c*s1-s2, s1
	}
	return math.Sqrt(max(0, s1*s1+s2*s2-c*s1*s2)) * 2 / float64(len(pcm))
}

// BeepOffsets tells by how much each beep of Beeps came later than its picture, the one whose number is a multiple of fps.
func BeepOffsets(seen Seen, fps uint32) []time.Duration {
	var out []time.Duration
	var last time.Time
	i := 0
	for _, n := range seen.Camera {
		if n.Beep < beepAudible {
			continue
		}
		if n.At.Sub(last) > quietBefore {
			// The picture of this beep is the nearest of those it can belong to.
			for i < len(seen.Pictures) && seen.Pictures[i].At.Before(n.At.Add(-time.Second/2)) {
				i++
			}
			for _, p := range seen.Pictures[i:] {
				if p.Read && p.Counter%fps == 0 {
					if off := n.At.Sub(p.At); off.Abs() < time.Second/2 {
						out = append(out, off)
					}
					break
				}
			}
		}
		last = n.At
	}
	return out
}

// drops compares the hum under speech with the hum before, in dB, once for each talk of more than a second.
func drops(seen Seen) []float64 {
	level := func(from, to time.Time) float64 {
		var all []float64
		for _, n := range seen.Camera {
			if n.At.After(from) && n.At.Before(to) && n.Beep < beepAudible {
				all = append(all, n.Hum)
			}
		}
		slices.Sort(all)
		if len(all) < 5 {
			return 0
		}
		return all[len(all)/2]
	}
	var out []float64
	for i, t := range seen.Talks {
		if t.To.Sub(t.From) < time.Second || i > 0 && t.From.Sub(seen.Talks[i-1].To) < time.Second {
			continue
		}
		before := level(t.From.Add(-450*time.Millisecond), t.From.Add(-100*time.Millisecond))
		under := level(t.From.Add(50*time.Millisecond), t.To.Add(-50*time.Millisecond))
		if before > 0 && under > 0 {
			out = append(out, 20*math.Log10(before/under))
		}
	}
	slices.Sort(out)
	return out
}

// Sound listens to the camera's sound beside the delayed picture: how far apart
// they are, while D stands still and, on another stage at the same time, while it
// moves, and how much lower the sound is under speech.
func Sound(ctx context.Context, length time.Duration, log zerolog.Logger) ([]Row, error) {
	var still, moving []time.Duration
	var lower []float64
	var jumps uint64
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		still, lower, err = soundAtRest(ctx, length, log)
		return err
	})
	g.Go(func() (err error) {
		moving, jumps, err = soundOnTheMove(ctx, length, log)
		return err
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return append(offsetRows(fmt.Sprintf("D at 2 s, %d beeps", len(still)), still, 60),
		CheckRange(fmt.Sprintf("lower under speech, %d comments, median", len(lower)), lower[len(lower)/2], 10, 14, "dB"),
		offsetRows(fmt.Sprintf("D to 2.5 s and back, %d beeps", len(moving)), moving, 100)[0],
		Note("jumps of the sound meanwhile", strconv.FormatUint(jumps, 10)),
	), nil
}

// soundStage has a camera that beeps, and a viewer.
func soundStage(ctx context.Context, hum bool, pause time.Duration, log zerolog.Logger) (*Stage, *Viewer, error) {
	cfg := configs.Default()
	cfg.Pacing.FixedDelay = 2 * time.Second
	cfg.Pacing.PauseAfter = pause
	s, err := NewStage(ctx, StageOptions{
		Model: NewEngine(1, time.Second, time.Second), Config: &cfg, Seed: 5, FPS: soundFPS, Sound: Beeps(hum), Log: log,
	})
	if err != nil {
		return nil, nil, err
	}
	v, _, err := s.AddViewer(false)
	if err != nil {
		s.Close()
		return nil, nil, err
	}
	return s, v, nil
}

// soundAtRest leaves D alone, and pauses in which the hum is heard by itself.
func soundAtRest(ctx context.Context, length time.Duration, log zerolog.Logger) (offsets []time.Duration, lower []float64, err error) {
	s, v, err := soundStage(ctx, true, 2*time.Second, log)
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	if err := Wait(ctx, length); err != nil {
		return nil, nil, err
	}
	_, err = Until(ctx, 30*time.Second, "5 beeps and 2 comments", func() bool {
		seen := v.Seen()
		offsets, lower = BeepOffsets(seen, soundFPS), drops(seen)
		return len(offsets) >= 5 && len(lower) >= 2
	})
	return offsets, lower, errors.Join(err, s.Errors())
}

// soundOnTheMove changes D while there is silence between beeps.
func soundOnTheMove(ctx context.Context, length time.Duration, log zerolog.Logger) ([]time.Duration, uint64, error) {
	s, v, err := soundStage(ctx, false, 500*time.Millisecond, log)
	if err != nil {
		return nil, 0, err
	}
	defer s.Close()
	_, err = Until(ctx, 30*time.Second, "the first beep", func() bool { return len(BeepOffsets(v.Seen(), soundFPS)) > 0 })
	if err != nil {
		return nil, 0, errors.Join(err, s.Errors())
	}
	for _, d := range []float64{2.5, 2} {
		if _, err := s.Bot.Update(agent.Settings{FixedDelay: &d}, "measurement"); err != nil {
			return nil, 0, err
		}
		if err := Wait(ctx, max(length/2, 7*time.Second)); err != nil {
			return nil, 0, err
		}
	}
	all := BeepOffsets(v.Seen(), soundFPS)
	if len(all) < 5 {
		return nil, 0, fmt.Errorf("expected 5 beeps or more while D moved, heard %d", len(all))
	}
	return all, s.Bot.Sound().Jumps, s.Errors()
}

// offsetRows say how far sound and picture are apart.
func offsetRows(what string, offsets []time.Duration, most float64) []Row {
	size := make([]time.Duration, len(offsets))
	for i, o := range offsets {
		size[i] = o.Abs()
	}
	slices.Sort(size)
	slices.Sort(offsets)
	return []Row{
		Check("sound and picture apart, "+what+", p95", ms(Quantile(size, 0.95)), most, "ms"),
		Note("sound later than picture, median", fmt.Sprintf("%.1f ms", ms(offsets[len(offsets)/2]))),
	}
}
