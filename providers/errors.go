package providers

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"go.uber.org/zap"

	"github.com/afterwrite/afterwrite/events"
)

// ErrorCode is the Nats-Service-Error-Code of an answer that is none. The set is closed.
type ErrorCode string

const (
	// ErrorRefused: the request breaks the contract. The same request will be refused again.
	ErrorRefused ErrorCode = "400"
	// ErrorFailed: the hook or service failed, panicked, or answered outside its promise.
	ErrorFailed ErrorCode = "500"
	// ErrorOverloaded: no free place in the queue, or the provider is stopping. Another replica may answer.
	ErrorOverloaded ErrorCode = "503"
	// ErrorTimedOut: the deadline passed before there was an answer.
	ErrorTimedOut ErrorCode = "504"
)

var (
	// errOverloaded is returned for a call that finds its endpoint's queue full.
	errOverloaded = errors.New("the provider has no free place for the call")
	// errStopping is the cause that ends a service's context when draining takes too long.
	errStopping = errors.New("the provider is stopping")
	// errTimedOut is returned for a call past its deadline, and is the cause that ends a service's context then.
	errTimedOut = errors.New("the call was not answered by its deadline")
)

// AnswerError says that an author's answer breaks the contract or the promise made for it.
type AnswerError struct {
	// Rule is what the answer holds and must not, as in "the same proposal twice".
	Rule string
}

func (e *AnswerError) Error() string { return "the answer holds " + e.Rule }

// panicError is a panic of author code.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %T", e.value) }

// guard calls author code and returns its panic as an error.
func guard[T any](call func() (T, error)) (answer T, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &panicError{value, debug.Stack()}
		}
	}()
	return call()
}

// classify is the only place that turns an error into what the caller hears. The text of an error that the SDK did
// not make is withheld: it may repeat a private value.
func classify(err error) (code ErrorCode, text string) {
	var (
		refused *events.DecodeError
		answer  *AnswerError
	)
	switch {
	case errors.As(err, &answer):
		return ErrorFailed, answer.Error()
	case errors.As(err, &refused):
		return ErrorRefused, refused.Error()
	case errors.Is(err, errOverloaded):
		return ErrorOverloaded, errOverloaded.Error()
	case errors.Is(err, errStopping):
		return ErrorOverloaded, errStopping.Error()
	case errors.Is(err, errTimedOut), errors.Is(err, context.DeadlineExceeded):
		return ErrorTimedOut, errTimedOut.Error()
	}
	return ErrorFailed, "the provider failed"
}

// logFields tell an operator where to look without repeating what author code said. A runtime error speaks of
// indexes and types only, so its text is safe.
func logFields(err error) []zap.Field {
	paniced := (*panicError)(nil)
	if !errors.As(err, &paniced) {
		return []zap.Field{zap.String("error_type", fmt.Sprintf("%T", err))}
	}
	fields := []zap.Field{zap.String("error_type", paniced.Error()), zap.ByteString("stack", paniced.stack)}
	if fault, ok := paniced.value.(runtime.Error); ok {
		fields = append(fields, zap.String("fault", fault.Error()))
	}
	return fields
}
