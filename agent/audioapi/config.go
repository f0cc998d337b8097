package audioapi

import (
	"time"

	"touchline/internal/check"
)

// Config sets the limits of transcription as a service.
type Config struct {
	// MaxBytes is the largest upload, MaxDuration its longest sound.
	MaxBytes    int           `yaml:"max_bytes" env:"MAX_BYTES"`
	MaxDuration time.Duration `yaml:"max_duration" env:"MAX_DURATION"`
	// Parallel is the number of recordings transcribed at once, Queue the number that may wait.
	Parallel int `yaml:"parallel" env:"PARALLEL"`
	Queue    int `yaml:"queue" env:"QUEUE"`
	// Sessions is the largest number of live sessions.
	Sessions int `yaml:"sessions" env:"SESSIONS"`
	// AnyModel accepts any model name, since one model is loaded.
	AnyModel bool `yaml:"any_model" env:"ANY_MODEL"`
}

// DefaultConfig returns the settings in force when nothing is configured.
func DefaultConfig() Config {
	return Config{MaxBytes: 100 << 20, MaxDuration: 20 * time.Minute, Parallel: 4, Queue: 16, Sessions: 64, AnyModel: true}
}

// Validate checks every setting and reports all that are wrong, joined. Each
// message is "path: must be rule, is value" with the YAML path below "agent.console.transcription".
func (c Config) Validate() error {
	var s check.Settings
	s.That(check.Within(c.MaxBytes, 64<<10, 4<<30), "max_bytes", "between 65536 and 4294967296 bytes", c.MaxBytes)
	s.That(check.Within(c.MaxDuration, time.Second, 4*time.Hour), "max_duration", "between 1s and 4h", c.MaxDuration)
	s.That(check.Within(c.Parallel, 1, 256), "parallel", "between 1 and 256 recordings", c.Parallel)
	s.That(check.Within(c.Queue, 0, 4096), "queue", "between 0 and 4096 recordings", c.Queue)
	s.That(check.Within(c.Sessions, 1, 4096), "sessions", "between 1 and 4096", c.Sessions)
	return s.Err()
}
