package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

// sample is one measurement of a row.
type sample struct {
	// PerSecond is dispatches a second.
	PerSecond float64 `json:"dispatches_per_second"`
	// Worker is what was measured, all of its replicas together; the others are 0 where they do not exist.
	Worker   cost `json:"worker"`
	Provider cost `json:"provider"`
	Broker   cost `json:"broker"`
}

// cost is what one dispatch costs one kind of process.
type cost struct {
	// CPU in microseconds, user and kernel.
	CPU float64 `json:"cpu_us_per_dispatch"`
	// Allocs is heap objects.
	Allocs float64 `json:"allocs_per_dispatch"`
	// PeakResident is the most memory of one process at any time, in bytes.
	PeakResident int64 `json:"peak_resident_bytes"`
}

// bed is where a row is measured: a broker with the streams, or a directory for who keeps a database.
type bed struct {
	row      row
	store    string
	broker   *child
	client   client
	receipts int // published so far
}

// lay starts the broker of a row, if it has one, and makes the streams.
func (b *bench) lay(ctx context.Context, r row, profile string) (*bed, error) {
	store, err := b.store()
	if err != nil {
		return nil, fmt.Errorf("make a store: %w", err)
	}
	d := &bed{row: r, store: store}
	if r.keepsDatabase() {
		return d, nil
	}
	d.broker, err = start(ctx, job{Role: roleBroker, Store: store, SyncAlways: r.SyncAlways, Profile: suffixed(profile, "-broker")})
	if err != nil {
		return nil, err
	}
	if d.client, err = dial(d.broker.url, "observer"); err != nil {
		return nil, errors.Join(err, d.broker.stop())
	}
	if _, err := streams.Apply(ctx, d.client.js, streams.Default(settings(r.Hooks, r.Storage))); err != nil {
		return nil, errors.Join(fmt.Errorf("make the streams: %w", err), d.close())
	}
	return d, nil
}

func (d *bed) close() error {
	if d.broker == nil {
		return nil
	}
	d.client.nc.Close()
	return d.broker.stop()
}

// publish stores the next receipts.
func (d *bed) publish(ctx context.Context, n int) error {
	message := opaque
	if d.row.Role == roleOurs {
		message = document
	}
	from := d.receipts
	d.receipts += n
	return d.client.flood(ctx, n, func(i int) *nats.Msg { return message(from + i) })
}

// employ starts who takes part, the workers last.
func (d *bed) employ(ctx context.Context, receipts int, profile string) (*crew, error) {
	c := new(crew)
	j := job{Hooks: d.row.Hooks, Storage: d.row.Storage, Store: d.store, Receipts: receipts}
	if d.broker != nil {
		j.URL = d.broker.url
	}
	if provider, ok := d.row.provider(); ok {
		j.Role = provider
		j.Profile = suffixed(profile, "-provider")
		started, err := start(ctx, j)
		if err != nil {
			return nil, err
		}
		c.providers = append(c.providers, started)
	}
	j.Role = d.row.Role
	for i := range d.row.Replicas {
		j.Profile = suffixed(profile, fmt.Sprintf("-%d", i+1))
		started, err := start(ctx, j)
		if err != nil {
			return nil, errors.Join(err, c.stop())
		}
		c.workers = append(c.workers, started)
	}
	return c, nil
}

// crew is the processes of a measurement, but for the broker.
type crew struct{ providers, workers []*child }

func (c *crew) stop() error { return errors.Join(stopAll(c.workers), stopAll(c.providers)) }

// saturate measures the row's throughput over that many dispatches.
func (d *bed) saturate(ctx context.Context, dispatches int, profile string) (sample, error) {
	receipts := max(dispatches/d.row.Hooks, 1)
	total := int64(receipts * d.row.Hooks)
	if d.broker != nil {
		if err := d.publish(ctx, receipts); err != nil {
			return sample{}, err
		}
	}
	before, err := d.counts(ctx)
	if err != nil {
		return sample{}, err
	}
	c, err := d.employ(ctx, receipts, profile)
	if err != nil {
		return sample{}, err
	}
	s, err := d.watch(ctx, c, total, before.intents)
	if err == nil && d.broker != nil {
		err = d.settled(ctx, counts{before.records + total, before.intents + total})
	}
	return s, errors.Join(err, c.stop())
}

const (
	pollEvery = 5 * time.Millisecond
	// stuckAfter is how long a measurement goes on without a dispatch being done.
	stuckAfter = 20 * time.Second
	// margin is the part of the dispatches before the clock runs, and again after it has stopped: a tenth. At its end
	// there must be as much under way as at its beginning, or work that was done before would be counted in.
	margin = 10
)

var errStuck = fmt.Errorf("no dispatch was done for %s", stuckAfter)

// watch waits until total dispatches are done. The clock runs over all but the first and the last part of them.
func (d *bed) watch(ctx context.Context, c *crew, total, before int64) (sample, error) {
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	// Should everything be done before the warm-up is seen to end, the clock has run from here.
	began, err := d.look(c, 0, time.Now())
	if err != nil {
		return sample{}, err
	}
	var ended *moment
	warm := false
	last, lastAt := int64(0), time.Now()
	for {
		done, err := d.done(ctx, c, before)
		if err != nil {
			return sample{}, err
		}
		now := time.Now()
		if warm && ended == nil && done >= total-total/margin || done >= total && ended == nil {
			if ended, err = d.look(c, done, now); err != nil {
				return sample{}, err
			}
		}
		switch {
		case done >= total:
			return ended.since(began), nil
		case done > last:
			last, lastAt = done, now
		case now.Sub(lastAt) > stuckAfter:
			return sample{}, fmt.Errorf("%w, after %d of %d%s%s", errStuck, done, total, d.backlog(ctx), d.tally(ctx))
		}
		if !warm && done >= total/margin {
			warm = true
			if began, err = d.look(c, done, now); err != nil {
				return sample{}, err
			}
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return sample{}, ctx.Err()
		}
	}
}

