package main

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"touchline/agent/command"
	"touchline/agent/settings"
	"touchline/cmd/internal/bench"
	"touchline/internal/e2e/stage"
	"touchline/internal/quantile"
)

func (r *run) changeSettings(s *stage.Stage, c command.Change) {
	_, err := s.Bot.Change(c, "measurement")
	r.Check(err)
}

// delayChange sets D from 2 to 5 s and back and watches the relayed pictures.
func delayChange(r *run) {
	s, v := r.watched(stage.Options{Model: stage.NewEngine(1, time.Second, time.Second), Config: fixedDelay(), Seed: 5})
	r.Wait(6 * time.Second)
	from := time.Now()
	for _, d := range []float64{5, 2} {
		r.changeSettings(s, command.Change{Settings: settings.Settings{FixedDelay: &d}})
		r.Wait(38 * time.Second)
		if got := s.Bot.Snapshot().Delay; got < d-0.05 || got > d+0.05 {
			r.Check(fmt.Errorf("delay D is %g s after its change to %g s", got, d))
		}
	}
	var gap time.Duration
	back, n := 0, 0
	var last *stage.Picture
	seen := v.Seen()
	lost, sent := s.Lost(seen)
	for i := range seen.Pictures {
		p := &seen.Pictures[i]
		if p.At.Before(from) {
			continue
		}
		n++
		if !p.Read {
			continue
		}
		if last != nil {
			gap = max(gap, p.At.Sub(last.At))
			if p.PTS <= last.PTS || p.Counter <= last.Counter {
				back++
			}
		}
		last = p
	}
	r.Note("pictures seen", "%d", n)
	r.AtMost("longest gap between pictures, D 2 -> 5 -> 2 s", bench.MS(gap), 100, "ms")
	r.AtMost("timestamps going back", float64(back), 0, "")
	r.AtMost(fmt.Sprintf("frames lost of %d that the camera sent", sent), float64(lost), 0, "")
}

// relay watches the delayed copy for a while: jitter, lost frames, and the first picture of late viewers.
func relay(r *run) {
	length := r.flags.Relay
	s := r.stage(stage.Options{Model: stage.NewEngine(1, time.Second, time.Second), Config: fixedDelay(), Seed: 6, Crowd: r.flags.Sound})
	r.Wait(8 * time.Second) // without viewers: key frames every 4 s
	v, _, err := s.AddViewer(false)
	r.Check(err)
	first := r.seesPicture(v)
	late := lateViewers(r, s, length)
	seen := v.Seen()
	lost, sent := s.Lost(seen)
	offsets := relayJitter(seen)
	r.Note("pictures seen", "%d in %v", len(seen.Pictures), length)
	r.Note("jitter of the relay p50", "%.2f ms", bench.MS(quantile.Of(offsets, 0.5)))
	r.AtMost("jitter of the relay p99", bench.MS(quantile.Of(offsets, 0.99)), 5, "ms")
	r.AtMost(fmt.Sprintf("frames lost of %d that the camera sent", sent), float64(lost), 0, "")
	r.AtMost("packets lost", float64(seen.Lost), 0, "")
	r.AtMost("first viewer after none sees a picture after", first.Seconds(), 2+1.5, "s")
	r.AtMost("late viewer sees a picture after, worst of "+strconv.Itoa(len(late)), slices.Max(late).Seconds(), 1.5, "s")
}

// lateViewers lets five viewers join one after the other, and returns the times to their first pictures.
func lateViewers(r *run, s *stage.Stage, length time.Duration) []time.Duration {
	var late []time.Duration
	end := time.Now().Add(length)
	for i := 0; i == 0 || time.Now().Before(end); i++ {
		r.Wait(min(length/6+time.Duration(i)*137*time.Millisecond, max(time.Until(end), time.Second)))
		if len(late) == 5 {
			continue
		}
		v, leave, err := s.AddViewer(true)
		r.Check(err)
		late = append(late, r.seesPicture(v))
		leave()
	}
	return late
}

// relayJitter returns how far the arrival of each picture is from its timestamp, around the median.
func relayJitter(seen stage.Seen) []time.Duration {
	offsets := make([]time.Duration, 0, len(seen.Pictures))
	for _, p := range seen.Pictures {
		offsets = append(offsets, p.At.Sub(seen.Pictures[0].At)-(p.PTS-seen.Pictures[0].PTS))
	}
	median := quantile.Of(offsets, 0.5)
	for i := range offsets {
		offsets[i] = (offsets[i] - median).Abs()
	}
	return offsets
}
