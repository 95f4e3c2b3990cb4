package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/dispatcher/registry"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/flags"
	"github.com/afterwrite/afterwrite/streams"
)

type receiptPublish struct {
	File   string `arg:"" optional:"" help:"Receipts, one JSON document a line, or one document; by default standard input."`
	Source string `default:"hookctl" help:"Who publishes, as the CloudEvents source."`
	Format format `embed:""`
	Broker broker `embed:""`
}

// published is what became of publishing one receipt.
type published struct {
	Line      int             `json:"line"`
	ReceiptID events.Optional `json:"receipt_id"`
	Outcome   sending         `json:"outcome"`
	// Reason and Rule say why it was not sent.
	Reason    events.Optional `json:"reason"`
	Rule      events.Optional `json:"rule"`
	MessageID events.Optional `json:"message_id"`
	// Sequence in the stream of receipts, 0 if it is not there.
	Sequence uint64 `json:"sequence"`
}

// sending is what became of publishing a receipt.
type sending string

const (
	// sent: the stream took it.
	sent sending = "stored"
	// sentBefore: the stream had it already, and dropped it.
	sentBefore sending = "duplicate"
	// notSent: every dispatcher would refuse it.
	notSent sending = "refused"
)

// Run publishes the receipts in their order. One that every dispatcher would refuse is not sent.
func (c *receiptPublish) Run(ctx context.Context, std stdio) error {
	lines, err := readReceipts(c.File, std.in)
	if err != nil {
		return err
	}
	return c.Broker.ask(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		l := listing[published]{
			headings: []string{"#", "RECEIPT", "BECAME", "SEQUENCE", "MESSAGE ID", "WHY"},
			cells: func(p published) []string {
				sequence := ""
				if p.Sequence > 0 {
					sequence = strconv.FormatUint(p.Sequence, 10)
				}
				return []string{
					strconv.Itoa(p.Line), shownID(p.ReceiptID), join(string(p.Outcome), string(p.Reason), ": "),
					sequence, short(string(p.MessageID)), string(p.Rule),
				}
			},
		}
		publisher := streams.NewPublisher(js, streams.PublisherOptions{Source: c.Source})
		asExpected := true
		for _, line := range lines {
			p, err := publish(ctx, publisher, line)
			if err != nil {
				return l.tell(std.out, c.Format, fmt.Errorf("line %d: %w", line.Number, err))
			}
			asExpected = asExpected && p.Outcome != notSent
			l.found = append(l.found, p)
		}
		if err := l.print(std.out, c.Format); err != nil {
			return err
		}
		if !asExpected {
			return errUnmet
		}
		return nil
	})
}

func publish(ctx context.Context, publisher *streams.Publisher, l line) (published, error) {
	p := published{Line: l.Number}
	receipt, err := streams.CheckReceipt(l.Receipt)
	if err == nil {
		var ack streams.Published
		if ack, err = publisher.Publish(ctx, receipt); err == nil {
			p.ReceiptID, p.Outcome = publicID(receipt), sent
			p.MessageID, p.Sequence = events.Optional(ack.MessageID), ack.Sequence
			if ack.Duplicate {
				p.Outcome = sentBefore
			}
			return p, nil
		}
	}
	if wrong := (*streams.ReceiptError)(nil); errors.As(err, &wrong) {
		p.ReceiptID, p.Outcome = idOf(l.Receipt), notSent
		p.Reason, p.Rule = events.Optional(wrong.Reason), events.Optional(ruleOf(wrong))
		return p, nil
	}
	return p, err
}

// idOf is the public id of a receipt that decodes, whatever else is wrong with it.
func idOf(data []byte) events.Optional {
	receipt, err := events.Decode[events.Receipt](data)
	if err != nil {
		return ""
	}
	return publicID(receipt)
}

func ruleOf(wrong *streams.ReceiptError) string {
	return cmp.Or(wrong.Member, "the document") + " " + wrong.Rule
}

func shownID(id events.Optional) string { return cmp.Or(string(id), "(not shown)") }

type receiptCheck struct {
	File          string          `arg:"" optional:"" help:"Receipts, one JSON document a line, or one document; by default standard input."`
	Installed     flags.Installed `embed:"" group:"What is installed; without, only the rules that need no configuration are applied:"`
	MaxReceiptAge time.Duration   `help:"How old a receipt may be; by default any age."`
	Format        format          `embed:""`
}

// checked is what would become of one receipt.
type checked struct {
	Line            int               `json:"line"`
	ReceiptID       events.Optional   `json:"receipt_id"`
	Outcome         verdict           `json:"outcome"`
	Reason          events.Optional   `json:"reason"`
	Rule            events.Optional   `json:"rule"`
	MessageID       events.Optional   `json:"message_id"`
	ReceiptIdentity events.Optional   `json:"receipt_identity"`
	Dispatches      []checkedDispatch `json:"dispatches"`
}

type checkedDispatch struct {
	HookID     events.HookID     `json:"hook_id"`
	DispatchID events.DispatchID `json:"dispatch_id"`
	// Boundary is the rule by which the hook's input is not public-safe, null if it is.
	Boundary events.Optional `json:"boundary"`
}

