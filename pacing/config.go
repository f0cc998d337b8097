package pacing

import "time"

// Config sets how picture, voice and words are lined up.
type Config struct {
	// InitialDelay is D before anything was measured; 0 turns the adaptive
	// delay off and shows the picture without delay.
	InitialDelay time.Duration `yaml:"initial_delay" env:"INITIAL_DELAY"`
	// FixedDelay pins D; 0 lets it follow what is measured.
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
	// PauseAfter is the breath after speech.
	PauseAfter time.Duration `yaml:"pause_after" env:"PAUSE_AFTER"`
	// MinInterval is the shortest time between two looks.
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
