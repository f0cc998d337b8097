package media

// Config sets what is done with the picture.
type Config struct {
	// Watch chooses the track.
	Watch WatchConfig `yaml:"watch" envPrefix:"WATCH_"`
	// CaptureFPS is how many pictures a second go into the window (1/s).
	CaptureFPS float64 `yaml:"capture_fps" env:"CAPTURE_FPS"`
	// LongSide is the longer edge of a sampled picture, in pixels.
	LongSide int `yaml:"long_side" env:"LONG_SIDE"`
	// WindowSize is how many sampled pictures are kept.
	WindowSize int `yaml:"window_size" env:"WINDOW_SIZE"`
	// Relay publishes the delayed copy.
	Relay bool `yaml:"relay" env:"RELAY"`
	// RelayMaxBytes and RelayMaxSeconds bound the delay line.
	RelayMaxBytes   int     `yaml:"relay_max_bytes" env:"RELAY_MAX_BYTES"`
	RelayMaxSeconds float64 `yaml:"relay_max_seconds" env:"RELAY_MAX_SECONDS"`
	// JPEGQuality of snapshots, 1 to 100.
	JPEGQuality int `yaml:"jpeg_quality" env:"JPEG_QUALITY"`
	// MJPEGFPS is the rate of /api/mjpeg when the source's own is unknown (1/s).
	MJPEGFPS float64 `yaml:"mjpeg_fps" env:"MJPEG_FPS"`
}

// WatchConfig chooses the video track to watch. Empty fields do not restrict.
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
		JPEGQuality:     80,
		MJPEGFPS:        10,
	}
}
