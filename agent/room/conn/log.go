package conn

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/livekit/protocol/logger"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"
)

// librarySink writes the client library's log: errors as warnings, but at debug level while the Session joins or reconnects, which
// this package logs and retries itself; everything else at debug and trace level. A packet of any participant may cause a warning, with
// a text of its own: warnings are limited, and texts cut.
type librarySink struct {
	log      zerolog.Logger
	quiet    func() bool
	warnings *WarnLimiter // shared by the sinks of a connection, as count
	count    *atomic.Uint64
}

const (
	// libraryWarnEvery is the interval of the library's warnings of a connection.
	libraryWarnEvery = 10 * time.Second
	// maxField bounds the bytes of a text in the library's log.
	maxField = 200
)

func libraryLogger(log zerolog.Logger, quiet func() bool) logger.Logger {
	log = log.With().Str("component", "livekit").Logger()
	return logger.LogRLogger(logr.New(librarySink{log, quiet, &WarnLimiter{Every: libraryWarnEvery}, &atomic.Uint64{}}))
}

// Besides the loggers of its rooms, the library has one logger for the process, which it reads without a lock.
var loggerOnce sync.Once //nolint:gochecknoglobals // mirrors a process-wide fact of the library

// SetLibraryLogger sets the library's logger of the process, once.
func SetLibraryLogger(log zerolog.Logger) {
	loggerOnce.Do(func() { lksdk.SetLogger(libraryLogger(log, func() bool { return true })) })
}

// Init implements logr.LogSink.
func (librarySink) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (s librarySink) Enabled(level int) bool { return s.level(level) >= s.log.GetLevel() }

func (librarySink) level(v int) zerolog.Level {
	if v > 0 {
		return zerolog.TraceLevel
	}
	return zerolog.DebugLevel
}

// Info implements logr.LogSink.
func (s librarySink) Info(v int, msg string, keysAndValues ...any) {
	s.log.WithLevel(s.level(v)).Fields(cut(keysAndValues)).Msg(msg)
}

// Error implements logr.LogSink.
func (s librarySink) Error(err error, msg string, keysAndValues ...any) {
	if err != nil {
		err = errors.New(cutText(fmt.Sprint(err)))
	}
	if s.quiet() {
		s.log.Debug().Err(err).Fields(cut(keysAndValues)).Msg(msg)
		return
	}
	s.warnings.Warn(s.log.With().Fields(cut(keysAndValues)).Logger(), s.count.Add(1), err, msg)
}

// cut returns a copy of a line's fields with shorter texts.
func cut(keysAndValues []any) []any {
	out := slices.Clone(keysAndValues)
	for i, v := range out {
		switch v := v.(type) {
		case string:
			out[i] = cutText(v)
		case error:
			out[i] = cutText(fmt.Sprint(v)) // also of a nil pointer
		}
	}
	return out
}

func cutText(s string) string {
	if len(s) <= maxField {
		return s
	}
	return strings.ToValidUTF8(s[:maxField], "") + "..."
}

// WithValues implements logr.LogSink.
func (s librarySink) WithValues(keysAndValues ...any) logr.LogSink {
	s.log = s.log.With().Fields(cut(keysAndValues)).Logger()
	return s
}

// WithName implements logr.LogSink.
func (s librarySink) WithName(name string) logr.LogSink {
	s.log = s.log.With().Str("logger", name).Logger()
	return s
}

// WarnLimiter logs a repeated failure at a bounded rate.
type WarnLimiter struct {
	Every time.Duration // 0 is a second
	mu    sync.Mutex
	last  time.Time
}

// Warn logs a failure with the count so far, unless it logged one within Every.
func (c *WarnLimiter) Warn(log zerolog.Logger, count uint64, err error, msg string) {
	c.mu.Lock()
	now := time.Now()
	soon := !c.last.IsZero() && now.Sub(c.last) < cmp.Or(c.Every, time.Second)
	if !soon {
		c.last = now
	}
	c.mu.Unlock()
	if !soon {
		log.Warn().Err(err).Uint64("so_far", count).Msg(msg)
	}
}
