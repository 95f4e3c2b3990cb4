package doccheck

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the pages anew")

const root = "../.."

// sources give, by the first word of what a part is from, its text.
var sources = map[string]func(t *testing.T, args []string) string{
	"quote":    quote,
	"values":   values,
	"reasons":  reasons,
	"flags":    binaryFlags,
	"commands": commands,
	"capacity": capacity,
}

var part = regexp.MustCompile(`(?s)<!-- from: ([^\n]*) -->\n.*?<!-- end -->\n`)

func TestWhatPagesTakeFromTheCodeIsWhatItSays(t *testing.T) {
	parts := 0
	for _, name := range pages(t) {
		page := read(t, name)
		written := part.ReplaceAllStringFunc(page, func(old string) string {
			parts++
			source := part.FindStringSubmatch(old)[1]
			words := strings.Fields(source)
			give, ok := sources[words[0]]
			if !ok {
				t.Fatalf("%s: no source is called %q", name, words[0])
			}
			return fmt.Sprintf("<!-- from: %s -->\n%s<!-- end -->\n", source, give(t, words[1:]))
		})
		if strings.Count(page, "<!-- from:") != len(part.FindAllString(page, -1)) {
			t.Errorf("%s: a part has no end", name)
		}
		if written == page {
			continue
		}
		if *update {
			if err := os.WriteFile(filepath.Join(root, name), []byte(written), 0o644); err != nil { //nolint:gosec // a page is for all to read
				t.Fatal(err)
			}
			continue
		}
		t.Errorf("%s is not what the code says; go generate ./internal/doccheck writes it anew (-page +code):\n%s",
			name, cmp.Diff(strings.Split(page, "\n"), strings.Split(written, "\n")))
	}
	if parts == 0 {
		t.Error("no page takes anything from the code")
	}
}

// pages are the README and what stands in docs, by their path from the root.
func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"README.md"}
	for _, page := range found {
		names = append(names, filepath.Join("docs", filepath.Base(page)))
	}
	return names
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var (
	fenced = regexp.MustCompile("(?s)```.*?```")
	link   = regexp.MustCompile(`\]\(([^)#]*)(#[^)]*)?\)`)
)

func TestLinksOfPagesLeadSomewhere(t *testing.T) {
	for _, name := range pages(t) {
		for _, found := range link.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, name), ""), -1) {
			target := found[1]
			if target == "" || strings.Contains(target, "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(name), target)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// table is a Markdown table.
func table(headings []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) {
		escaped := make([]string, len(cells))
		for i, cell := range cells {
			escaped[i] = strings.ReplaceAll(cell, "|", `\|`)
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(escaped, " | "))
	}
	line(headings)
	fmt.Fprintf(&b, "|%s\n", strings.Repeat("---|", len(headings)))
	for _, row := range rows {
		line(row)
	}
	return b.String()
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}
