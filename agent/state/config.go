package state

// Config sets where the state is kept.
type Config struct {
	// Path is the folder of the state file; "" keeps nothing across restarts.
	Path string `yaml:"path" env:"PATH"`
}
