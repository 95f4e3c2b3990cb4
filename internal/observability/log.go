package observability

import (
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// LogOptions say what is logged, and how.
type LogOptions struct {
	Level zapcore.Level
	// Console writes lines for people instead of one JSON object a line.
	Console bool
	// Burst is how many lines with the same message and level are written in a second. Of those beyond, one in
	// [Thereafter] is. 0 writes all.
	Burst int
}

// Thereafter is which part of the lines beyond a burst is written.
const Thereafter = 100

// Logger is a logger whose level can be changed while it is in use.
type Logger struct {
	*zap.Logger
	Level zap.AtomicLevel

	dropped *prometheus.CounterVec
}

// NewLogger makes a logger that writes to w.
func NewLogger(w io.Writer, o LogOptions) *Logger {
	config := zap.NewProductionEncoderConfig()
	config.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoder := zapcore.NewJSONEncoder(config)
	if o.Console {
		config.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		config.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(config)
	}
	l := &Logger{Level: zap.NewAtomicLevelAt(o.Level), dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "afterwrite_log_lines_dropped_total", Help: "Log lines beyond a burst that were not written.",
	}, []string{"level"})}
	core := zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), l.Level)
	if o.Burst > 0 {
		core = zapcore.NewSamplerWithOptions(core, time.Second, o.Burst, Thereafter, zapcore.SamplerHook(
			func(entry zapcore.Entry, decision zapcore.SamplingDecision) {
				if decision&zapcore.LogDropped != 0 {
					l.dropped.WithLabelValues(entry.Level.String()).Inc()
				}
			}))
	}
	l.Logger = zap.New(core)
	return l
}

// Register registers the logger's own metric.
func (l *Logger) Register(registry prometheus.Registerer) error { return registry.Register(l.dropped) }
