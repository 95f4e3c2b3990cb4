package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/afterwrite/afterwrite/events"
)

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

func (r *report) print(w io.Writer, f format) error {
	if !f.JSON {
		return r.printTable(w)
	}
	if err := printLines(w, r.rows); err != nil {
		return err
	}
	return printLines(w, []map[string]summary{{"summary": r.summary()}})
}

// printTable prints a row for each dispatch of each line, and two last sentences.
func (r *report) printTable(w io.Writer) error {
	var rows [][]string
	for i, row := range r.rows {
		became := join(string(row.Outcome), string(row.Reason), ": ")
		if unmet := r.unmet(i); unmet != "" {
			became += " (" + unmet + ")"
		}
		receipt := r.lines[i].Name
		if receipt == "" {
			receipt = shownID(row.ReceiptID)
		}
		lead := []string{strconv.Itoa(row.Line), receipt, became}
		if len(row.Dispatches) == 0 {
			rows = append(rows, lead)
		}
		for _, d := range row.Dispatches {
			rows = append(rows, append(lead, d.HookID, d.describe(), d.describeIntents(), d.describeExecutions()))
			lead = []string{"", "", ""}
		}
	}
	if err := printTable(w, []string{"#", "RECEIPT", "BECAME", "HOOK", "DISPATCH", "INTENT", "EXECUTION"}, rows); err != nil {
		return err
	}
	s := r.summary()
	_, err := fmt.Fprintf(w, "\n%s published: %s dropped by the broker, %d refused, %s, %d replayed.\n"+
		"%s: %d proposed, %d not applicable, %d failed. %s, %s.\n",
		counted(s.Published, "receipt", "receipts"), counted(s.Duplicates, "duplicate", "duplicates"), s.Refused,
		counted(s.Conflicts, "conflict", "conflicts"), s.Replayed, counted(s.Dispatches, "dispatch", "dispatches"),
		s.Proposed, s.NotApplicable, s.Failed, counted(s.Intents, "intent", "intents"),
		counted(s.Executions, "execution", "executions"))
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
