package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"github.com/afterwrite/afterwrite/dispatcher/lane"
	"github.com/afterwrite/afterwrite/streams"
)

const (
	// lookEvery is how often the broker is looked at; kicked, it is looked at once more.
	lookEvery = 5 * time.Second
	// overdueEvery is how often wake-ups are looked for whose schedule fired into a store that refused.
	overdueEvery = time.Minute
	// overdueAfter is how long after its time a schedule is taken to be stuck.
	overdueAfter = 30 * time.Second
	// overdueMost bounds one look for overdue wake-ups.
	overdueMost = 10_000
	lookTimeout = 10 * time.Second
)

// errRecreated: the journal is the memory of what was done; an empty one in its place means doing it again.
var errRecreated = errors.New("the journal was deleted or created anew while dispatching: what it knew is gone; " +
	"restore it, or start again knowing that receipts still in the stream run again")

func (d *Dispatcher) look() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// awaitTopology waits until the broker holds what the topology says. It creates nothing but missing consumers of its
// own streams, from the first message.
func (d *Dispatcher) awaitTopology(ctx context.Context) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		reason, err := d.checkTopology(ctx)
		if err != nil {
			reason = err.Error()
		}
		if reason == "" {
			d.health.clear(topologyDiffers)
			return nil
		}
		d.health.set(topologyDiffers, reason)
		d.log.Warn("waiting for the streams", zap.String("reason", reason))
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// checkTopology gives what hinders dispatching, "" if nothing does.
func (d *Dispatcher) checkTopology(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	differences, err := streams.Check(ctx, d.js, d.topology)
	if err != nil {
		return "", fmt.Errorf("check the streams: %w", err)
	}
	var reasons []string
	for _, difference := range differences {
		switch {
		case difference.Kind == streams.Extra:
			continue
		case difference.Kind == streams.Missing && difference.Consumer != "":
			if err := streams.Recreate(ctx, d.js, d.topology, difference.Stream, difference.Consumer); err != nil {
				return "", err
			}
			d.log.Warn("consumer created", zap.String("stream", difference.Stream), zap.String("consumer", difference.Consumer))
			continue
		}
		reasons = append(reasons, difference.String())
	}
	return strings.Join(reasons, "; "), nil
}

// watch looks at the broker until ctx is done or the journal is no longer the one it was.
func (d *Dispatcher) watch(ctx context.Context) error {
	var journal time.Time
	looks, overdue := time.NewTicker(lookEvery), time.NewTicker(overdueEvery)
	defer looks.Stop()
	defer overdue.Stop()
	for {
		created, err := d.inspect(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			d.health.set(brokerUnreadable, err.Error())
			d.log.Warn("cannot look at the broker", zap.Error(err))
		case created.IsZero() || !journal.IsZero() && !created.Equal(journal):
			d.health.set(journalGone, errRecreated.Error())
			return errRecreated
		default:
			d.health.clear(brokerUnreadable)
			journal = created
		}
		select {
		case <-looks.C:
		case <-d.kick:
		case <-overdue.C:
			if err := d.rescheduleOverdue(ctx); err != nil && ctx.Err() == nil {
				d.log.Warn("cannot look for overdue wake-ups", zap.Error(err))
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// inspect looks at everything that can change under a dispatcher. It gives when the journal was created, zero if it
// is gone.
func (d *Dispatcher) inspect(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if d.nc.Status() != nats.CONNECTED {
		return time.Time{}, fmt.Errorf("broker connection is %s", d.nc.Status())
	}
	journal, err := d.js.Stream(ctx, streams.Journal)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("look at the journal: %w", err)
	}
	reason, err := d.checkTopology(ctx)
	if err != nil {
		return time.Time{}, err
	}
	if reason == "" {
		d.health.clear(topologyDiffers)
	} else {
		d.health.set(topologyDiffers, reason)
	}
	for hook, limits := range d.options.Registry.Limits {
		consumer, err := d.js.Consumer(ctx, streams.Retries, streams.RetryConsumer(hook))
		if err != nil {
			return time.Time{}, fmt.Errorf("look at the backlog of %s: %w", hook, err)
		}
		info := consumer.CachedInfo()
		waiting := info.NumPending + uint64(max(info.NumAckPending, 0))
		d.observer.backlog(hook, waiting)
		full := waiting >= uint64(max(limits.BacklogCeiling, 0))
		for _, r := range d.runners {
			r.tell(ctx.Done(), func(_ time.Time, l *lane.Lane) { l.SetBacklogFull(hook, full) })
		}
	}
	return journal.CachedInfo().Created, nil
}

// rescheduleOverdue publishes again, for now, every wake-up whose schedule is stuck. Any dispatcher may, at any time:
// a wake-up too many finds in the journal that there is nothing to do.
func (d *Dispatcher) rescheduleOverdue(ctx context.Context) error {
	stream, err := d.js.Stream(ctx, streams.Retries)
	if err != nil {
		return err
	}
	now := time.Now()
	for sequence, n := uint64(1), 0; n < overdueMost; n++ {
		m, err := stream.GetMsg(ctx, sequence, jetstream.WithGetMsgSubject(streams.RetryAtFilter()))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if now.Sub(m.Time) < overdueAfter {
			return nil // nothing after it is older
		}
		sequence = m.Sequence + 1
		at, ok := streams.ScheduledAt(m.Header)
		dispatch, hook, named := streams.ParseRetryAtSubject(m.Subject)
		if !ok || !named || now.Sub(at) < overdueAfter {
			continue
		}
		again := &nats.Msg{Subject: m.Subject, Header: streams.ScheduleHeader(dispatch, hook, now)}
		if _, err := d.js.PublishMsg(ctx, again); err != nil {
			return err
		}
		d.observer.overdue(hook)
	}
	return nil
}
