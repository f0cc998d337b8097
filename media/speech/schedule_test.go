package speech_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/speech"
)

// loud makes a packet of every frame, to show the schedule.
type loud struct{}

func (loud) Encode(_ []int16, _ []byte) (int, error) { return 3, nil }
func (loud) SetDTX(bool) error                       { return nil }

func TestScheduleDoesNotDriftInAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begin time.Time
		var n int
		var first, last uint32
		var worst time.Duration
		w := track(t, loud{}, writerFunc(func(_ []byte, ts uint32, _ bool) (time.Time, error) {
			now := time.Now()
			if n == 0 {
				first, begin = ts, now
			}
			n++
			last = ts
			worst = max(worst, now.Sub(begin.Add(samples(int(ts-first)))).Abs())
			return now, nil
		}))
		var h heard
		u := w.NewUtterance(h.events())
		_, err := u.Write(tone(48000, 0, time.Second, 0))
		require.NoError(t, err)
		u.End()
		at := time.Now().Add(59*time.Minute + 777*time.Microsecond)
		u.Start(at)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.WithinDuration(t, at, h.onset, 100*time.Microsecond)
		require.Less(t, worst, time.Microsecond)
		require.Greater(t, n, 3600*2, "a packet in 400 ms")
		require.InDelta(t, 3600*48000, float64(last-first), 20*960)
		require.Zero(t, w.Stats().SkippedFrames)
		require.Zero(t, w.Stats().LateWakes)
	})
}

// writerFunc is a PacketWriter.
type writerFunc func(payload []byte, timestamp uint32, marker bool) (time.Time, error)

func (f writerFunc) WriteOpus(payload []byte, timestamp uint32, marker bool) (time.Time, error) {
	return f(payload, timestamp, marker)
}

// TestLateFramesAreSentAtOnceUpToALimit: frames that are late by less than 120 ms are all sent; a longer stall skips those that are past.
func TestLateFramesAreSentAtOnceUpToALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &wire{}
		stall := map[int]time.Duration{10: 15 * time.Millisecond, 30: 105 * time.Millisecond, 45: 145 * time.Millisecond}
		n := 0
		var times []time.Time
		w := track(t, loud{}, writerFunc(func(p []byte, ts uint32, m bool) (time.Time, error) {
			times = append(times, time.Now())
			at, err := out.WriteOpus(p, ts, m)
			n++
			time.Sleep(stall[n]) // a machine that is busy after the nth packet
			return at, err
		}))
		begin := time.Now()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		got := out.all()
		for i, p := range got {
			late := times[i].Sub(begin.Add(samples(int(p.timestamp - got[0].timestamp))))
			require.GreaterOrEqual(t, late, -time.Microsecond, "packet %d", i)
			require.Less(t, late, 120*time.Millisecond, "packet %d", i)
		}
		// 105 ms late when frame 30 is due at 20 ms: five frames are sent at once. 145 ms: six frames are past.
		require.Equal(t, uint32(960), got[30].timestamp-got[29].timestamp)
		require.Equal(t, times[30], times[34])
		require.Equal(t, times[34].Add(15*time.Millisecond), times[35])
		require.Equal(t, uint64(6), w.Stats().SkippedFrames)
		require.Equal(t, uint64(6), w.Stats().LateWakes, "the five, and the one sent 5 ms late after the skip")
		require.Equal(t, uint32(7*960), got[45].timestamp-got[44].timestamp)
		require.Equal(t, uint32(960), got[10].timestamp-got[9].timestamp)
	})
}

func TestSilenceLeavesAPacketIn400ms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &wire{}
		w := track(t, nil, out)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		got := out.all()
		require.InDelta(t, 75, len(got), 15)
		for i, p := range got[1:] {
			require.Greater(t, len(p.payload), 2)
			require.False(t, p.marker, "comfort noise begins no talk spurt")
			require.LessOrEqual(t, p.at.Sub(got[i].at), 420*time.Millisecond)
			require.Equal(t, p.at.Sub(got[i].at), samples(int(p.timestamp-got[i].timestamp)))
		}
		require.InDelta(t, 1500, float64(w.Stats().Frames), 2)
	})
}

