package doccheck

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/afterwrite/afterwrite/streams"
)

const runbook = "docs/operations.md"

func TestEveryAlertHasItsEntryInTheRunbook(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "deploy/helm/alerts/afterwrite.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(data, &rules); err != nil {
		t.Fatal(err)
	}
	page := read(t, runbook)
	_, alerts, _ := strings.Cut(page, "\n## Alerts\n")
	alerts, _, _ = strings.Cut(alerts, "\n## ")
	var entries []string
	for _, heading := range regexp.MustCompile(`(?m)^### (.*)$`).FindAllStringSubmatch(alerts, -1) {
		entries = append(entries, heading[1])
	}
	var names []string
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			names = append(names, rule.Alert)
			want := "https://github.com/afterwrite/afterwrite/blob/main/" + runbook + "#" + anchor(rule.Alert)
			if got := rule.Annotations["runbook_url"]; got != want {
				t.Errorf("%s: its runbook is %s, want %s", rule.Alert, got, want)
			}
			if !slices.Contains(entries, rule.Alert) {
				t.Errorf("%s: %s has no entry", rule.Alert, runbook)
			}
		}
	}
	for _, entry := range entries {
		if !slices.Contains(names, entry) {
			t.Errorf("%s: %s is no alert", runbook, entry)
		}
	}
	if len(names) == 0 {
		t.Error("there are no alerts to look for")
	}
}

func TestLinksToSectionsLeadToThem(t *testing.T) {
	for _, name := range pages(t) {
		for _, found := range link.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, name), ""), -1) {
			target, section := name, strings.TrimPrefix(found[2], "#")
			if found[1] != "" {
				target = filepath.Join(filepath.Dir(name), found[1])
			}
			if section == "" || strings.Contains(found[1], "://") || filepath.Ext(target) != ".md" {
				continue
			}
			if !slices.Contains(sections(t, target), section) {
				t.Errorf("%s: %s has no section #%s", name, target, section)
			}
		}
	}
}

// sections are the anchors of a page's headings.
func sections(t *testing.T, page string) []string {
	t.Helper()
	var anchors []string
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(fenced.ReplaceAllString(read(t, page), ""), -1) {
		anchors = append(anchors, anchor(heading[1]))
	}
	return anchors
}

var noAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)

// anchor is what GitHub makes of a heading.
func anchor(heading string) string {
	return strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// capacity is how much memory the broker needs, in GiB, for loads of each kind.
func capacity(*testing.T, []string) string {
	topology := streams.Default(streams.Settings{})
	loads := []streams.Load{
		{IntentsPerDispatch: 0.2, ExecutorsPerIntent: 1},
		{IntentsPerDispatch: 1, ExecutorsPerIntent: 1},
		{IntentsPerDispatch: 1, ExecutorsPerIntent: 2},
		{IntentsPerDispatch: 4, ExecutorsPerIntent: 1},
	}
	headings := []string{"dispatches/s"}
	number := func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
	for _, l := range loads {
		headings = append(headings, number(l.IntentsPerDispatch)+" intents/dispatch, "+number(l.ExecutorsPerIntent)+" executors/intent")
	}
	var rows [][]string
	for _, rate := range []float64{1, 10, 100, 1000} {
		row := []string{number(rate)}
		for _, l := range loads {
			l.DispatchesPerSecond = rate
			row = append(row, strconv.FormatFloat(float64(topology.BrokerMemory(l))/(1<<30), 'f', 1, 64))
		}
		rows = append(rows, row)
	}
	return table(headings, rows)
}
