package streams

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// OldestWaiting is the age of the oldest message that the consumer has not acknowledged, delivered or not; 0 if there
// is none. The consumer is one of the topology,
// as info saw it.
func OldestWaiting(ctx context.Context, js jetstream.JetStream, info *jetstream.ConsumerInfo) (time.Duration, error) {
	if info.NumPending == 0 && info.NumAckPending == 0 {
		return 0, nil
	}
	stream, err := js.Stream(ctx, info.Stream)
	if err != nil {
		return 0, fmt.Errorf("streams: look at %s: %w", info.Stream, err)
	}
	oldest, err := stream.GetMsg(ctx, info.AckFloor.Stream+1, jetstream.WithGetMsgSubject(info.Config.FilterSubject))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("streams: look at the oldest message of %s: %w", info.Stream, err)
	}
	return max(time.Since(oldest.Time), 0), nil
}
