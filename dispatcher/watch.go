package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"github.com/afterwrite/afterwrite/dispatcher/journal"
	"github.com/afterwrite/afterwrite/dispatcher/lane"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

const (
	// lookEvery is how often the broker is looked at; kicked, it is looked at once more.
	lookEvery = 5 * time.Second
	// overdueMost bounds one look for overdue wake-ups.
	overdueMost = 10_000
	lookTimeout = 10 * time.Second
)

// errRecreated: the journal is the memory of what was done; an empty one in its place means doing it again.
var errRecreated = errors.New("the journal was deleted or created anew while dispatching: what it knew is gone; " +
	"restore it, or start again knowing that receipts still in the stream run again")

var errMissing = errors.New("the journal is missing")

// missingLooks is how many looks in a row must miss the journal until it is taken to be gone.
const missingLooks = 2

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
			d.health.Clear(topologyDiffers)
			return nil
		}
		d.health.Set(topologyDiffers, reason)
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
	var before broker
	missing := 0
	looks, overdue := time.NewTicker(lookEvery), time.NewTicker(2*d.options.OverdueAfter)
	defer looks.Stop()
	defer overdue.Stop()
	for {
		now, err := d.inspect(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil && now[streams.Journal] == nil {
			// Once may be a broker that is just coming up.
			if missing++; missing < missingLooks {
				err = errMissing
			}
		}
		if err == nil {
			missing = 0
			err = d.compare(ctx, before, now)
		}
		switch {
		case errors.Is(err, errRecreated):
			d.health.Set(journalGone, err.Error())
			return err
		case err != nil:
			d.health.Set(brokerUnreadable, err.Error())
			d.log.Warn("cannot look at the broker", zap.Error(err))
		default:
			d.health.Clear(brokerUnreadable)
			before = now
		}
		d.settleFailures()
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

// broker is what was seen of the dispatcher's streams, by name. A stream that is not there is missing in it.
type broker map[string]*jetstream.StreamInfo

// inspect looks at everything that can change under a dispatcher, and tells lanes and readiness.
func (d *Dispatcher) inspect(ctx context.Context) (broker, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if d.nc.Status() != nats.CONNECTED {
		return nil, fmt.Errorf("broker connection is %s", d.nc.Status())
	}
	seen := broker{}
	for _, want := range d.topology.Streams {
		stream, err := d.js.Stream(ctx, want.Config.Name)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
		case err != nil:
			return nil, fmt.Errorf("look at %s: %w", want.Config.Name, err)
		default:
			seen[want.Config.Name] = stream.CachedInfo()
		}
	}
	reason, err := d.checkTopology(ctx)
	if err != nil {
		return nil, err
	}
	d.health.Hold(topologyDiffers, reason)
	for name, info := range seen {
		d.metrics.broker.Stream(name, info.State.Msgs, info.State.Bytes, info.Config.MaxBytes, info.Config.MaxAge)
	}
	d.health.Hold(streamFilling, filling(seen))
	aging, err := d.aging(ctx, seen[streams.Receipts])
	if err != nil {
		return nil, err
	}
	d.health.Hold(receiptsAging, aging)
	return seen, d.inspectBacklogs(ctx)
}

// compare holds what is there against what was there before. A journal that is gone, or another one, ends the
// process; wake-ups and intents that are gone are made again from it.
func (d *Dispatcher) compare(ctx context.Context, before, now broker) error {
	created := func(b broker, name string) time.Time {
		if b[name] == nil {
			return time.Time{}
		}
		return b[name].Created
	}
	if !created(now, streams.Journal).Equal(d.began) {
		return errRecreated
	}
	for _, name := range []string{streams.Retries, streams.Intents} {
		is, was := created(now, name), created(before, name)
		// At the start there is nothing to compare with, but one that is younger than what the journal holds is new.
		journal := now[streams.Journal]
		young := before == nil && journal.State.Msgs > 0 && is.After(journal.State.FirstTime)
		if now[name] != nil && (young || before != nil && !is.Equal(was)) {
			d.log.Warn("a stream was created anew; making again what it held", zap.String("stream", name))
			return d.rebuild(ctx)
		}
	}
	return nil
}

// rebuild gives every dispatch that may still demand something a wake-up for now. Whoever takes it finds in the
// record what that is: intents to publish, or an attempt at its time.
func (d *Dispatcher) rebuild(ctx context.Context) error {
	now := time.Now()
	for record, err := range journal.States(ctx, d.js) {
		if err != nil && record.Sequence > 0 {
			d.log.Error("cannot read a record", zap.Error(err)) // no dispatch's, or it could not have been written
			continue
		}
		if err != nil {
			return fmt.Errorf("make wake-ups again: %w", err)
		}
		r := record.Document
		if r.Status == events.StatusNotApplicable || r.Status == events.StatusFailed {
			continue
		}
		m := &nats.Msg{
			Subject: streams.RetryAtSubject(r.DispatchID, r.HookID),
			Header:  streams.FirstScheduleHeader(r.DispatchID, r.HookID, now),
		}
		if err := d.create(ctx, m); err != nil {
			return fmt.Errorf("make wake-ups again: %w", err)
		}
	}
	return nil
}

const (
	// fullPercent is how full a stream may be before readiness says so.
	fullPercent = 80
	// agedPart is which part of a stream's age the oldest waiting message may reach before readiness says so.
	agedPart = 2
)

// filling says which streams are nearly full, "" if none is.
func filling(seen broker) string {
	var full []string
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		info := seen[name]
		if most := info.Config.MaxBytes; most > 0 && info.State.Bytes > uint64(most)/100*fullPercent {
			full = append(full, fmt.Sprintf("%s holds %d of %d bytes", name, info.State.Bytes, most))
		}
	}
	return strings.Join(full, "; ")
}

