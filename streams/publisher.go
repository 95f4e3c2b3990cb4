package streams

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
)

// PublisherOptions configure a [Publisher]. The zero value of a field is its default.
type PublisherOptions struct {
	// Source names the component that publishes, as the CloudEvents source. By default "orchestrator".
	Source string
	// AttemptTimeout is how long the broker may take to answer before the receipt is sent again. By default 5 s.
	AttemptTimeout time.Duration
	// Backoff is the pause after the first attempt; it doubles up to MaxBackoff. By default 100 ms, up to 5 s.
	Backoff, MaxBackoff time.Duration
	// Trace gives the W3C traceparent and tracestate that ctx carries, if any. By default none is sent.
	Trace func(ctx context.Context) (traceParent, traceState string)
}

// WithDefaults fills in what is not set.
func (o PublisherOptions) WithDefaults() PublisherOptions {
	setDefault(&o.Source, "orchestrator")
	setDefault(&o.AttemptTimeout, 5*time.Second)
	setDefault(&o.Backoff, 100*time.Millisecond)
	setDefault(&o.MaxBackoff, 5*time.Second)
	if o.Trace == nil {
		o.Trace = func(context.Context) (string, string) { return "", "" }
	}
	return o
}

// Publisher publishes receipts of durable writebacks, for an orchestrator to call after its commit. It is safe for
// concurrent use.
type Publisher struct {
	js      jetstream.Publisher
	options PublisherOptions
}

// NewPublisher makes a publisher. Any [jetstream.JetStream] is a [jetstream.Publisher].
func NewPublisher(js jetstream.Publisher, options PublisherOptions) *Publisher {
	return &Publisher{js: js, options: options.WithDefaults()}
}

// Published says what became of a receipt.
type Published struct {
	// MessageID is the receipt's, see [events.Receipt.MessageID].
	MessageID string
	// Sequence is where [Receipts] holds the receipt.
	Sequence uint64
	// Duplicate reports that the stream held the receipt already: from an earlier call, or from an attempt of this
	// one whose answer was lost. Nothing was stored again, and nothing has to be done.
	Duplicate bool
}

// Publish stores a receipt and returns once the broker has it. It checks the receipt first, see [CheckReceipt]. It
// repeats the receipt under the same message id until ctx ends, so that an answer that was lost stores nothing twice.
//
// Call it again with the same receipt after any error, and after a crash: within the stream's duplicate window the
// broker drops what it has, and after that the journal knows what was decided.
//
// The error is a [*ReceiptError], or wraps [ErrStreamFull], [ErrNoStream] or [ErrUnconfirmed] together with the
// context's, or is what the broker has against the message.
func (p *Publisher) Publish(ctx context.Context, receipt *events.Receipt) (Published, error) {
	data, err := events.Encode(receipt)
	if err != nil {
		return Published{}, &ReceiptError{Reason: events.RefusedMalformed, Rule: err.Error()}
	}
	if _, err := CheckReceipt(data); err != nil {
		return Published{}, err
	}
	id := events.SHA256(data) // data is canonical
	msg := &nats.Msg{Subject: ReceiptSubject(receipt.EventKind), Header: p.header(ctx, id, receipt), Data: data}

	var known error
	for pause := p.options.Backoff; ; pause = min(2*pause, p.options.MaxBackoff) {
		ack, err := p.attempt(ctx, msg)
		if err == nil {
			return Published{MessageID: id, Sequence: ack.Sequence, Duplicate: ack.Duplicate}, nil
		}
		cause := classify(err)
		if cause == nil {
			return Published{}, fmt.Errorf("streams: publish receipt %s: %w", id, err)
		}
		// An attempt that the end of ctx cut short says less than the answers before it.
		if known == nil || ctx.Err() == nil {
			known = cause
		}
		// Publishers that were refused together should not all come back together.
		jittered := pause - pause/5 + rand.N(2*(pause/5)+1)
		select {
		case <-ctx.Done():
			return Published{}, fmt.Errorf("streams: publish receipt %s: %w: %w", id, known, context.Cause(ctx))
		case <-time.After(jittered):
		}
	}
}

