package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/stack"
	"github.com/afterwrite/afterwrite/providers/periodicreport"
	"github.com/afterwrite/afterwrite/streams"
)

// line is one line of a receipts file: a receipt, or a receipt with a name and what is expected of it.
type line struct {
	Name    string         `json:"name"`
	Expect  *expectation   `json:"expect"`
	Receipt jsontext.Value `json:"receipt"`
}

// expectation holds what must come out; what is empty may be anything.
type expectation struct {
	Outcome  outcome              `json:"outcome"`
	Reason   events.RefusalReason `json:"reason"`
	Dispatch *struct {
		Status events.Status   `json:"status"`
		Code   events.Optional `json:"code"`
		Reason events.Optional `json:"reason"`
	} `json:"dispatch"`
}

const maxLine = 1 << 20

// readLines reads a receipts file, or the built-in one.
func readLines(name string) ([]line, error) {
	data := demoReceipts
	if name != "" {
		var err error
		if data, err = os.ReadFile(name); err != nil {
			return nil, fmt.Errorf("read the receipts: %w", err)
		}
	}
	var lines []line
	scanner := bufio.NewScanner(bytes.NewReader(data))
	scanner.Buffer(nil, maxLine)
	for n := 1; scanner.Scan(); n++ {
		if len(bytes.TrimSpace(scanner.Bytes())) == 0 {
			continue
		}
		parsed, err := parseLine(bytes.Clone(scanner.Bytes()))
		if err != nil {
			return nil, fmt.Errorf("%s line %d: %w", name, n, err)
		}
		lines = append(lines, parsed)
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("read the receipts: %w", err)
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("%s holds no receipt", name)
	}
	return lines, nil
}

// parseLine tells the two forms apart. A line that is neither is a receipt all the same: what is wrong with it is the
// dispatcher's to say.
func parseLine(data []byte) (line, error) {
	var members map[string]jsontext.Value
	if json.Unmarshal(data, &members) != nil || members["expect"] == nil {
		return line{Receipt: data}, nil
	}
	var wrapped line
	if err := json.Unmarshal(data, &wrapped, json.RejectUnknownMembers(true)); err != nil {
		return line{}, errors.New("must hold name, expect and receipt, and nothing else")
	}
	return wrapped, nil
}

// outcome is what became of a receipt.
type outcome string

const (
	admitted  outcome = "admitted"
	duplicate outcome = "duplicate"
	replayed  outcome = "replayed"
	conflict  outcome = "conflict"
	refused   outcome = "refused"
	disabled  outcome = "disabled"
)

// feed publishes the lines one by one and finds out what became of each.
func feed(ctx context.Context, s *stack.Stack, lines []line) (*report, error) {
	r := &report{lines: lines}
	for i, l := range lines {
		row, err := feedLine(ctx, s, l.Receipt)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		row.Line = i + 1
		r.rows = append(r.rows, row)
	}
	return r, nil
}

func feedLine(ctx context.Context, s *stack.Stack, data []byte) (row, error) {
	receipt, decodeErr := events.Decode[events.Receipt](data)
	kind, messageID := publishedAs(receipt, data)
	envelope := events.NewEnvelope(messageID, "hookctl/demo", events.ReceiptSchema, "")
	header := envelope.Header()
	header[streams.HeaderMessageID] = []string{messageID}
	ack, err := s.JS.PublishMsg(ctx, &nats.Msg{Subject: streams.ReceiptSubject(kind), Header: header, Data: data})
	if err != nil {
		return row{}, fmt.Errorf("publish: %w", err)
	}
	out := row{Dispatches: []dispatchRow{}}
	if decodeErr == nil && events.IsOpaqueID(receipt.Receipt.ReceiptID) && events.Scan(receipt.Receipt.ReceiptID) == "" {
		out.ReceiptID = events.Optional(receipt.Receipt.ReceiptID)
	}
	if ack.Duplicate {
		out.Outcome = duplicate
		return out, nil
	}
	if err := settled(ctx, s.JS, ack.Sequence); err != nil {
		return row{}, err
	}
	if err := out.find(ctx, s, receipt, data, ack.Sequence); err != nil {
		return row{}, err
	}
	return out, nil
}

