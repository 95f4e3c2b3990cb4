package main

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/afterwrite/afterwrite/events"
)

// format is how a command prints.
type format struct {
	JSON bool `name:"json" help:"Print one JSON object a line instead of a table."`
}

// window is which part of a stream's documents is listed.
type window struct {
	Since moment `placeholder:"TIME" help:"Only what was recorded since a time, RFC 3339 or how long ago as in 24h."`
	Limit int    `default:"50" help:"List the newest that many; 0 lists all."`
}

// moment is a time, written as it is or as how long ago it was. The zero moment is before everything.
type moment struct{ time.Time }

// UnmarshalText reads a moment.
func (m *moment) UnmarshalText(text []byte) error {
	if ago, err := time.ParseDuration(string(text)); err == nil && ago >= 0 {
		m.Time = time.Now().Add(-ago)
		return nil
	}
	at, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return errors.New("must be an RFC 3339 time, or how long ago as in 24h")
	}
	m.Time = at
	return nil
}

// listing is what a command has found: rows for people, or the documents themselves.
type listing[D any] struct {
	headings []string
	cells    func(D) []string
	found    []D
	// nothing is said where nothing was found.
	nothing string
	// older counts what is left out.
	older int
}

// gather takes from all what is to be listed. What cannot be read is told in the error, and does not hide the rest.
func gather[D any](all iter.Seq2[D, error], w window, wanted func(D) bool) (l listing[D], err error) {
	if w.Limit < 0 {
		return l, errors.New("--limit must not be negative")
	}
	var unreadable []error
	for d, err := range all {
		switch {
		case err != nil:
			unreadable = append(unreadable, err)
			continue
		case !wanted(d):
			continue
		}
		l.found = append(l.found, d)
		// Let go of the oldest in batches: moving them one by one would make a long stream slow.
		if w.Limit > 0 && len(l.found) >= 2*w.Limit {
			l.older += w.Limit
			l.found = append(l.found[:0], l.found[w.Limit:]...)
		}
	}
	if surplus := len(l.found) - w.Limit; w.Limit > 0 && surplus > 0 {
		l.older += surplus
		l.found = l.found[surplus:]
	}
	return l, errors.Join(unreadable...)
}

// tell prints what was found before failed, if that is an error, ended the search.
func (l listing[D]) tell(w io.Writer, f format, failed error) error {
	if failed != nil && len(l.found) == 0 {
		return failed
	}
	return errors.Join(l.print(w, f), failed)
}

func (l listing[D]) print(w io.Writer, f format) error {
	if f.JSON {
		return printLines(w, l.found)
	}
	if len(l.found) == 0 {
		_, err := fmt.Fprintln(w, l.nothing)
		return err
	}
	rows := make([][]string, len(l.found))
	for i, d := range l.found {
		rows[i] = l.cells(d)
	}
	if err := printTable(w, l.headings, rows); err != nil || l.older == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s left out; --limit 0 lists all.\n", counted(l.older, "older one", "older ones"))
	return err
}

// printLines prints one JSON object a line.
func printLines[D any](w io.Writer, documents []D) error {
	for _, d := range documents {
		if err := json.MarshalWrite(w, d); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	return nil
}

const columnGap = "  "

// printTable prints rows under their headings, the columns as wide as what they hold.
func printTable(w io.Writer, headings []string, rows [][]string) error {
	rows = append([][]string{headings}, rows...)
	widths := make([]int, len(headings))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return printRows(w, widths, rows)
}

// printRows prints rows in columns at least that wide, and nothing blank at the end of a line.
func printRows(w io.Writer, widths []int, rows [][]string) error {
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			line.WriteString(strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(cell))))
			line.WriteString(columnGap)
		}
		b.WriteString(strings.TrimRight(line.String(), " "))
		b.WriteByte('\n')
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// section is one of several tables under each other. An empty one is not printed.
type section struct {
	title    string
	headings []string
	rows     [][]string
}

func (s *section) add(cells ...string) { s.rows = append(s.rows, cells) }

// printSections prints each under its title. What stands before the first one is parted from it by a blank line.
func printSections(w io.Writer, before bool, sections ...section) error {
	for _, s := range sections {
		if len(s.rows) == 0 {
			continue
		}
		title := s.title
		if before {
			title = "\n" + title
		}
		if _, err := fmt.Fprintln(w, title); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		if err := printTable(w, s.headings, s.rows); err != nil {
			return err
		}
		before = true
	}
	return nil
}

// printFacts prints names and values under each other.
func printFacts(w io.Writer, facts [][2]string) error {
	width := 0
	for _, fact := range facts {
		width = max(width, len(fact[0]))
	}
	for _, fact := range facts {
		if _, err := fmt.Fprintf(w, "%-*s%s%s\n", width, fact[0], columnGap, fact[1]); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	return nil
}

// second is a time as people are shown it.
func second[T events.Timestamp | events.Optional](at T) string {
	if at == "" {
		return ""
	}
	return events.Timestamp(at).Time().UTC().Format(time.RFC3339)
}

// join puts between only where there are both.
func join(a, b, between string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + between + b
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// joined is a list as one text.
func joined[S ~string](list []S, between string) string {
	texts := make([]string, len(list))
	for i, s := range list {
		texts[i] = string(s)
	}
	return strings.Join(texts, between)
}