// done counts dispatches whose intent is stored.
func (d *bed) done(ctx context.Context, c *crew, before int64) (int64, error) {
	if d.broker == nil {
		a, err := c.workers[0].ask(askDone)
		return a.Done, err
	}
	stored, err := d.client.stored(ctx, streams.Intents)
	return stored - before, err
}

// backlog says how many receipts wait, and is silent as tally is.
func (d *bed) backlog(ctx context.Context) string {
	if d.broker == nil {
		return ""
	}
	info, err := d.client.consumer(ctx, d.row)
	if err != nil {
		return ""
	}
	return fmt.Sprintf(", %d receipts are left and %d not acknowledged", info.NumPending, info.NumAckPending)
}

// tally says what our dispatcher journaled instead of proposals, and is silent about whatever it cannot read: it only
// explains an error.
func (d *bed) tally(ctx context.Context) string {
	if d.row.Role != roleOurs {
		return ""
	}
	consumer, err := d.client.js.OrderedConsumer(ctx, streams.Journal, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return ""
	}
	records, err := consumer.FetchNoWait(1 << 16)
	if err != nil {
		return ""
	}
	became := map[string]int{}
	for m := range records.Messages() {
		if r, err := events.Decode[events.DispatchReceipt](m.Data()); err == nil && r.Status != events.StatusProposed {
			became[strings.Join([]string{string(r.Status), string(r.Code), string(r.Reason)}, " ")]++
		}
	}
	return fmt.Sprintf(", and of others the journal says %v", became)
}

// moment is how far everything is.
type moment struct {
	at                        time.Time
	done                      int64
	worker, provider, brokers usage
}

func (d *bed) look(c *crew, done int64, at time.Time) (*moment, error) {
	m := &moment{at: at, done: done}
	var err error
	if m.worker, err = sum(c.workers); err != nil {
		return nil, err
	}
	if m.provider, err = sum(c.providers); err != nil {
		return nil, err
	}
	if d.broker != nil {
		m.brokers, err = sum([]*child{d.broker})
	}
	return m, err
}

// sum is what the processes used together, and the peak of the largest.
func sum(processes []*child) (usage, error) {
	var all usage
	for _, p := range processes {
		a, err := p.ask(askUsage)
		if err != nil {
			return usage{}, err
		}
		all.CPU += a.Usage.CPU
		all.Mallocs += a.Usage.Mallocs
		all.PeakResident = max(all.PeakResident, a.Usage.PeakResident)
	}
	return all, nil
}

func (m *moment) since(began *moment) sample {
	dispatches := float64(m.done - began.done)
	per := func(from, to usage) cost {
		return cost{
			CPU:          float64((to.CPU - from.CPU).Microseconds()) / dispatches,
			Allocs:       float64(to.Mallocs-from.Mallocs) / dispatches,
			PeakResident: to.PeakResident,
		}
	}
	return sample{
		PerSecond: dispatches / m.at.Sub(began.at).Seconds(),
		Worker:    per(began.worker, m.worker),
		Provider:  per(began.provider, m.provider),
		Broker:    per(began.brokers, m.brokers),
	}
}

// counts is what the journal and the intents hold.
type counts struct{ records, intents int64 }

func (d *bed) counts(ctx context.Context) (counts, error) {
	if d.broker == nil {
		return counts{}, nil
	}
	records, err := d.client.stored(ctx, streams.Journal)
	if err != nil {
		return counts{}, err
	}
	intents, err := d.client.stored(ctx, streams.Intents)
	return counts{records, intents}, err
}

const settleWithin = 30 * time.Second

// settled fails unless exactly what is wanted is stored and every receipt is acknowledged: a variant that loses or
// doubles work has not done the job that was measured. Only ours may have journaled more: it defers what a full hook
// cannot take, and that is among what was measured.
func (d *bed) settled(ctx context.Context, want counts) error {
	late := time.NewTimer(settleWithin)
	defer late.Stop()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		info, err := d.client.consumer(ctx, d.row)
		if err != nil {
			return fmt.Errorf("look at the receipts: %w", err)
		}
		have, err := d.counts(ctx)
		if err != nil {
			return err
		}
		stored := have == want || d.row.Role == roleOurs && have.intents == want.intents && have.records > want.records
		if stored && info.NumPending == 0 && info.NumAckPending == 0 {
			return nil
		}
		select {
		case <-poll.C:
		case <-late.C:
			return fmt.Errorf("%+v is stored instead of %+v%s%s", have, want, d.backlog(ctx), d.tally(ctx))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// profilePath is where the profiles of one measurement of a row go, "" for none.
func (b *bench) profilePath(r row, run int) string {
	if b.Profile == "" {
		return ""
	}
	return filepath.Join(b.Profile, fmt.Sprintf("%s-%s-%dhooks-%dreplicas-%s-%djournaled-run%d", r.Role, r.Group, r.Hooks, r.Replicas, r.Storage, r.Journaled, run))
}

// suffixed is the path of one process's profiles, "" for none.
func suffixed(profile, suffix string) string {
	if profile == "" {
		return ""
	}
	return profile + suffix
}
