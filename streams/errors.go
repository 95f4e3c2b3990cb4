package streams

import (
	"errors"
	"strings"

	"github.com/afterwrite/afterwrite/events"
)

// RefusedError is returned by [Apply] when fields differ that it does not change. It has then changed nothing.
type RefusedError struct {
	Differences []Difference
}

func (e *RefusedError) Error() string {
	lines := make([]string, len(e.Differences))
	for i, d := range e.Differences {
		lines[i] = d.String()
	}
	return "streams: nothing was applied: " + strings.Join(lines, "\n")
}

// ReceiptError is returned for a receipt that every dispatcher would refuse. Nothing was sent. It repeats no value
// of the receipt.
type ReceiptError struct {
	// Reason is what the refusal would be recorded with.
	Reason events.RefusalReason
	// Member is the member that breaks the rule; "" for the document itself.
	Member string
	// Rule is the rule, as in "must not be empty".
	Rule string
}

func (e *ReceiptError) Error() string {
	member := e.Member
	if member == "" {
		member = "the document"
	}
	return "the receipt would be refused as " + string(e.Reason) + ": " + member + " " + e.Rule
}

// After any of these the receipt is to be published again: that is always safe, and an attempt that was cut short
// may have stored it.
var (
	// ErrStreamFull is returned by [Publisher.Publish] when the stream, or the broker, had no room for the receipt
	// until the context ended.
	ErrStreamFull = errors.New("the stream of receipts is full")

	// ErrNoStream is returned by [Publisher.Publish] when no stream took the receipt until the context ended: it was
	// not created, or its leader was away all the time.
	ErrNoStream = errors.New("there is no stream of receipts")

	// ErrUnconfirmed is returned by [Publisher.Publish] when the broker did not answer until the context ended.
	ErrUnconfirmed = errors.New("the broker did not confirm the receipt")
)