// publishedAs gives the event kind and the message id of a receipt; a malformed one has them all the same.
func publishedAs(receipt *events.Receipt, data []byte) (events.EventKind, string) {
	if receipt != nil {
		return receipt.EventKind, receipt.MessageID()
	}
	var loose struct {
		EventKind events.EventKind `json:"event_kind"`
	}
	if json.Unmarshal(data, &loose) != nil || !events.IsName(string(loose.EventKind)) {
		loose.EventKind = "malformed"
	}
	return loose.EventKind, events.SHA256(data)
}

const poll = 2 * time.Millisecond

// until asks again and again, for the broker has no signal to wait for.
func until(ctx context.Context, done func() (bool, error)) error {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// settled waits until the dispatcher has acknowledged the receipt at sequence.
func settled(ctx context.Context, js jetstream.JetStream, sequence uint64) error {
	consumer, err := js.Consumer(ctx, streams.Receipts, streams.DispatcherConsumer)
	if err != nil {
		return fmt.Errorf("look at the dispatcher's consumer: %w", err)
	}
	return until(ctx, func() (bool, error) {
		info, err := consumer.Info(ctx)
		if err != nil {
			return false, fmt.Errorf("look at the dispatcher's consumer: %w", err)
		}
		return info.AckFloor.Stream >= sequence, nil
	})
}

// find reads what became of the receipt from the streams.
func (r *row) find(ctx context.Context, s *stack.Stack, receipt *events.Receipt, data []byte, sequence uint64) error {
	refusal, err := last(ctx, s.JS, streams.Journal, streams.RefusalSubject(events.SHA256(data)))
	if err != nil {
		return err
	}
	if refusal != nil {
		record, err := events.Decode[events.Refusal](refusal.Data)
		if err != nil {
			return err
		}
		r.Outcome, r.Reason = refused, events.Optional(record.Reason)
		return nil
	}
	published, err := message(ctx, s.JS, streams.Receipts, sequence)
	if err != nil {
		return err
	}
	r.Outcome = disabled
	profile := s.Registry.Profiles[receipt.Profile]
	if !profile.Enabled {
		return nil
	}
	identity := receipt.Identity()
	for _, id := range slices.Sorted(slices.Values(profile.Hooks)) {
		hook := s.Registry.Hooks[id]
		if !slices.Contains(hook.Registration.EventKinds, receipt.EventKind) {
			continue
		}
		dispatch := events.DispatchIdentity(identity, id, hook.Registration.CapabilityID, hook.Digest, receipt.EventKind)
		if err := r.findDispatch(ctx, s.JS, dispatch, id, published.Time); err != nil {
			return err
		}
	}
	return nil
}

func (r *row) findDispatch(
	ctx context.Context, js jetstream.JetStream, id events.DispatchID, hook events.HookID, published time.Time,
) error {
	first, err := first(ctx, js, streams.Journal, streams.JournalSubject(id, hook))
	if err != nil {
		return err
	}
	var record *events.DispatchReceipt
	err = until(ctx, func() (bool, error) {
		stored, err := last(ctx, js, streams.Journal, streams.JournalSubject(id, hook))
		if err != nil || stored == nil {
			return false, err
		}
		record, err = events.Decode[events.DispatchReceipt](stored.Data)
		return err == nil && record.Status.Terminal(), err
	})
	if err != nil {
		return fmt.Errorf("wait for dispatch %s: %w", id, err)
	}
	became := admitted
	if first.Time.Before(published) {
		became = replayed
	}
	contradicted, err := conflictSince(ctx, js, id, published)
	if err != nil {
		return err
	}
	if contradicted {
		became = conflict
	}
	// A conflict of one dispatch is the receipt's, and one that is new makes the receipt admitted.
	switch {
	case became == conflict || r.Outcome == disabled:
		r.Outcome = became
	case became == admitted && r.Outcome == replayed:
		r.Outcome = admitted
	}
	return r.add(ctx, js, record)
}

func (r *row) add(ctx context.Context, js jetstream.JetStream, record *events.DispatchReceipt) error {
	d := dispatchRow{
		HookID: record.HookID, DispatchID: record.DispatchID, Status: record.Status,
		Code: record.Code, Reason: record.Reason, Attempt: record.Attempt,
		Intents: []intentRow{}, Executions: []executionRow{},
	}
	for i := range record.Intents {
		intent := &record.Intents[i]
		d.Intents = append(d.Intents, intentRow{intent.IntentID, intent.IntentKind, intent.Payload})
		if intent.IntentKind != periodicreport.IntentKind {
			continue
		}
		execution, err := executed(ctx, js, intent.IntentID)
		if err != nil {
			return err
		}
		d.Executions = append(d.Executions, execution)
	}
	r.Dispatches = append(r.Dispatches, d)
	return nil
}

// executed waits for the stack's executor to end with the intent.
func executed(ctx context.Context, js jetstream.JetStream, id events.IntentID) (executionRow, error) {
	out := executionRow{Executor: stack.Executor, IntentID: id}
	err := until(ctx, func() (bool, error) {
		stored, err := last(ctx, js, streams.Executions, streams.ExecutionSubject(id, stack.Executor))
		if err != nil || stored == nil {
			return false, err
		}
		record, err := events.Decode[events.Execution](stored.Data)
		if err != nil || !record.Status.Terminal() {
			return false, err
		}
		out.Status = record.Status
		if record.Result == nil {
			return true, nil
		}
		var decision struct {
			Reason events.Optional `json:"reason"`
		}
		if err := json.Unmarshal(record.Result.Data, &decision); err != nil {
			return false, fmt.Errorf("read the decision: %w", err)
		}
		out.Decision = decision.Reason
		return true, nil
	})
	if err != nil {
		return out, fmt.Errorf("wait for the execution of %s: %w", id, err)
	}
	return out, nil
}

// conflictSince reports whether a conflict about the dispatch was recorded after the moment.
func conflictSince(ctx context.Context, js jetstream.JetStream, id events.DispatchID, since time.Time) (bool, error) {
	stored, err := last(ctx, js, streams.Journal, streams.ConflictFilterFor(id))
	return stored != nil && !stored.Time.Before(since), err
}

// last is the last message on the subject, nil if there is none.
func last(ctx context.Context, js jetstream.JetStream, stream, subject string) (*jetstream.RawStreamMsg, error) {
	return found(handle(ctx, js, stream, func(s jetstream.Stream) (*jetstream.RawStreamMsg, error) {
		return s.GetLastMsgForSubject(ctx, subject)
	}))
}

// first is the first message on the subject, nil if there is none.
func first(ctx context.Context, js jetstream.JetStream, stream, subject string) (*jetstream.RawStreamMsg, error) {
	return found(handle(ctx, js, stream, func(s jetstream.Stream) (*jetstream.RawStreamMsg, error) {
		return s.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(subject))
	}))
}

