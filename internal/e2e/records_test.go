package e2e

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/dispatcher/journal"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

// all reads a listing to its end.
func all[D any](w *world, listing iter.Seq2[streams.Stored[D], error]) []D {
	w.t.Helper()
	var documents []D
	for stored, err := range listing {
		if err != nil {
			w.t.Fatal(err)
		}
		documents = append(documents, stored.Document)
	}
	return documents
}

// records are every record of every dispatch, in the order written.
func (w *world) records() []*events.DispatchReceipt {
	w.t.Helper()
	return all(w, streams.Read(w.ctx, w.js, streams.Journal, streams.JournalFilter(), false, events.Decode[events.DispatchReceipt]))
}

func (w *world) history(id events.DispatchID) []*events.DispatchReceipt {
	w.t.Helper()
	return all(w, journal.History(w.ctx, w.js, id))
}

func (w *world) conflicts() []*events.Conflict {
	w.t.Helper()
	return all(w, journal.Conflicts(w.ctx, w.js, ""))
}

func (w *world) refusals() []*events.Refusal {
	w.t.Helper()
	return all(w, journal.Refusals(w.ctx, w.js))
}

func (w *world) intents() []*events.Intent {
	w.t.Helper()
	return all(w, streams.Read(w.ctx, w.js, streams.Intents, streams.IntentFilter(""), false, events.Decode[events.Intent]))
}

func (w *world) executions() []*events.Execution {
	w.t.Helper()
	return all(w, streams.Read(w.ctx, w.js, streams.Executions, streams.ExecutionFilter(), false, events.Decode[events.Execution]))
}

// last is the last message on the subject, nil if there is none.
func (w *world) last(stream, subject string) *jetstream.RawStreamMsg {
	w.t.Helper()
	handle := w.stream(stream)
	m, err := asked(w, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return handle.GetLastMsgForSubject(ctx, subject)
	})
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		w.t.Fatal(err)
	}
	return m
}

// stream is the handle of the stream, by which it is looked at again and again.
func (w *world) stream(name string) jetstream.Stream {
	w.t.Helper()
	if w.handles[name] == nil {
		handle, err := asked(w, func(ctx context.Context) (jetstream.Stream, error) { return w.js.Stream(ctx, name) })
		if err != nil {
			w.t.Fatal(err)
		}
		w.handles[name] = handle
	}
	return w.handles[name]
}

// asked repeats a question that goes unanswered, as one may that reaches a broker while it starts.
func asked[T any](w *world, ask func(context.Context) (T, error)) (T, error) {
	w.t.Helper()
	for {
		ctx, cancel := context.WithTimeout(w.ctx, 2*time.Second)
		answer, err := ask(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || w.ctx.Err() != nil {
			return answer, err
		}
	}
}

// state is the last record of the probe's dispatch of the receipt, nil if there is none.
func (w *world) state(p *probe, r *events.Receipt) *events.DispatchReceipt {
	w.t.Helper()
	m := w.last(streams.Journal, streams.JournalSubject(p.dispatch(r), p.id()))
	if m == nil {
		return nil
	}
	record, err := events.Decode[events.DispatchReceipt](m.Data)
	if err != nil {
		w.t.Fatal(err)
	}
	return record
}

// becomes waits until the probe's dispatch of the receipt has a record that is as wanted, and gives it.
func (w *world) becomes(p *probe, r *events.Receipt, want verdict) *events.DispatchReceipt {
	w.t.Helper()
	var record *events.DispatchReceipt
	w.eventually(func() string {
		if record = w.state(p, r); record == nil {
			return p.id() + " has no record"
		}
		if got := verdictOf(record); got != want {
			return fmt.Sprintf("%s is %s, want %s", p.id(), got, want)
		}
		return ""
	})
	return record
}

// verdict is what a record says became of its dispatch.
type verdict struct {
	status events.Status
	code   events.Code
	reason events.Reason
}

func (v verdict) String() string {
	return fmt.Sprintf("%s/%s/%s", v.status, v.code, v.reason)
}

var proposed = verdict{status: events.StatusProposed}

func verdictOf(r *events.DispatchReceipt) verdict { return verdict{r.Status, r.Code, r.Reason} }

// executed waits until the executor has ended with every intent of the kind, and gives those records.
func (w *world) executed(intents int) []*events.Execution {
	w.t.Helper()
	var ended []*events.Execution
	w.eventually(func() string {
		ended = slices.DeleteFunc(w.executions(), func(e *events.Execution) bool { return !e.Status.Terminal() })
		if len(ended) < intents {
			return fmt.Sprintf("%d executions ended, want %d", len(ended), intents)
		}
		return ""
	})
	return ended
}

// count is how many messages the stream holds.
func (w *world) count(stream string) uint64 {
	w.t.Helper()
	handle := w.stream(stream)
	info, err := asked(w, func(ctx context.Context) (*jetstream.StreamInfo, error) { return handle.Info(ctx) })
	if err != nil {
		w.t.Fatal(err)
	}
	return info.State.Msgs
}