func (p *Publisher) header(ctx context.Context, id string, receipt *events.Receipt) nats.Header {
	envelope := events.NewEnvelope(id, p.options.Source, events.ReceiptSchema, receipt.Receipt.CommittedAt)
	envelope.TraceParent, envelope.TraceState = p.options.Trace(ctx)
	header := envelope.Header()
	header[HeaderMessageID] = []string{id}
	// Were the subject another stream's, its answer would be taken for that of the receipts.
	header[jetstream.ExpectedStreamHeader] = []string{Receipts}
	return header
}

func (p *Publisher) attempt(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	ctx, cancel := context.WithTimeout(ctx, p.options.AttemptTimeout)
	defer cancel()
	return p.js.PublishMsg(ctx, msg, jetstream.WithRetryAttempts(0))
}

// Error codes of the server for which the client library has no name.
const (
	codeInsufficientResources jetstream.ErrorCode = 10023
	codeStorageExceeded       jetstream.ErrorCode = 10047
	codeStoreFailed           jetstream.ErrorCode = 10077
	codeDuplicateInProcess    jetstream.ErrorCode = 10158
)

// classify gives the sentinel of an error that may pass, and nil for one that repeating does not help.
func classify(err error) error {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return ErrNoStream
	case errors.As(err, &api):
		switch {
		case api.ErrorCode == codeInsufficientResources, api.ErrorCode == codeStorageExceeded,
			// The code is of any failure to store; only the text tells that a limit was reached.
			api.ErrorCode == codeStoreFailed && strings.HasPrefix(api.Description, "maximum "):
			return ErrStreamFull
		case api.Code >= 500,
			// An earlier attempt is not stored yet, and comes to nothing if its leader goes.
			api.ErrorCode == codeDuplicateInProcess:
			return ErrUnconfirmed
		}
		return nil
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, nats.ErrTimeout),
		errors.Is(err, nats.ErrDisconnected), errors.Is(err, nats.ErrConnectionReconnecting),
		errors.Is(err, nats.ErrReconnectBufExceeded):
		return ErrUnconfirmed
	}
	return nil
}

// CheckReceipt decodes a receipt and applies every rule of admission that needs no configuration and no clock. The
// error is a [*ReceiptError].
//
// A receipt that passes may still be refused: for its profile or its age, which only the dispatcher knows.
func CheckReceipt(data []byte) (*events.Receipt, error) {
	if len(data) > events.MaxReceiptBytes {
		return nil, &ReceiptError{
			Reason: events.RefusedTooLarge,
			Rule:   fmt.Sprintf("must have at most %d bytes, it has %d", events.MaxReceiptBytes, len(data)),
		}
	}
	receipt, err := events.Decode[events.Receipt](data)
	if err != nil {
		refused := &ReceiptError{Reason: events.RefusedMalformed, Rule: err.Error()}
		if decode := (*events.DecodeError)(nil); errors.As(err, &decode) {
			refused.Member, refused.Rule = decode.Path, decode.Rule
		}
		return nil, refused
	}
	if !receipt.EventKind.Known() {
		return nil, &ReceiptError{events.RefusedUnknownEventKind, "event_kind", "must be a known event kind"}
	}
	if reason, member := receipt.Inadmissible(); reason != "" {
		return nil, &ReceiptError{reason, member, receiptRules[reason]}
	}
	return receipt, nil
}

// receiptRules say what a receipt must be that is not to be refused for a reason.
var receiptRules = map[events.RefusalReason]string{
	events.RefusedIdentityIncomplete:  "must not be empty",
	events.RefusedEffectMismatch:      "must be the effect id of the plan",
	events.RefusedNotDurableWriteback: `must be "durable_writeback"`,
	events.RefusedNotCommitted:        `must be "committed"`,
	events.RefusedNotCheckpointed:     "must be true",
}
