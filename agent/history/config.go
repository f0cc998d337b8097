package history

import (
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"touchline/internal/check"
)

// Config sets the number of comments for late joiners, and the store.
type Config struct {
	// Comments is the number of comments for late joiners.
	Comments int `yaml:"comments" env:"COMMENTS"`
	// Store is the kind of store that survives restarts: StoreNone, StoreFile or StoreSQLite.
	Store string `yaml:"store" env:"STORE"`
	// Path of the database: its folder for StoreFile, its file for StoreSQLite.
	Path string `yaml:"path" env:"PATH"`
	// OnlyComments leaves out cycles without a comment.
	OnlyComments bool `yaml:"only_comments" env:"ONLY_COMMENTS"`
	// Heard is HeardOff or HeardText: whether the speech of people in the room is stored. Spoken orders are always stored.
	Heard string `yaml:"heard" env:"HEARD"`
	// MaxBytes bounds the store. The oldest records are removed first.
	MaxBytes int `yaml:"max_bytes" env:"MAX_BYTES"`
	// MaxAge bounds the age of records; 0 is no limit.
	MaxAge time.Duration `yaml:"max_age" env:"MAX_AGE"`
}

// Kinds of store.
const (
	StoreNone   = ""       // nothing is written
	StoreFile   = "file"   // a SQLite database, history.db, in a folder
	StoreSQLite = "sqlite" // a SQLite database
)

// Values of Config.Heard.
const (
	HeardOff  = "off"  // spoken orders only
	HeardText = "text" // all texts
)

// DefaultConfig stores nothing.
func DefaultConfig() Config {
	return Config{Comments: 20, Heard: HeardOff, MaxBytes: 256 << 20, MaxAge: 30 * 24 * time.Hour}
}

// database returns the path of the database.
func (c Config) database() string {
	if c.Store == StoreFile {
		return filepath.Join(c.Path, databaseName)
	}
	return c.Path
}

// Validate checks every setting and reports all that are wrong, joined. Each
// message is "path: must be rule, is value" with the YAML path below "agent.history".
func (c Config) Validate() error {
	var s check.Settings
	s.That(c.Comments >= 0 && c.Comments <= 1000, "comments", "between 0 and 1000 comments", c.Comments)
	switch c.Store {
	case StoreNone:
	case StoreFile, StoreSQLite:
		what := map[string]string{StoreFile: "folder", StoreSQLite: "file"}[c.Store]
		s.That(c.Path != "", "path", fmt.Sprintf("the %s of the history when store is %s", what, c.Store), `""`)
	default:
		s.That(false, "store", `file, sqlite or "" for none`, strconv.Quote(c.Store))
	}
	s.That(c.Heard == HeardOff || c.Heard == HeardText, "heard", "off or text", strconv.Quote(c.Heard))
	s.That(c.MaxBytes >= 1<<20 && c.MaxBytes <= 1<<40, "max_bytes", "between 1048576 (1 MiB) and 1099511627776 (1 TiB) bytes", c.MaxBytes)
	s.That(c.MaxAge == 0 || c.MaxAge >= time.Minute, "max_age", "0s for no limit, or at least 1m", c.MaxAge)
	return s.Err()
}
