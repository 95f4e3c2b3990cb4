package natsembed

import (
	"fmt"
	"sync"

	"go.uber.org/zap"
)

// logger hands the server's log to zap. The server calls Fatalf where a program of its own would exit; here the
// message is kept, to become the error of [Start].
type logger struct {
	log *zap.SugaredLogger

	mu    sync.Mutex
	cause string
}

func newLogger(log *zap.Logger) *logger {
	if log == nil {
		log = zap.NewNop()
	}
	return &logger{log: log.Named("nats").Sugar()}
}

func (l *logger) Noticef(format string, v ...any) { l.log.Infof(format, v...) }
func (l *logger) Warnf(format string, v ...any)   { l.log.Warnf(format, v...) }
func (l *logger) Errorf(format string, v ...any)  { l.log.Errorf(format, v...) }
func (l *logger) Debugf(format string, v ...any)  { l.log.Debugf(format, v...) }
func (l *logger) Tracef(format string, v ...any)  { l.log.Debugf(format, v...) }

func (l *logger) Fatalf(format string, v ...any) {
	l.log.Errorf(format, v...)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == "" {
		l.cause = fmt.Sprintf(format, v...)
	}
}

// fatal is the first message given to Fatalf, or "".
func (l *logger) fatal() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}