func TestMarkerBeginsEachTalkSpurt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &wire{}
		w := track(t, nil, out)
		var onsets []time.Time
		for range 3 {
			u := w.NewUtterance(speech.Events{Started: func(at time.Time) { onsets = append(onsets, at) }})
			_, err := u.Write(tone(24000, 200*time.Millisecond, 500*time.Millisecond, 0))
			require.NoError(t, err)
			u.End()
			u.Start(time.Now().Add(50 * time.Millisecond))
			time.Sleep(3 * time.Second)
		}
		synctest.Wait()
		require.Len(t, onsets, 3)
		var marked []packet
		for _, p := range out.all() {
			if p.marker {
				marked = append(marked, p)
			}
		}
		require.Len(t, marked, 3)
		for i, p := range marked {
			// The spurt begins with the 20 ms of lead, somewhere in a frame.
			before := onsets[i].Sub(p.at)
			require.GreaterOrEqual(t, before, 20*time.Millisecond)
			require.LessOrEqual(t, before, 50*time.Millisecond)
		}
	})
}

func TestUtterancesPlayInOrderOfStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &wire{}
		w := track(t, cheap{}, out)
		var hs [3]heard
		var us [3]*speech.Utterance
		for i := range us {
			us[i] = w.NewUtterance(hs[i].events())
			_, err := us[i].Write(tone(48000, 100*time.Millisecond, 700*time.Millisecond, 300*time.Millisecond))
			require.NoError(t, err)
			us[i].End()
		}
		at := time.Now().Add(100 * time.Millisecond)
		us[2].Start(at)
		us[0].Start(at)
		us[1].Start(at.Add(5 * time.Second))
		us[1].Start(at) // does nothing
		require.Equal(t, 3, w.Stats().Waiting)
		time.Sleep(7 * time.Second)
		synctest.Wait()
		require.InDelta(t, 0, hs[2].onset.Sub(at).Seconds(), 0.001)
		require.InDelta(t, 0.045, hs[0].onset.Sub(hs[2].end).Seconds(), 0.025, "the next follows at once")
		require.False(t, hs[0].onset.Before(hs[2].end))
		require.InDelta(t, 5, hs[1].onset.Sub(at).Seconds(), 0.001)
		require.Zero(t, w.Stats().Waiting)
	})
}

func TestLateStartComesAsSoonAsPossible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := track(t, nil, &wire{})
		time.Sleep(3 * time.Second)
		var h heard
		u := w.NewUtterance(h.events())
		_, err := u.Write(tone(16000, 250*time.Millisecond, 300*time.Millisecond, 0))
		require.NoError(t, err)
		u.End()
		now := time.Now()
		u.Start(now.Add(-time.Second))
		time.Sleep(time.Second)
		synctest.Wait()
		require.Greater(t, h.onset.Sub(now), time.Duration(0))
		require.Less(t, h.onset.Sub(now), 40*time.Millisecond)
	})
}

func TestCutIsSilentWithin40ms(t *testing.T) {
	for _, after := range []int{301, 307, 311, 319} {
		synctest.Test(t, func(t *testing.T) {
			out := &wire{}
			w := track(t, nil, out)
			var h, next heard
			u := w.NewUtterance(h.events())
			_, err := u.Write(tone(24000, 0, 3*time.Second, 0))
			require.NoError(t, err)
			u.Start(time.Now())
			time.Sleep(time.Duration(after) * time.Millisecond)
			cut := time.Now()
			u.Cut()
			u.Cut()
			_, err = u.Write(tone(24000, 0, time.Second, 0))
			require.ErrorIs(t, err, speech.ErrEnded)
			time.Sleep(time.Second)
			synctest.Wait()
			require.Equal(t, 1, h.stopped)
			require.True(t, h.cut)
			require.LessOrEqual(t, h.end.Sub(cut), 40*time.Millisecond)

			sound, from := listen(t, out.all())
			quiet := from.Add(samples(last(sound, 328)))
			require.LessOrEqual(t, quiet.Sub(cut), 40*time.Millisecond)

			// The line is free again.
			v := w.NewUtterance(next.events())
			_, err = v.Write(tone(24000, 0, 100*time.Millisecond, 0))
			require.NoError(t, err)
			v.End()
			v.Start(time.Now())
			time.Sleep(time.Second)
			synctest.Wait()
			require.Equal(t, 1, next.stopped)
		})
	}
}

