package agent

import (
	"fmt"
	"strconv"
	"time"
)

// HistoryConfig says what is remembered of a room, and whether it is written down.
type HistoryConfig struct {
	// Comments is how many comments a late joiner is shown.
	Comments int `yaml:"comments" env:"COMMENTS"`
	// Store is where records are kept across restarts: StoreNone, StoreFile or StoreSQLite.
	Store string `yaml:"store" env:"STORE"`
	// Path of the store: a folder for StoreFile, a file for StoreSQLite.
	Path string `yaml:"path" env:"PATH"`
	// OnlyComments leaves out the looks that ended without a comment.
	OnlyComments bool `yaml:"only_comments" env:"ONLY_COMMENTS"`
	// MaxBytes bounds the store; the oldest records go first.
	MaxBytes int `yaml:"max_bytes" env:"MAX_BYTES"`
	// MaxAge is how long records are kept; 0 is for as long as they fit.
	MaxAge time.Duration `yaml:"max_age" env:"MAX_AGE"`
	// RotateBytes and RotateAfter end one file of StoreFile and begin the next.
	RotateBytes int           `yaml:"rotate_bytes" env:"ROTATE_BYTES"`
	RotateAfter time.Duration `yaml:"rotate_after" env:"ROTATE_AFTER"`
}

// Kinds of store.
const (
	StoreNone   = ""       // nothing is written
	StoreFile   = "file"   // JSON lines in a folder, old files compressed
	StoreSQLite = "sqlite" // a SQLite database
)

// defaultHistory writes nothing down.
func defaultHistory() HistoryConfig {
	return HistoryConfig{
		Comments: 20, MaxBytes: 256 << 20, MaxAge: 30 * 24 * time.Hour,
		RotateBytes: 16 << 20, RotateAfter: 24 * time.Hour,
	}
}

func (c HistoryConfig) validate() []error {
	var errs []error
	check := func(ok bool, path, rule string, value any) {
		if !ok {
			errs = append(errs, fmt.Errorf("history.%s: must be %s, is %v", path, rule, value))
		}
	}
	check(c.Comments >= 0 && c.Comments <= 1000, "comments", "between 0 and 1000 comments", c.Comments)
	switch c.Store {
	case StoreNone:
	case StoreFile, StoreSQLite:
		what := map[string]string{StoreFile: "folder", StoreSQLite: "file"}[c.Store]
		check(c.Path != "", "path", fmt.Sprintf("the %s of the history when store is %s", what, c.Store), `""`)
	default:
		check(false, "store", `file, sqlite or "" for none`, strconv.Quote(c.Store))
	}
	check(c.MaxBytes >= 1<<20 && c.MaxBytes <= 1<<40, "max_bytes", "between 1048576 (1 MiB) and 1099511627776 (1 TiB) bytes", c.MaxBytes)
	check(c.MaxAge == 0 || c.MaxAge >= time.Minute, "max_age", "0s for no limit, or at least 1m", c.MaxAge)
	check(c.RotateBytes >= 64<<10 && c.RotateBytes <= c.MaxBytes, "rotate_bytes",
		fmt.Sprintf("between 65536 (64 KiB) and max_bytes (%d)", c.MaxBytes), c.RotateBytes)
	check(c.RotateAfter >= time.Minute && c.RotateAfter <= 366*24*time.Hour, "rotate_after", "between 1m and 8784h (a year)", c.RotateAfter)
	return errs
}
