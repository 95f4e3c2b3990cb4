package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/afterwrite/afterwrite/events"
)

// printTable prints a row for each dispatch of each line, and a last sentence.
func (r *report) printTable(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(out, "#\tRECEIPT\tBECAME\tHOOK\tDISPATCH\tINTENT\tEXECUTION")
	for i, row := range r.rows {
		became := join(string(row.Outcome), string(row.Reason), ": ")
		if unmet := r.unmet(i); unmet != "" {
			became += " (" + unmet + ")"
		}
		receipt := string(row.ReceiptID)
		if receipt == "" {
			receipt = "(not public-safe)"
		}
		if r.lines[i].Name != "" {
			receipt = r.lines[i].Name
		}
		if len(row.Dispatches) == 0 {
			_, _ = fmt.Fprintf(out, "%d\t%s\t%s\t\t\t\t\n", row.Line, receipt, became)
		}
		for _, d := range row.Dispatches {
			_, _ = fmt.Fprintf(out, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n",
				row.Line, receipt, became, d.HookID, d.describe(), d.describeIntents(), d.describeExecutions())
			receipt, became = "", ""
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	s := r.summary()
	_, err := fmt.Fprintf(w, "\n%d receipts published: %d duplicates dropped by the broker, %d refused, %d conflicts, %d replayed.\n"+
		"%d dispatches: %d proposed, %d not applicable, %d failed. %d intents, %d executions.\n",
		s.Published, s.Duplicates, s.Refused, s.Conflicts, s.Replayed,
		s.Dispatches, s.Proposed, s.NotApplicable, s.Failed, s.Intents, s.Executions)
	return err
}

func (d dispatchRow) describe() string {
	return join(string(d.Status), join(string(d.Code), string(d.Reason), ", "), ": ")
}

func (d dispatchRow) describeIntents() string {
	parts := make([]string, len(d.Intents))
	for i, intent := range d.Intents {
		parts[i] = intent.IntentKind + " " + short(intent.IntentID)
	}
	return strings.Join(parts, ", ")
}

func (d dispatchRow) describeExecutions() string {
	parts := make([]string, len(d.Executions))
	for i, e := range d.Executions {
		parts[i] = join(string(e.Status), string(e.Decision), ": ")
	}
	return strings.Join(parts, ", ")
}

// short is an id that a person can compare: its first digits.
func short(id events.IntentID) string {
	const digits = 8
	at := strings.LastIndexByte(id, '_') + 1
	return id[at:min(len(id), at+digits)]
}

func join(a, b, between string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + between + b
}
