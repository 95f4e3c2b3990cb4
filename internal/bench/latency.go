package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/streams"
)

// latency is from the acknowledgement of a receipt's publish to its intent, as read by a consumer of the intents.
type latency struct {
	// Rate of receipts a second; 0 is one in flight.
	Rate      float64       `json:"receipts_per_second"`
	P50       time.Duration `json:"p50_ns"`
	P99       time.Duration `json:"p99_ns"`
	P999      time.Duration `json:"p999_ns"`
	Intents   int           `json:"intents"`
	Published float64       `json:"published_per_second"`
}

// clock tells when each receipt was acknowledged and when its intent came, in nanoseconds since it began.
type clock struct {
	began    time.Time
	acked    []atomic.Int64
	came     []atomic.Int64
	arrivals chan int
}

func newClock(n int) *clock {
	return &clock{
		began: time.Now(), acked: make([]atomic.Int64, n), came: make([]atomic.Int64, n), arrivals: make(chan int, n),
	}
}

func (c *clock) now() int64 { return time.Since(c.began).Nanoseconds() }

// wait gives the latency at a rate of receipts a second, or with one in flight if that is 0. Workers are at work.
func (d *bed) wait(ctx context.Context, n int, rate float64) (latency, error) {
	c := newClock(n)
	from := d.receipts
	d.receipts += n
	consumer, err := d.client.js.CreateConsumer(ctx, streams.Intents, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverNewPolicy, AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true,
	})
	if err != nil {
		return latency{}, fmt.Errorf("read the intents: %w", err)
	}
	reading, err := consumer.Consume(func(m jetstream.Msg) {
		at := c.now()
		if i, ok := marked(m.Data()); ok && i >= from && i < from+n && c.came[i-from].CompareAndSwap(0, at) {
			c.arrivals <- i - from
		}
	})
	if err != nil {
		return latency{}, fmt.Errorf("read the intents: %w", err)
	}
	defer reading.Stop()
	publish := d.oneByOne
	if rate > 0 {
		publish = d.paced
	}
	began := time.Now()
	if err := publish(ctx, c, from, rate); err != nil {
		return latency{}, err
	}
	l := c.latency()
	l.Rate, l.Published = rate, float64(n)/time.Since(began).Seconds()
	return l, nil
}

func (d *bed) receipt(i int) *nats.Msg {
	if d.row.Role == roleOurs {
		return document(i)
	}
	return opaque(i)
}

// oneByOne publishes a receipt when the intent of the one before is there.
func (d *bed) oneByOne(ctx context.Context, c *clock, from int, _ float64) error {
	for i := range c.acked {
		if _, err := d.client.js.PublishMsg(ctx, d.receipt(from+i)); err != nil {
			return fmt.Errorf("publish a receipt: %w", err)
		}
		c.acked[i].Store(c.now())
		if err := c.await(ctx, 1); err != nil {
			return err
		}
	}
	return nil
}

// paced publishes receipts at their times, whatever becomes of those before.
func (d *bed) paced(ctx context.Context, c *clock, from int, rate float64) error {
	inbox := d.client.nc.NewInbox() + "."
	sub, err := d.client.nc.Subscribe(inbox+"*", func(m *nats.Msg) {
		i, err := strconv.Atoi(strings.TrimPrefix(m.Subject, inbox))
		if err == nil {
			c.acked[i].Store(c.now())
		}
	})
	if err != nil {
		return fmt.Errorf("publish receipts: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // the connection may be closed already
	// What is due is published at every tick: timers are not finer than that under load.
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for i := 0; i < len(c.acked); {
		for due := int(time.Since(began).Seconds() * rate); i < min(due, len(c.acked)); i++ {
			m := d.receipt(from + i)
			m.Reply = inbox + strconv.Itoa(i)
			if err := d.client.nc.PublishMsg(m); err != nil {
				return fmt.Errorf("publish a receipt: %w", err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return c.await(ctx, len(c.acked))
}

const intentWait = 30 * time.Second

var errNoIntent = errors.New("an intent did not come within 30 s")

func (c *clock) await(ctx context.Context, n int) error {
	late := time.NewTimer(intentWait)
	defer late.Stop()
	for range n {
		select {
		case <-c.arrivals:
		case <-late.C:
			return errNoIntent
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// latency gives the percentiles. An intent that comes before its receipt's acknowledgement has been read took nothing.
func (c *clock) latency() latency {
	took := make([]time.Duration, len(c.acked))
	for i := range took {
		took[i] = max(time.Duration(c.came[i].Load()-c.acked[i].Load()), 0)
	}
	slices.Sort(took)
	return latency{
		P50: percentile(took, 500), P99: percentile(took, 990), P999: percentile(took, 999), Intents: len(took),
	}
}

// percentile is the nearest-rank one, in thousandths, of what is sorted.
func percentile(sorted []time.Duration, thousandths int) time.Duration {
	rank := (len(sorted)*thousandths + 999) / 1000
	return sorted[max(rank, 1)-1]
}
