package sight

import "touchline/internal/check"

// Config sets the engine.
type Config struct {
	// Bundle is the folder of the networks; "" means the one of `touchline models pull sight`.
	Bundle string `yaml:"bundle" env:"BUNDLE"`
	// Parts looks at two parts of each picture as well, which finds smaller things for three times the work.
	Parts bool `yaml:"parts" env:"PARTS"`
	// Text reads text in the picture.
	Text bool `yaml:"text" env:"TEXT"`
	// FPS is the number of looks a second of one room, of the pictures of media.capture_fps.
	FPS float64 `yaml:"fps" env:"FPS"`
}

// DefaultConfig returns 2.5 looks a second, with parts and text.
func DefaultConfig() Config { return Config{Parts: true, Text: true, FPS: 2.5} }

// Validate returns all violations, joined. Each message is "path: must be rule, is value" with the path below "inference.sight".
func (c Config) Validate() error {
	var s check.Settings
	s.That(c.FPS >= 1 && c.FPS <= 10, "fps", "between 1 and 10 looks a second", c.FPS)
	return s.Err()
}
