package flags

import (
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/afterwrite/afterwrite/internal/observability"
)

// Log says what is logged, and how.
type Log struct {
	LogLevel  zapcore.Level `env:"AFTERWRITE_LOG_LEVEL" default:"info" help:"One of debug, info, warn, error."`
	LogFormat LogFormat     `env:"AFTERWRITE_LOG_FORMAT" enum:"json,console" default:"json" help:"json for machines, console for people."`
	LogBurst  int           `env:"AFTERWRITE_LOG_BURST" default:"100" help:"Lines with the same message and level that are written in a second; of those beyond, one in 100 is. 0 writes all."`
}

// LogFormat is how a log line is written.
type LogFormat string

const (
	// LogJSON writes one JSON object a line.
	LogJSON LogFormat = "json"
	// LogConsole writes lines for people.
	LogConsole LogFormat = "console"
)

// Open makes a logger that writes to w, and whose level can be changed.
func (f Log) Open(w io.Writer) *observability.Logger {
	return observability.NewLogger(w, observability.LogOptions{
		Level: f.LogLevel, Console: f.LogFormat == LogConsole, Burst: f.LogBurst,
	})
}

// Logger is a logger that writes to w.
func (f Log) Logger(w io.Writer) *zap.Logger { return f.Open(w).Logger }