// TestPauseGoesOnWhereItWas: all of the sound is heard, but for the pause.
func TestPauseGoesOnWhereItWas(t *testing.T) {
	const length, pause = 2 * time.Second, 1300 * time.Millisecond
	for _, cut := range []bool{false, true} {
		for _, after := range []int{-50, 301, 307, 313, 319} {
			synctest.Test(t, func(t *testing.T) {
				w := track(t, cheap{}, &wire{})
				frames, _ := w.Frames() // its end closes them
				var sound []int16
				go func() {
					for f := range frames {
						sound = append(sound, f.PCM...)
					}
				}()
				var h, next heard
				ramp := media.PCM{Rate: 48000, Samples: make([]int16, length/time.Second*48000)}
				for i := range ramp.Samples {
					ramp.Samples[i] = int16(1000 + i/4)
				}
				u := w.NewUtterance(h.events())
				_, err := u.Write(ramp)
				require.NoError(t, err)
				u.End()
				begin := time.Now().Add(100 * time.Millisecond)
				u.Start(begin)
				v := w.NewUtterance(next.events())
				_, err = v.Write(tone(48000, 0, 100*time.Millisecond, 0))
				require.NoError(t, err)
				v.End()
				v.Start(begin)
				time.Sleep(time.Duration(after+100) * time.Millisecond)
				synctest.Wait()
				paused := time.Now()
				from := len(sound)
				u.Pause()
				u.Pause()
				time.Sleep(pause)
				synctest.Wait()
				quiet := sound[min(len(sound), from+48*40):]
				require.Greater(t, len(quiet), 48*1200)
				require.Zero(t, rms(quiet), "silent within 40 ms")
				require.Zero(t, next.started, "the next one waits")
				if cut {
					u.Cut()
				} else {
					u.Resume()
				}
				time.Sleep(3 * time.Second)
				synctest.Wait()
				require.Equal(t, 1, next.stopped)
				if cut {
					require.Zero(t, rms(sound[len(sound)-48*2900:len(sound)-48*2850]), "nothing more of it")
					if after > 0 {
						require.True(t, h.cut)
						require.WithinDuration(t, paused, h.end, 40*time.Millisecond)
					}
					return
				}
				require.False(t, h.cut)
				require.Equal(t, 1, h.stopped)
				require.Empty(t, h.slipped, "a pause is no loss")
				require.WithinDuration(t, begin.Add(length+pause), h.end, 60*time.Millisecond)
				heard := map[int16]bool{}
				for _, v := range sound {
					heard[v] = true
				}
				missing := 0 // in the fades
				for v := int16(1100); v < 1000+int16(len(ramp.Samples)/4)-100; v++ {
					if !heard[v] {
						missing++
					}
				}
				require.LessOrEqual(t, missing, 8*48/4+1, "after %d ms", after)
			})
		}
	}
}

func TestCutBeforeTheOnsetIsWithoutAWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &wire{}
		w := track(t, cheap{}, out)
		var h heard
		u := w.NewUtterance(h.events())
		_, err := u.Write(tone(24000, 0, time.Second, 0))
		require.NoError(t, err)
		u.Start(time.Now().Add(500 * time.Millisecond))
		time.Sleep(100 * time.Millisecond)
		u.Cut()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Zero(t, h.started)
		require.Zero(t, h.stopped)
		require.Empty(t, out.all())
		require.Zero(t, w.Stats().Waiting)
	})
}

func TestUnderrunGoesOnWhereItStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &wire{}
		w := track(t, nil, out)
		var h heard
		u := w.NewUtterance(h.events())
		_, err := u.Write(tone(48000, 0, 500*time.Millisecond, 0))
		require.NoError(t, err)
		u.Start(time.Now())
		time.Sleep(2 * time.Second)
		require.Equal(t, uint64(1), w.Stats().Underruns)
		require.Zero(t, h.stopped)
		_, err = u.Write(tone(48000, 0, 500*time.Millisecond, 200*time.Millisecond))
		require.NoError(t, err)
		require.InDelta(t, 1.0, u.End().Seconds(), 0.011)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 1, h.stopped)
		require.InDelta(t, 2.5, h.end.Sub(h.onset).Seconds(), 0.05)
		require.Equal(t, uint64(1), w.Stats().Underruns)
		require.Len(t, h.slipped, 1)
		require.InDelta(t, 1.5, h.slipped[0].Seconds(), 0.05)
	})
}

