package configs

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"touchline/agent/room/conn"
)

// Input tokens of MiniCPM-o 4.5.
const (
	// tileTokens is one tile of a picture: 64 and two marks.
	tileTokens = 66
	// tileSide is the side of a tile in pixels; a picture of at most that area is not cut.
	tileSide = 448
	// promptTokens is reserved for profile, instruction and the last comments.
	promptTokens = 1024
)

// cycleSpan returns the time from the oldest to the newest picture of a cycle, in seconds.
func (c Config) cycleSpan() float64 {
	return float64((c.Agent.Frames-1)*c.Agent.Stride) / c.Media.CaptureFPS
}

// cycleTokens returns the maximum input tokens of a cycle's pictures, for 16:9: one
// tile per picture, and one per part if the picture is larger than a tile and
// max_slices allows parts.
func (c Config) cycleTokens() int {
	side := float64(c.Media.LongSide)
	parts := min(math.Ceil(side*side*9/16/(tileSide*tileSide)), float64(c.Inference.MaxSlices))
	tiles := 1
	if parts > 1 {
		tiles += c.Inference.MaxSlices // The slicing may use one part more than needed.
	}
	return c.Agent.Frames * tiles * tileTokens
}

// Explain describes the effect of the settings, one line each.
func (c Config) Explain() []string {
	lines := []string{
		fmt.Sprintf("a cycle covers %.3g s: %d pictures, every %s of %.3g per second",
			c.cycleSpan(), c.Agent.Frames, ordinal(c.Agent.Stride), c.Media.CaptureFPS),
		fmt.Sprintf("its pictures cost at most %d tokens, of %d (inference.max_input_tokens)",
			c.cycleTokens(), c.Inference.MaxInputTokens),
		fmt.Sprintf("a cycle can cover at most %.3g s (media.window_size)", float64(c.Media.WindowSize-1)/c.Media.CaptureFPS),
	}
	switch {
	case c.Pacing.FixedDelay > 0:
		lines = append(lines, fmt.Sprintf("the picture is delayed by %v", c.Pacing.FixedDelay))
	case c.Pacing.InitialDelay == 0:
		lines = append(lines, "the picture is not delayed, so comments follow what they describe")
	default:
		lines = append(lines, fmt.Sprintf("the picture is delayed by %v at first, then as comments need, "+
			"between %v and %v", c.Pacing.InitialDelay, c.Pacing.MinDelay, c.Pacing.MaxDelay))
	}
	keys, _ := conn.RoomKeys(c.Agent.E2EEKey) // validated
	rooms := slices.Sorted(maps.Keys(keys))
	switch {
	case keys[""] != "":
		lines = append(lines, "all rooms have a key of end-to-end encryption")
	case len(rooms) > 0:
		lines = append(lines, "rooms with a key of end-to-end encryption: "+strings.Join(rooms, ", "))
	}
	return lines
}

func ordinal(n int) string {
	switch {
	case n == 1:
		return "one"
	case n%100/10 != 1 && n%10 == 2:
		return strconv.Itoa(n) + "nd"
	case n%100/10 != 1 && n%10 == 3:
		return strconv.Itoa(n) + "rd"
	case n%100/10 != 1 && n%10 == 1:
		return strconv.Itoa(n) + "st"
	}
	return strconv.Itoa(n) + "th"
}
