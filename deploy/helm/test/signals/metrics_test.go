package signals

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// The page is held equal to what the processes serve, by a test beside them.
const metricsPage = "../../../../docs/metrics.md"

// metric is a row of the page.
type metric struct {
	kind   string
	labels []string
}

var (
	metricRow = regexp.MustCompile("(?m)^\\| `(afterwrite_[a-z_]+)` \\| (counter|gauge|histogram) \\|([^|]*)\\|")
	labelName = regexp.MustCompile("`([a-z_]+)`")
	// Who scrapes adds where it was.
	addedLabels = []string{"namespace", "pod", "instance", "job"}
)

// documented are the series that the processes serve, by name.
func documented(t *testing.T) map[string]metric {
	t.Helper()
	page, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]metric{}
	for _, row := range metricRow.FindAllSubmatch(page, -1) {
		m := metric{kind: string(row[2]), labels: slices.Clone(addedLabels)}
		for _, label := range labelName.FindAllSubmatch(row[3], -1) {
			m.labels = append(m.labels, string(label[1]))
		}
		name := string(row[1])
		if m.kind != "histogram" {
			series[name] = m
			continue
		}
		series[name+"_sum"], series[name+"_count"] = m, m
		series[name+"_bucket"] = metric{kind: m.kind, labels: append(slices.Clone(m.labels), "le")}
	}
	if len(series) == 0 {
		t.Fatalf("%s has no metrics", metricsPage)
	}
	return series
}

// queries are all that the rules and the dashboard ask, by who asks.
func queries(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for name, rule := range rules(t) {
		all[name] = append(all[name], rule.Expr)
	}
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			all["panel "+p.Title] = append(all["panel "+p.Title], filled(target.Expr))
		}
	}
	return all
}

func TestAlertsAndDashboardAskForWhatIsServed(t *testing.T) {
	served, used := documented(t), map[string]bool{}
	for who, exprs := range queries(t) {
		for _, expr := range exprs {
			parsed, err := parse.ParseExpr(expr)
			if err != nil {
				t.Fatalf("%s: %v", who, err)
			}
			parser.Inspect(parsed, func(node parser.Node, path []parser.Node) error {
				selector, ok := node.(*parser.VectorSelector)
				if !ok {
					return nil
				}
				m, ok := served[selector.Name]
				if !ok {
					t.Errorf("%s asks for %s, which nothing serves", who, selector.Name)
					return nil
				}
				used[strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(selector.Name, "_bucket"), "_count"), "_sum")] = true
				for _, matcher := range selector.LabelMatchers {
					if matcher.Name != model.MetricNameLabel && !slices.Contains(m.labels, matcher.Name) {
						t.Errorf("%s asks for the label %s, which %s does not have", who, matcher.Name, selector.Name)
					}
				}
				checkCalls(t, who, m, path)
				return nil
			})
		}
	}
	var unseen []string
	for _, name := range slices.Sorted(maps.Keys(served)) {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"), "_sum")
		if !used[base] && !slices.Contains(unseen, base) {
			unseen = append(unseen, base)
		}
	}
	if !slices.Equal(unseen, onlyToAsk) {
		t.Errorf("metrics that neither an alert nor the dashboard shows: %v, want %v", unseen, onlyToAsk)
	}
}

// onlyToAsk are metrics for whoever asks for them.
var onlyToAsk = []string{
	"afterwrite_build_info", "afterwrite_consumer_unacknowledged_messages", "afterwrite_execution_lost_races_total",
	"afterwrite_log_lines_dropped_total",
}

// checkCalls checks how the series above a selector are used: what is grouped by, and that only counters have rates.
func checkCalls(t *testing.T, who string, m metric, path []parser.Node) {
	t.Helper()
	for _, node := range path {
		switch node := node.(type) {
		case *parser.AggregateExpr:
			for _, label := range node.Grouping {
				if !node.Without && !slices.Contains(m.labels, label) {
					t.Errorf("%s groups by %s, which its series do not have", who, label)
				}
			}
		case *parser.Call:
			accumulates := m.kind != "gauge"
			switch node.Func.Name {
			case "rate", "increase":
				if !accumulates {
					t.Errorf("%s takes the rate of a gauge", who)
				}
			case "deriv":
				if accumulates {
					t.Errorf("%s takes the slope of a counter", who)
				}
			}
		}
	}
}
