package streams

import (
	"strings"

	"github.com/afterwrite/afterwrite/events"
)

// DispatcherConsumer is the durable consumer by which all dispatchers share [Receipts].
const DispatcherConsumer = "dispatcher"

// RetryConsumer is the durable consumer of a hook on [Retries].
func RetryConsumer(hookID events.HookID) string { return Token(hookID) }

// ParseRetryConsumer reads a [RetryConsumer].
func ParseRetryConsumer(consumer string) (hookID events.HookID, ok bool) { return Name(consumer) }

// ExecutorConsumer is the durable consumer of an executor for one intent kind on [Intents].
func ExecutorConsumer(executor events.ExecutorID, kind events.IntentKind) string {
	return Token(executor) + "--" + Token(kind)
}

// ParseExecutorConsumer reads an [ExecutorConsumer].
func ParseExecutorConsumer(consumer string) (executor events.ExecutorID, kind events.IntentKind, ok bool) {
	left, right, ok := strings.Cut(consumer, "--")
	executor, okLeft := Name(left)
	kind, okRight := Name(right)
	return executor, kind, ok && okLeft && okRight
}
