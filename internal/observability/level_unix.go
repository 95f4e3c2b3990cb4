//go:build unix

package observability

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// LevelBySignal has SIGUSR1 switch between the debug level and the one that l has now, until ctx is done. It needs no
// listener, and whoever may send it may end the process too.
func LevelBySignal(ctx context.Context, l *Logger) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	configured := l.Level.Level()
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case <-signals:
			case <-ctx.Done():
				return
			}
			level := zapcore.DebugLevel
			if l.Level.Level() == zapcore.DebugLevel {
				level = configured
			}
			l.Level.SetLevel(level)
			l.Warn("log level changed", zap.Stringer("level", level))
		}
	}()
}
