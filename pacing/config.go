package pacing

import (
	"fmt"
	"time"

	"touchline/internal/check"
)

// Config sets the timing of picture, voice and words.
type Config struct {
	// InitialDelay is D before the first comment; 0 turns the adaptive delay off
	// and shows the picture without delay.
	InitialDelay time.Duration `yaml:"initial_delay" env:"INITIAL_DELAY"`
	// FixedDelay sets a constant D, also above MaxDelay; 0 adapts D.
	FixedDelay time.Duration `yaml:"fixed_delay" env:"FIXED_DELAY"`
	// MinDelay and MaxDelay bound D.
	MinDelay time.Duration `yaml:"min_delay" env:"MIN_DELAY"`
	MaxDelay time.Duration `yaml:"max_delay" env:"MAX_DELAY"`
	// Quantile of "ready minus arrival" that D follows, 0 to 1.
	Quantile float64 `yaml:"quantile" env:"QUANTILE"`
	// Margin is added to the quantile.
	Margin time.Duration `yaml:"margin" env:"MARGIN"`
	// Slew is the largest change of D per media time, 0 to 0.1.
	Slew float64 `yaml:"slew" env:"SLEW"`
	// PauseAfter is the pause after speech, longer while speech loses time (PlaybackClock.Rest).
	PauseAfter time.Duration `yaml:"pause_after" env:"PAUSE_AFTER"`
	// MinInterval is the shortest time between the starts of two cycles.
	MinInterval time.Duration `yaml:"min_interval" env:"MIN_INTERVAL"`
}

// DefaultConfig returns the settings of the sniper preset.
func DefaultConfig() Config {
	return Config{
		InitialDelay: 4 * time.Second,
		MinDelay:     0,
		MaxDelay:     15 * time.Second,
		Quantile:     0.95,
		Margin:       400 * time.Millisecond,
		Slew:         0.1,
		PauseAfter:   500 * time.Millisecond,
		MinInterval:  500 * time.Millisecond,
	}
}

// Validate returns all violations, joined. Each message is "path: must be rule,
// is value" with the YAML path below "pacing".
func (c Config) Validate() error {
	var s check.Settings
	s.That(check.Within(c.MaxDelay, 100*time.Millisecond, time.Minute), "max_delay", "between 100ms and 1m", c.MaxDelay)
	s.That(check.Within(c.MinDelay, 0, c.MaxDelay), "min_delay", fmt.Sprintf("between 0s and max_delay (%v)", c.MaxDelay), c.MinDelay)
	s.That(c.InitialDelay == 0 || check.Within(c.InitialDelay, c.MinDelay, c.MaxDelay), "initial_delay",
		fmt.Sprintf("0s for no delay at all, or between min_delay (%v) and max_delay (%v)", c.MinDelay, c.MaxDelay),
		c.InitialDelay)
	s.That(check.Within(c.FixedDelay, 0, 30*time.Second), "fixed_delay", "0s to follow what is measured, or at most 30s", c.FixedDelay)
	// At 1, a single outlier would set the delay.
	s.That(c.Quantile >= 0.5 && c.Quantile < 1, "quantile", "at least 0.5 and under 1", c.Quantile)
	s.That(check.Within(c.Margin, 0, 10*time.Second), "margin", "between 0s and 10s", c.Margin)
	s.That(c.Slew > 0 && c.Slew <= 0.1, "slew", "over 0 and at most 0.1", c.Slew)
	s.That(check.Within(c.PauseAfter, 0, time.Minute), "pause_after", "between 0s and 1m", c.PauseAfter)
	s.That(check.Within(c.MinInterval, 0, time.Minute), "min_interval", "between 0s and 1m", c.MinInterval)
	return s.Err()
}
