package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/afterwrite/afterwrite/events"
)

// line is one line of a receipts file: a receipt, or a receipt with a name and what is expected of it.
type line struct {
	Number  int            `json:"-"`
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

// readReceipts reads a file, or standard input where it has no name.
func readReceipts(name string, stdin io.Reader) ([]line, error) {
	if name == "" || name == "-" {
		data, err := io.ReadAll(stdin)
		if err != nil {
			return nil, fmt.Errorf("read the receipts: %w", err)
		}
		return parseReceipts("standard input", data)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read the receipts: %w", err)
	}
	return parseReceipts(name, data)
}

// parseReceipts reads one JSON document a line or, where no line is one by itself, a single document over many lines.
func parseReceipts(name string, data []byte) ([]line, error) {
	var lines []line
	number, oneALine := 0, false
	for text := range bytes.Lines(data) {
		number++
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		l, whole, err := parseLine(text)
		if err != nil {
			return nil, fmt.Errorf("%s line %d: %w", name, number, err)
		}
		l.Number = number
		lines, oneALine = append(lines, l), oneALine || whole
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("%s holds no receipt", name)
	}
	if oneALine || len(lines) == 1 {
		return lines, nil
	}
	l, _, err := parseLine(bytes.TrimSpace(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	l.Number = lines[0].Number
	return []line{l}, nil
}

// parseLine tells the two forms apart, and whether the text is an object. What is neither form is a receipt all the
// same: what is wrong with it is the dispatcher's to say.
func parseLine(text []byte) (l line, object bool, err error) {
	var members map[string]jsontext.Value
	object = json.Unmarshal(text, &members) == nil && members != nil
	if members["expect"] == nil {
		return line{Receipt: text}, object, nil
	}
	if err := json.Unmarshal(text, &l, json.RejectUnknownMembers(true)); err != nil {
		return line{}, object, errors.New("must hold name, expect and receipt, and nothing else")
	}
	return l, object, nil
}

// publicID is the receipt's id where it may be shown to anybody, else empty.
func publicID(receipt *events.Receipt) events.Optional {
	if receipt == nil {
		return ""
	}
	id := receipt.Receipt.ReceiptID
	if !events.IsOpaqueID(id) || events.Scan(id) != "" {
		return ""
	}
	return events.Optional(id)
}
