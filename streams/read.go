package streams

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
)

// ErrMissing is returned by [Read] where the stream is not there: the streams were not applied, or it is another
// account.
var ErrMissing = errors.New("the stream does not exist: apply the streams first")

// Stored is a document as a stream holds it.
type Stored[D any] struct {
	Document D
	Envelope events.Envelope
	Subject  string
	Sequence uint64
	// At is when the stream took it.
	At time.Time
}

// Read reads what a stream holds on the filter's subjects, in the order it was written, and ends with what its leader
// holds when it begins. With latest it reads the last message of each subject only. A message that is not an event of
// a document is an error that names its sequence; the reader may go on.
func Read[D any](
	ctx context.Context, js jetstream.JetStream, stream, filter string, latest bool, decode func([]byte) (D, error),
) iter.Seq2[Stored[D], error] {
	return func(yield func(Stored[D], error) bool) {
		fail := func(err error) {
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				err = ErrMissing
			}
			yield(Stored[D]{}, fmt.Errorf("streams: read %s: %w", stream, err))
		}
		policy := jetstream.DeliverAllPolicy
		if latest {
			policy = jetstream.DeliverLastPerSubjectPolicy
		}
		consumer, err := reader(ctx, js, stream, jetstream.OrderedConsumerConfig{
			FilterSubjects: []string{filter}, DeliverPolicy: policy,
		})
		if err != nil {
			fail(err)
			return
		}
		defer forget(ctx, js, stream, consumer)
		// The consumer may sit on a replica that lags, and does not know what is still to come.
		end, err := lastSequence(ctx, js, stream, filter)
		if err != nil || end == 0 {
			if err != nil {
				fail(err)
			}
			return
		}
		messages, err := consumer.Messages()
		if err != nil {
			fail(err)
			return
		}
		defer messages.Stop()
		for sequence := uint64(0); sequence < end; {
			m, err := next(ctx, messages)
			if err != nil {
				fail(err)
				return
			}
			stored, err := readStored(m, decode)
			if !yield(stored, err) {
				return
			}
			sequence = stored.Sequence
		}
	}
}

// How long a reading waits until it says that it cannot go on.
const (
	// stall: for a message that is there.
	stall = 10 * time.Second
	// unanswered: for the answer to a request, as the client library does where the caller has set no time.
	unanswered = 5 * time.Second
)

// reader makes the consumer of a reading. The request is lost where its leader goes while it is asked.
func reader(ctx context.Context, js jetstream.JetStream, stream string, config jetstream.OrderedConsumerConfig) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, unanswered)
	defer cancel()
	return js.OrderedConsumer(ctx, stream, config)
}

func next(ctx context.Context, messages jetstream.MessagesContext) (jetstream.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, stall)
	defer cancel()
	return messages.Next(jetstream.NextContext(ctx))
}

// lastSequence is that of the last message on the filter's subjects, asked of the stream's leader; 0 if there is none.
func lastSequence(ctx context.Context, js jetstream.JetStream, stream, filter string) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, unanswered)
	defer cancel()
	request, err := json.Marshal(map[string]string{"last_by_subj": filter})
	if err != nil {
		return 0, err
	}
	answer, err := js.Conn().RequestWithContext(ctx, MsgGetSubject(stream), request)
	if err != nil {
		return 0, err
	}
	var last struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Sequence uint64 `json:"seq"`
		} `json:"message"`
	}
	if err := json.Unmarshal(answer.Data, &last); err != nil {
		return 0, fmt.Errorf("read the broker's answer: %w", err)
	}
	if last.Error != nil && last.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound {
		return 0, nil
	}
	if last.Error != nil {
		return 0, last.Error
	}
	return last.Message.Sequence, nil
}

// forget deletes the consumer of a reading that is over. Should that fail, the broker does so by itself, later.
func forget(ctx context.Context, js jetstream.JetStream, stream string, consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = js.DeleteConsumer(ctx, stream, consumer.CachedInfo().Name)
}

func readStored[D any](m jetstream.Msg, decode func([]byte) (D, error)) (Stored[D], error) {
	stored := Stored[D]{Subject: m.Subject()}
	meta, err := m.Metadata()
	if err != nil {
		return stored, fmt.Errorf("streams: read the metadata of a message: %w", err)
	}
	stored.Sequence, stored.At = meta.Sequence.Stream, meta.Timestamp
	envelope, data, err := events.ReadEvent(m.Headers(), m.Data())
	if err == nil {
		stored.Envelope = envelope
		stored.Document, err = decode(data)
	}
	if err != nil {
		return stored, fmt.Errorf("streams: the message at sequence %d of %s: %w", stored.Sequence, meta.Stream, err)
	}
	return stored, nil
}
