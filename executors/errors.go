package executors

import (
	"context"
	"errors"
	"time"

	"github.com/afterwrite/afterwrite/executors/core"
)

var (
	// ErrClosed is returned by Run when the connection to the broker was closed for good.
	ErrClosed = errors.New("executors: the connection to the broker is closed")
	// ErrStreamMissing is returned by New and Run when a stream that an executor needs does not exist. Streams are
	// created by the operator's tool and never by an executor.
	ErrStreamMissing = errors.New("executors: a stream is missing")
	// ErrExecutionsLost is returned by Run when the executions stream is not the one that it began with. What was
	// executed is then not known, so going on could execute it again; an operator must decide.
	ErrExecutionsLost = errors.New("executors: the executions stream was deleted or created anew while running")
)

// errLost: somebody else's record follows the one that was loaded.
var errLost = errors.New("executors: another record was written first")

// verdict is an error of an [Executor] or a [Delivery] that says how it wants to be taken.
type verdict struct {
	cause core.Cause
	at    time.Time
	err   error
}

func (v *verdict) Error() string { return string(v.cause) + ": " + v.err.Error() }
func (v *verdict) Unwrap() error { return v.err }

// causeNotStarted is no cause of the core: an effect that was not called does not fail.
const causeNotStarted core.Cause = "not_started"

// Never says that the effect will never take place. The execution fails.
func Never(err error) error { return &verdict{cause: core.CauseNever, err: err} }

// Retry says that the effect failed, and that calling it again may help. So does every error that is not one of
// these, and is not the deadline's.
func Retry(err error) error { return &verdict{cause: core.CauseFailed, err: err} }

// LaterAt says that the effect wants to be called at a later time. It is an attempt nevertheless.
func LaterAt(at time.Time, err error) error {
	return &verdict{cause: core.CauseLater, at: at, err: err}
}

// NotStarted says that the effect was certainly not called: nobody was there. It is tried again and is no attempt.
func NotStarted(err error) error { return &verdict{cause: causeNotStarted, err: err} }

// classify is the only place that turns an effect's error into what is recorded of it. Its text is not recorded.
func classify(err error) (cause core.Cause, at time.Time) {
	if v := (*verdict)(nil); errors.As(err, &v) {
		return v.cause, v.at
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return core.CauseTimedOut, time.Time{}
	}
	return core.CauseFailed, time.Time{}
}