// aging says that the oldest receipt nobody took is near its end, "" if it is not.
func (d *Dispatcher) aging(ctx context.Context, receipts *jetstream.StreamInfo) (string, error) {
	if receipts == nil || receipts.Config.MaxAge == 0 {
		return "", nil
	}
	consumer, err := d.js.Consumer(ctx, streams.Receipts, streams.DispatcherConsumer)
	if err != nil {
		return "", fmt.Errorf("look at the receipts: %w", err)
	}
	info := consumer.CachedInfo()
	age, err := streams.OldestWaiting(ctx, d.js, info)
	if err != nil {
		return "", fmt.Errorf("look at the oldest receipt: %w", err)
	}
	d.metrics.broker.Consumer(streams.Receipts, streams.DispatcherConsumer, info.NumPending, info.NumAckPending, age)
	if age < receipts.Config.MaxAge/agedPart {
		return "", nil
	}
	return fmt.Sprintf("the oldest receipt has waited %s of the %s it is kept", age.Round(time.Second), receipts.Config.MaxAge), nil
}

func (d *Dispatcher) inspectBacklogs(ctx context.Context) error {
	for hook, limits := range d.options.Registry.Limits {
		consumer, err := d.js.Consumer(ctx, streams.Retries, streams.RetryConsumer(hook))
		if err != nil {
			return fmt.Errorf("look at the backlog of %s: %w", hook, err)
		}
		info := consumer.CachedInfo()
		waiting := info.NumPending + uint64(max(info.NumAckPending, 0))
		d.metrics.backlogs.WithLabelValues(hook).Set(float64(waiting))
		full := waiting >= uint64(max(limits.BacklogCeiling, 0))
		for _, r := range d.runners {
			r.tell(ctx.Done(), func(_ time.Time, l *lane.Lane) { l.SetBacklogFull(hook, full) })
		}
	}
	return nil
}

// failed is called by lanes when the broker refuses something or does not answer.
func (d *Dispatcher) failed(effect string, err error) {
	d.health.Set(brokerRefuses, effect+": "+err.Error())
	d.lastFailure.Store(time.Now().UnixNano())
	d.look()
}

// settleFailures takes back what lanes said once they have not said it for a while.
func (d *Dispatcher) settleFailures() {
	if time.Since(time.Unix(0, d.lastFailure.Load())) > 2*lookEvery {
		d.health.Clear(brokerRefuses)
	}
}

// rescheduleOverdue publishes again, for now, every wake-up whose schedule is stuck because it fired into a store that
// refused. Any dispatcher may, at any time: a wake-up too many finds in the journal that there is nothing to do.
func (d *Dispatcher) rescheduleOverdue(ctx context.Context) error {
	stream, err := d.js.Stream(ctx, streams.Retries)
	if err != nil {
		return err
	}
	now, after := time.Now(), d.options.OverdueAfter
	for sequence, n := uint64(1), 0; n < overdueMost; n++ {
		m, err := stream.GetMsg(ctx, sequence, jetstream.WithGetMsgSubject(streams.RetryAtFilter()))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if now.Sub(m.Time) < after {
			return nil // nothing after it is older
		}
		sequence = m.Sequence + 1
		at, ok := streams.ScheduledAt(m.Header)
		dispatch, hook, named := streams.ParseRetryAtSubject(m.Subject)
		if !ok || !named || now.Sub(at) < after {
			continue
		}
		again := &nats.Msg{Subject: m.Subject, Header: streams.ScheduleHeader(dispatch, hook, now)}
		if _, err := d.js.PublishMsg(ctx, again); err != nil {
			return err
		}
		d.metrics.overdue.WithLabelValues(hook).Inc()
	}
	return nil
}