func message(ctx context.Context, js jetstream.JetStream, stream string, sequence uint64) (*jetstream.RawStreamMsg, error) {
	return handle(ctx, js, stream, func(s jetstream.Stream) (*jetstream.RawStreamMsg, error) {
		return s.GetMsg(ctx, sequence)
	})
}

func handle(
	ctx context.Context, js jetstream.JetStream, stream string, read func(jetstream.Stream) (*jetstream.RawStreamMsg, error),
) (*jetstream.RawStreamMsg, error) {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", stream, err)
	}
	m, err := read(s)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", stream, err)
	}
	return m, nil
}

func found(m *jetstream.RawStreamMsg, err error) (*jetstream.RawStreamMsg, error) {
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	return m, err
}

// row is what became of one line.
type row struct {
	Line       int             `json:"line"`
	ReceiptID  events.Optional `json:"receipt_id"`
	Outcome    outcome         `json:"outcome"`
	Reason     events.Optional `json:"reason"`
	Dispatches []dispatchRow   `json:"dispatches"`
}

type dispatchRow struct {
	HookID     events.HookID     `json:"hook_id"`
	DispatchID events.DispatchID `json:"dispatch_id"`
	Status     events.Status     `json:"status"`
	Code       events.Optional   `json:"code"`
	Reason     events.Optional   `json:"reason"`
	Attempt    int               `json:"attempt"`
	Intents    []intentRow       `json:"intents"`
	Executions []executionRow    `json:"executions"`
}

