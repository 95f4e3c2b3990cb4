package flags

import (
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Log says what is logged, and how.
type Log struct {
	LogLevel  zapcore.Level `env:"AFTERWRITE_LOG_LEVEL" default:"info" help:"One of debug, info, warn, error."`
	LogFormat LogFormat     `env:"AFTERWRITE_LOG_FORMAT" enum:"json,console" default:"json" help:"json for machines, console for people."`
}

// LogFormat is how a log line is written.
type LogFormat string

const (
	// LogJSON writes one JSON object a line.
	LogJSON LogFormat = "json"
	// LogConsole writes lines for people.
	LogConsole LogFormat = "console"
)

// Logger is a logger that writes to w.
func (f Log) Logger(w io.Writer) *zap.Logger {
	config := zap.NewProductionEncoderConfig()
	config.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoder := zapcore.NewJSONEncoder(config)
	if f.LogFormat == LogConsole {
		config.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		config.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(config)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), f.LogLevel))
}
