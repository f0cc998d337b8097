package media

import (
	"fmt"

	"touchline/internal/check"
)

// Config of the picture.
type Config struct {
	// Watch selects the track.
	Watch WatchConfig `yaml:"watch" envPrefix:"WATCH_"`
	// CaptureFPS is the sampling rate of pictures (1/s).
	CaptureFPS float64 `yaml:"capture_fps" env:"CAPTURE_FPS"`
	// LongSide is the longer edge of a sampled picture, in pixels.
	LongSide int `yaml:"long_side" env:"LONG_SIDE"`
	// WindowSize is the number of sampled pictures that are kept.
	WindowSize int `yaml:"window_size" env:"WINDOW_SIZE"`
	// Relay publishes the delayed copy.
	Relay bool `yaml:"relay" env:"RELAY"`
	// RelayMaxBytes and RelayMaxSeconds bound the delay line (bytes of packets, s of
	// media); older frames are dropped up to the next key frame.
	RelayMaxBytes   int     `yaml:"relay_max_bytes" env:"RELAY_MAX_BYTES"`
	RelayMaxSeconds float64 `yaml:"relay_max_seconds" env:"RELAY_MAX_SECONDS"`
	// MaskDelayed masks the delayed copy too: with masks in the room, it is decoded and encoded again.
	MaskDelayed bool `yaml:"mask_delayed" env:"MASK_DELAYED"`
	// CameraSound publishes the camera's sound, delayed like the picture; only with Relay.
	CameraSound bool `yaml:"camera_sound" env:"CAMERA_SOUND"`
	// DuckDB is the attenuation of that sound while the bot speaks (dB).
	DuckDB float64 `yaml:"duck_db" env:"DUCK_DB"`
	// JPEGQuality of snapshots, 1 to 100.
	JPEGQuality int `yaml:"jpeg_quality" env:"JPEG_QUALITY"`
	// MJPEGFPS bounds the picture rate of /api/mjpeg (1/s).
	MJPEGFPS float64 `yaml:"mjpeg_fps" env:"MJPEG_FPS"`
}

// WatchConfig selects the video track to watch. Empty fields match any.
type WatchConfig struct {
	// Identity of the participant.
	Identity string `yaml:"identity" env:"IDENTITY"`
	// Source is "camera", "screen_share" or "" for either, camera first.
	Source string `yaml:"source" env:"SOURCE"`
}

// DefaultConfig returns the settings of the sniper preset.
func DefaultConfig() Config {
	return Config{
		CaptureFPS:      5,
		LongSide:        448,
		WindowSize:      48,
		Relay:           true,
		RelayMaxBytes:   64 << 20,
		RelayMaxSeconds: 30,
		CameraSound:     true,
		DuckDB:          12,
		JPEGQuality:     80,
		MJPEGFPS:        10,
	}
}

// Validate checks every setting and reports all that are wrong, joined. Each
// message is "path: rule, is value" with the YAML path below "media".
func (c Config) Validate() error {
	var s check.Settings
	switch c.Watch.Source {
	case "", "camera", "screen_share":
	default:
		s.That(false, "watch.source", `camera, screen_share or "" for either`, fmt.Sprintf("%q", c.Watch.Source))
	}
	// Written as "inside", not as "not outside", so that NaN fails as well.
	s.That(c.CaptureFPS >= 0.1 && c.CaptureFPS <= 30, "capture_fps",
		"between 0.1 and 30 pictures a second", c.CaptureFPS)
	s.That(c.LongSide >= 64 && c.LongSide <= 4096, "long_side", "between 64 and 4096 pixels", c.LongSide)
	s.That(c.WindowSize >= 1 && c.WindowSize <= 1024, "window_size", "between 1 and 1024 pictures", c.WindowSize)
	s.That(c.RelayMaxBytes >= 1<<20 && c.RelayMaxBytes <= 4<<30, "relay_max_bytes",
		"between 1048576 (1 MiB) and 4294967296 (4 GiB) bytes", c.RelayMaxBytes)
	s.That(c.RelayMaxSeconds >= 1 && c.RelayMaxSeconds <= 600, "relay_max_seconds",
		"between 1 and 600 seconds", c.RelayMaxSeconds)
	s.That(c.DuckDB >= 0 && c.DuckDB <= 60, "duck_db", "between 0 and 60 dB", c.DuckDB)
	s.That(c.JPEGQuality >= 1 && c.JPEGQuality <= 100, "jpeg_quality", "between 1 and 100", c.JPEGQuality)
	s.That(c.MJPEGFPS > 0 && c.MJPEGFPS <= 60, "mjpeg_fps", "over 0 and at most 60 pictures a second", c.MJPEGFPS)
	return s.Err()
}