type intentRow struct {
	IntentID   events.IntentID   `json:"intent_id"`
	IntentKind events.IntentKind `json:"intent_kind"`
	Payload    jsontext.Value    `json:"payload"`
}

type executionRow struct {
	Executor events.ExecutorID      `json:"executor"`
	IntentID events.IntentID        `json:"intent_id"`
	Status   events.ExecutionStatus `json:"status"`
	Decision events.Optional        `json:"decision"`
}

// report is what became of all lines.
type report struct {
	lines []line
	rows  []row
}

type summary struct {
	Published     int `json:"published"`
	Distinct      int `json:"distinct"`
	Duplicates    int `json:"duplicates"`
	Replayed      int `json:"replayed"`
	Refused       int `json:"refused"`
	Conflicts     int `json:"conflicts"`
	Dispatches    int `json:"dispatches"`
	Proposed      int `json:"proposed"`
	NotApplicable int `json:"not_applicable"`
	Failed        int `json:"failed"`
	Intents       int `json:"intents"`
	Executions    int `json:"executions"`
}

func (r *report) summary() summary {
	s := summary{Published: len(r.rows)}
	seen := map[events.DispatchID]bool{}
	for _, row := range r.rows {
		switch row.Outcome {
		case duplicate:
			s.Duplicates++
		case replayed:
			s.Replayed++
		case refused:
			s.Refused++
		case conflict:
			s.Conflicts++
		case admitted, disabled:
		}
		for _, d := range row.Dispatches {
			if seen[d.DispatchID] {
				continue
			}
			seen[d.DispatchID] = true
			s.Dispatches++
			s.Intents += len(d.Intents)
			s.Executions += len(d.Executions)
			switch d.Status {
			case events.StatusProposed:
				s.Proposed++
			case events.StatusNotApplicable:
				s.NotApplicable++
			case events.StatusFailed:
				s.Failed++
			case events.StatusRetrying, events.StatusRedriven:
			}
		}
	}
	s.Distinct = s.Published - s.Duplicates
	return s
}

// met reports whether every line became what it expects.
func (r *report) met() bool {
	for i := range r.rows {
		if r.unmet(i) != "" {
			return false
		}
	}
	return true
}

// unmet says what of line i is not as it expects, "" if all is.
func (r *report) unmet(i int) string {
	want, row := r.lines[i].Expect, r.rows[i]
	switch {
	case want == nil:
		return ""
	case want.Outcome != "" && want.Outcome != row.Outcome:
		return "expected " + string(want.Outcome)
	case want.Reason != "" && events.Optional(want.Reason) != row.Reason:
		return "expected " + string(want.Reason)
	case want.Dispatch == nil:
		return ""
	case len(row.Dispatches) == 0:
		return "expected a dispatch"
	}
	for _, d := range row.Dispatches {
		switch w := want.Dispatch; {
		case w.Status != "" && w.Status != d.Status:
			return "expected " + string(w.Status)
		case w.Code != "" && w.Code != d.Code:
			return "expected " + string(w.Code)
		case w.Reason != "" && w.Reason != d.Reason:
			return "expected " + string(w.Reason)
		}
	}
	return ""
}

func (r *report) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return r.printJSON(w)
	}
	return r.printTable(w)
}

func (r *report) printJSON(w io.Writer) error {
	for _, row := range r.rows {
		if err := json.MarshalWrite(w, row); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		_, _ = fmt.Fprintln(w)
	}
	if err := json.MarshalWrite(w, map[string]summary{"summary": r.summary()}); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	_, err := fmt.Fprintln(w)
	return err
}