// TestSkippedFramesAreTold: an utterance tells by how much its rest has moved after each stall of the track, and pauses do not count.
func TestSkippedFramesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pause = 700 * time.Millisecond
		n := 0
		// A frame is due 20 ms after each stall begins. The second and third one skip none.
		stall := map[int]time.Duration{
			20: 145 * time.Millisecond, 30: 15 * time.Millisecond, 40: 125 * time.Millisecond, 90: 265 * time.Millisecond,
		}
		var h heard
		w := track(t, loud{}, writerFunc(func([]byte, uint32, bool) (time.Time, error) {
			now := time.Now()
			if h.started > 0 {
				n++
			}
			time.Sleep(stall[n])
			return now, nil
		}))
		u := w.NewUtterance(h.events())
		_, err := u.Write(tone(48000, 0, 3*time.Second, 0))
		require.NoError(t, err)
		require.Equal(t, 3*time.Second, u.End())
		u.Start(time.Now().Add(100 * time.Millisecond))
		for range 2 {
			time.Sleep(800 * time.Millisecond)
			u.Pause()
			time.Sleep(pause)
			u.Resume()
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		require.Equal(t, []time.Duration{120 * time.Millisecond, 360 * time.Millisecond}, h.slipped, "in total")
		require.InDelta(t, (3*time.Second + 2*pause + h.slipped[1]).Seconds(), h.end.Sub(h.onset).Seconds(), 0.06)
	})
}

func TestEndAfterTheSoundIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := track(t, cheap{}, &wire{})
		var h heard
		u := w.NewUtterance(h.events())
		_, err := u.Write(tone(48000, 0, 500*time.Millisecond, 300*time.Millisecond))
		require.NoError(t, err)
		u.Start(time.Now())
		time.Sleep(3 * time.Second)
		require.Zero(t, h.stopped)
		u.End()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 1, h.stopped)
		require.InDelta(t, 0.5, h.end.Sub(h.onset).Seconds(), 0.011, "the end is when the sound ended, not when End was called")
	})
}

func TestSilentUtteranceIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := track(t, cheap{}, &wire{})
		var h, next heard
		u := w.NewUtterance(h.events())
		audible, err := u.Write(media.PCM{Rate: 24000, Samples: make([]int16, 24000)})
		require.NoError(t, err)
		require.Zero(t, audible)
		require.InDelta(t, 1, u.LeadTrimmed().Seconds(), 0.011)
		u.Start(time.Now())
		v := w.NewUtterance(next.events())
		_, err = v.Write(tone(24000, 0, 100*time.Millisecond, 0))
		require.NoError(t, err)
		v.End()
		v.Start(time.Now())
		time.Sleep(time.Second)
		require.Zero(t, next.started, "the first may still get sound")
		require.Zero(t, u.End())
		time.Sleep(time.Second)
		synctest.Wait()
		require.Zero(t, h.started+h.stopped)
		require.Equal(t, 1, next.stopped)
	})
}

func TestRunEndsUtterances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := speech.NewWithEncoder(speech.Options{Out: &wire{}}, cheap{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		frames, stop := w.Frames()
		defer stop()
		var h, waiting heard
		for _, ev := range []*heard{&h, &waiting} {
			u := w.NewUtterance(ev.events())
			_, err := u.Write(tone(48000, 0, 3*time.Second, 0))
			require.NoError(t, err)
			u.Start(time.Now())
		}
		time.Sleep(time.Second)
		cancel()
		require.NoError(t, <-done)
		require.Equal(t, 1, h.stopped)
		require.True(t, h.cut)
		require.WithinDuration(t, time.Now(), h.end, 40*time.Millisecond)
		require.Zero(t, waiting.stopped)
		n := 0
		for range frames { // Run has closed it
			n++
		}
		require.Equal(t, 50, n)
		late, _ := w.Frames()
		require.Empty(t, late)
		_, open := <-late
		require.False(t, open)
	})
}

func TestSlowSubscriberLosesFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := track(t, cheap{}, &wire{})
		frames, cancel := w.Frames()
		slow, cancelSlow := w.Frames()
		defer cancelSlow()
		u := w.NewUtterance(speech.Events{})
		_, err := u.Write(tone(48000, 0, time.Second, 0))
		require.NoError(t, err)
		u.End()
		u.Start(time.Now())
		var got []int16
		for range 100 {
			got = append(got, (<-frames).PCM...)
		}
		cancel()
		cancel()
		require.InDelta(t, 48000, last(got, 104)-first(got, 104), 960)
		synctest.Wait()
		require.Len(t, slow, 50)
		require.InDelta(t, 50, float64(w.Stats().Lost), 2)
	})
}

func TestWriteErrorsAreCountedAndTheTrackGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := track(t, loud{}, writerFunc(func([]byte, uint32, bool) (time.Time, error) {
			return time.Time{}, errors.New("no network")
		}))
		var h heard
		u := w.NewUtterance(h.events())
		_, err := u.Write(tone(48000, 0, 100*time.Millisecond, 0))
		require.NoError(t, err)
		u.End()
		at := time.Now().Add(100 * time.Millisecond)
		u.Start(at)
		time.Sleep(time.Second)
		synctest.Wait()
		require.InDelta(t, 0, h.onset.Sub(at).Seconds(), 0.001)
		require.Equal(t, w.Stats().Packets, w.Stats().WriteErrors)
	})
}

func TestBadInput(t *testing.T) {
	_, err := speech.New(speech.Options{})
	require.ErrorContains(t, err, "speech.Options.Out")
	w, err := speech.New(speech.Options{Out: &wire{}})
	require.NoError(t, err)
	u := w.NewUtterance(speech.Events{})
	for _, rate := range []int{-1, 0, 1, 3999, 192001, 1 << 30} {
		_, err = u.Write(media.PCM{Rate: rate, Samples: make([]int16, 10)})
		require.ErrorContains(t, err, "sample rate", "%d", rate)
	}
	for range 180 {
		_, err = u.Write(tone(48000, 0, time.Second, 0))
		require.NoError(t, err)
	}
	_, err = u.Write(tone(48000, 0, time.Second, 0))
	require.ErrorIs(t, err, speech.ErrTooLong)
	for range 100 {
		v := w.NewUtterance(speech.Events{})
		v.Start(time.Now())
	}
	require.Equal(t, uint64(36), w.Stats().Refused)
}

// TestPanicInEvent: a panic in an event holds no lock that Write needs.
func TestPanicInEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := speech.NewWithEncoder(speech.Options{Out: writerFunc(func([]byte, uint32, bool) (time.Time, error) {
			return time.Now(), nil
		})}, loud{})
		require.NoError(t, err)
		u := w.NewUtterance(speech.Events{Started: func(time.Time) { panic("crash in Started") }})
		_, err = u.Write(tone(48000, 0, time.Second, 0))
		require.NoError(t, err)
		u.Start(time.Now().Add(time.Second))
		require.PanicsWithValue(t, "crash in Started", func() { _ = w.Run(t.Context()) })
		_, err = u.Write(tone(48000, 0, time.Second, 0))
		require.Error(t, err)
		require.Zero(t, w.Stats().Waiting)
	})
}

// TestGain: a changed level is heard from the next frame on, without a step, and clips at the range.
func TestGain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := track(t, cheap{}, &wire{})
		frames, end := w.Frames()
		defer end()
		u := w.NewUtterance(speech.Events{})
		_, err := u.Write(tone(48000, 0, 2*time.Second, 0))
		require.NoError(t, err)
		u.End()
		u.Start(time.Now())
		var heard []int16
		take := func(d time.Duration) (peak int16) {
			time.Sleep(d)
			synctest.Wait()
			for len(frames) > 0 {
				f := (<-frames).PCM
				heard = append(heard, f...)
				peak = max(peak, slices.Max(f))
			}
			return peak
		}
		require.InDelta(t, 6500, take(300*time.Millisecond), 10)
		for _, c := range []struct {
			db   float64
			peak float64
		}{{-6, 3258}, {6, 12969}, {24, 32767}, {0, 6500}} {
			w.SetGain(c.db)
			take(40 * time.Millisecond) // the ramp
			require.InDelta(t, c.peak, take(200*time.Millisecond), 10, "%g dB", c.db)
		}
		for i := 1; i < len(heard); i++ {
			step := math.Abs(float64(heard[i]) - float64(heard[i-1]))
			require.Less(t, step, 6500*15.9*2*math.Pi*440/48000+16.0, "a click at sample %d", i)
		}
	})
}