// verdict is what would become of a receipt.
type verdict string

const (
	// wouldAdmit: it would be admitted.
	wouldAdmit verdict = "admitted"
	// wouldRefuse: it would be refused.
	wouldRefuse verdict = "refused"
	// wouldIgnore: its profile is switched off, or has no hook for its event kind.
	wouldIgnore verdict = "disabled"
	// mayAdmit: nothing is against it that needs no configuration to be seen, and none was given.
	mayAdmit verdict = "admissible"
)

// Run decides about each receipt as a dispatcher with these files would. All are as expected if none is refused and
// every input is within the boundary.
func (c *receiptCheck) Run(std stdio) error {
	if c.MaxReceiptAge < 0 {
		return errors.New("--max-receipt-age must not be negative")
	}
	var installed *registry.Installed
	if len(c.Installed.Missing()) < 2 {
		files, err := readInstalled(c.Installed)
		if err != nil {
			return err
		}
		if installed, err = registry.Load(files); err != nil {
			return err
		}
		installed.MaxReceiptAge = c.MaxReceiptAge
	}
	lines, err := readReceipts(c.File, std.in)
	if err != nil {
		return err
	}
	l := listing[checked]{}
	asExpected := true
	for _, line := range lines {
		became := checkLine(line, installed, time.Now())
		asExpected = asExpected && became.Outcome != wouldRefuse
		for _, d := range became.Dispatches {
			asExpected = asExpected && d.Boundary == ""
		}
		l.found = append(l.found, became)
	}
	if c.Format.JSON {
		err = l.print(std.out, c.Format)
	} else {
		err = printChecked(std, l.found)
	}
	if err == nil && !asExpected {
		return errUnmet
	}
	return err
}

func checkLine(l line, installed *registry.Installed, now time.Time) checked {
	out := checked{Line: l.Number, ReceiptID: idOf(l.Receipt)}
	receipt, err := streams.CheckReceipt(l.Receipt)
	wrong := (*streams.ReceiptError)(nil)
	switch {
	case errors.As(err, &wrong):
		out.Outcome, out.Reason = wouldRefuse, events.Optional(wrong.Reason)
		out.Rule = events.Optional(ruleOf(wrong))
	default:
		out.Outcome = mayAdmit
		out.MessageID, out.ReceiptIdentity = events.Optional(receipt.MessageID()), events.Optional(receipt.Identity())
	}
	if installed != nil {
		out.decide(l.Receipt, installed, now)
	}
	return out
}

// decide has the core decide, which knows the profiles and the age.
func (c *checked) decide(data []byte, installed *registry.Installed, now time.Time) {
	kind, id := publishedAs(data)
	result, err := core.Commit(core.AdmitReceipt{
		SubjectKind: kind, Data: data, MessageID: id, Deliveries: 1, StreamTime: now, Now: now,
	}, core.State{Installed: &installed.Installed}, core.System)
	if err != nil {
		panic(err) // admitting needs nothing loaded and is the system's to do
	}
	switch result.Outcome { //nolint:exhaustive // admitting a receipt comes to no other outcome
	case core.OutcomeRefused:
		reason := events.Optional(result.Save.Refusal.Reason)
		if reason != c.Reason {
			c.Rule = events.Optional(configuredRule(result.Save.Refusal.Reason))
		}
		c.Outcome, c.Reason = wouldRefuse, reason
	case core.OutcomeIgnored:
		c.Outcome, c.Reason, c.Rule = wouldIgnore, "", ""
	case core.OutcomeAdmitted:
		c.Outcome = wouldAdmit
		for _, d := range result.Plan {
			c.Dispatches = append(c.Dispatches, checkedDispatch{d.Key.Hook, d.Key.Dispatch, events.Optional(d.Outside)})
		}
	}
}

// configuredRule is the rule of a refusal that depends on the configuration or the clock.
func configuredRule(reason events.RefusalReason) string {
	switch reason { //nolint:exhaustive // every other reason has its rule from the receipt alone
	case events.RefusedUnknownProfile:
		return "profile must be one of the profiles file"
	case events.RefusedTooOld:
		return "receipt.committed_at must not be older than --max-receipt-age"
	case events.RefusedFromFuture:
		return "receipt.committed_at must not be in the future"
	}
	return ""
}

func printChecked(std stdio, found []checked) error {
	var rows [][]string
	for _, r := range found {
		lead := []string{strconv.Itoa(r.Line), shownID(r.ReceiptID), join(string(r.Outcome), string(r.Reason), ": ")}
		if len(r.Dispatches) == 0 {
			rows = append(rows, append(lead, "", "", string(r.Rule)))
		}
		for _, d := range r.Dispatches {
			why := ""
			if d.Boundary != "" {
				why = "input_boundary_rejected: " + string(d.Boundary)
			}
			rows = append(rows, append(lead, d.HookID, short(d.DispatchID), why))
			lead = []string{"", "", ""}
		}
	}
	return printTable(std.out, []string{"#", "RECEIPT", "WOULD BE", "HOOK", "DISPATCH", "WHY"}, rows)
}
