package media

import "time"

// TicksToDuration converts a count of a clock of rate Hz to a duration, rounded
// towards zero. Multiplying by time.Second first would overflow after 28 hours at
// 90 kHz.
func TicksToDuration(ticks, rate int64) time.Duration {
	return time.Duration(ticks/rate)*time.Second + time.Duration(ticks%rate)*time.Second/time.Duration(rate)
}

// DurationToTicks converts a duration to a count of a clock of rate Hz, rounded
// towards zero. It does not overflow for rates up to 1 GHz.
func DurationToTicks(d time.Duration, rate int64) int64 {
	return int64(d/time.Second)*rate + int64(d%time.Second)*rate/int64(time.Second)
}
