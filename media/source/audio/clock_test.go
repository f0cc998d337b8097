package audio_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media/source"
	"touchline/media/source/audio"
)

func TestClockTellsTheCapture(t *testing.T) {
	for _, rate := range []int{8000, 44100, 48000} {
		c := audio.NewClock(rate)
		o := source.Opus{Timestamp: 1}
		c.Stamp(&o)
		require.True(t, o.Arrival.IsZero(), "nothing came yet")
		c.SenderReport(time.Unix(1, 0), 5)

		first := uint32(math.MaxUint32 - rate/2) // it wraps on the way
		began, theirs := time.Unix(1000, 0), time.Unix(5, 0)
		for i := range 100 {
			late := time.Duration(i%7) * time.Millisecond
			c.Packet(first+uint32(i*rate/50), began.Add(time.Duration(i)*20*time.Millisecond+late)) // modulo 2^32
		}
		base := uint32(int64(first) * 48000 / int64(rate))          // modulo 2^32
		c.SenderReport(theirs.Add(time.Second), first+uint32(rate)) // modulo 2^32
		for _, after := range []time.Duration{0, 990 * time.Millisecond, 3 * time.Second} {
			o = source.Opus{Timestamp: base + uint32(after*48000/time.Second)} // modulo 2^32
			c.Stamp(&o)
			require.WithinDuration(t, theirs.Add(after), o.NTP, 100*time.Microsecond)
			require.WithinDuration(t, began.Add(after), o.Arrival, 7*time.Millisecond)
		}

		// A restarted timestamp is another stream with an unknown clock.
		c.Packet(first+math.MaxInt32, began.Add(10*time.Second))
		o = source.Opus{Timestamp: uint32(int64(first+math.MaxInt32) * 48000 / int64(rate))} // modulo 2^32
		c.Stamp(&o)
		require.Zero(t, o.NTP)
		require.Equal(t, began.Add(10*time.Second), o.Arrival)
	}
}

// TestClockAfterDays: times stay exact over a weekend.
func TestClockAfterDays(t *testing.T) {
	for _, rate := range []int{8000, 44100, 48000} {
		c := audio.NewClock(rate)
		began := time.Unix(1000, 0)
		const step = 30 * time.Second
		for i := range int64(72 * time.Hour / step) {
			timestamp := i * int64(step/time.Second) * int64(rate)
			at := began.Add(time.Duration(i) * step)
			c.Packet(uint32(timestamp), at)                                      // modulo 2^32
			o := source.Opus{Timestamp: uint32(timestamp * 48000 / int64(rate))} // modulo 2^32
			c.Stamp(&o)
			require.WithinDuration(t, at, o.Arrival, time.Millisecond, "%d Hz after %v", rate, time.Duration(i)*step)
		}
	}
}
