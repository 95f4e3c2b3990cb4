package executors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"go.uber.org/zap"

	"github.com/afterwrite/afterwrite/streams"
)

// puller takes the intents of one grant, as many at once as may be executed, so that one kind never holds up another.
type puller struct {
	*Process
	grant  *Grant
	pulled jetstream.Consumer
	slots  chan struct{}
	// trouble says why it cannot take intents, nil if it can.
	trouble atomic.Pointer[string]
}

// topology is the part of the topology that is the executor's own: its consumers, one for each grant.
func (p *Process) topology() streams.Topology {
	settings := streams.Settings{AckWait: p.opts.AckWait, MaxAckPending: p.opts.MaxAckPending}
	for _, g := range p.opts.Grants {
		settings.Executors = append(settings.Executors, streams.Executor{Executor: p.opts.Executor, Kind: g.IntentKind, Start: g.From})
	}
	return streams.Default(settings).Only(streams.Intents)
}

// consumer finds the consumer of the grant. One that was never there is created, starting where the grant says. One
// that was deleted while the process ran begins again with the first message: what it had delivered is not known
// any more, and what was executed is on record.
func (p *Process) consumer(ctx context.Context, g *Grant, deleted bool) (jetstream.Consumer, error) {
	name := streams.ExecutorConsumer(p.opts.Executor, g.IntentKind)
	consumer, err := p.js.Consumer(ctx, streams.Intents, name)
	if !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return consumer, err
	}
	topology := p.topology()
	if deleted {
		p.log.Warn("recreating the consumer from the first intent", zap.String("consumer", name))
		err = streams.Recreate(ctx, p.js, topology, streams.Intents, name)
	} else {
		stream, _ := topology.Stream(streams.Intents)
		own := slices.IndexFunc(stream.Consumers, func(c jetstream.ConsumerConfig) bool { return c.Durable == name })
		_, err = p.js.CreateConsumer(ctx, streams.Intents, stream.Consumers[own])
	}
	if err != nil && !errors.Is(err, jetstream.ErrConsumerExists) { // another replica may be faster
		return nil, err
	}
	return p.js.Consumer(ctx, streams.Intents, name)
}

// pull takes intents until taking ends, and handles them under working. It returns when the last one is handled.
func (p *puller) pull(taking, working context.Context) error {
	var handling sync.WaitGroup
	defer handling.Wait()
	for pause := firstPause; taking.Err() == nil; {
		free := p.acquire(taking)
		if free == 0 {
			return nil
		}
		err := p.fetch(taking, free, func(msg jetstream.Msg) {
			pause = firstPause
			progress := p.pulled.CachedInfo().Config.AckWait / 3
			handling.Go(func() {
				defer func() { <-p.slots }()
				inFlight := p.metrics.inFlight.WithLabelValues(p.grant.IntentKind)
				inFlight.Inc()
				defer inFlight.Dec()
				p.handle(working, msg, progress)
			})
		})
		if taking.Err() != nil {
			continue
		}
		if err == nil {
			p.trouble.Store(nil)
			continue
		}
		if p.nc.IsClosed() {
			return ErrClosed
		}
		if consumer, missing := p.consumer(taking, p.grant, true); missing == nil {
			p.pulled = consumer
		}
		sentence := fmt.Sprintf("cannot take intents of %s: %v", p.grant.IntentKind, err)
		p.trouble.Store(&sentence)
		p.log.Warn("cannot take intents", zap.String("intent_kind", p.grant.IntentKind), zap.Error(err))
		_ = wait(taking, pause)
		pause = longer(pause)
	}
	return nil
}

// acquire waits for a free slot and takes all that are.
func (p *puller) acquire(ctx context.Context) int {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return 0
	}
	free := 1
	for {
		select {
		case p.slots <- struct{}{}:
			free++
		default:
			return free
		}
	}
}

// fetch asks for exactly as many intents as there are slots taken for them, and gives back what came to nothing.
func (p *puller) fetch(ctx context.Context, free int, handle func(jetstream.Msg)) error {
	defer func() {
		for range free {
			<-p.slots
		}
	}()
	batch, err := p.pulled.Fetch(free, jetstream.FetchContext(ctx))
	if err != nil {
		return err
	}
	for msg := range batch.Messages() {
		free--
		handle(msg)
	}
	return batch.Error()
}

// handle carries one intent through, telling the broker that it is in progress for as long as it takes.
func (p *puller) handle(ctx context.Context, msg jetstream.Msg, every time.Duration) {
	r := &run{Process: p.Process, msg: msg, grant: p.grant, id: "run_" + nuid.Next(), log: p.log}
	done := make(chan struct{})
	var progress sync.WaitGroup
	progress.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = msg.InProgress() // the message coming again is no harm
			case <-done:
				return
			}
		}
	})
	err := r.handle(ctx)
	close(done)
	progress.Wait()
	switch {
	case err == nil, errors.Is(err, errStopped):
	case ctx.Err() != nil:
		r.log.Info("intent left to its next delivery", zap.Error(err))
	default:
		r.log.Warn("intent handed back", zap.Error(err))
		_ = r.handBack(time.Time{})
	}
}
