package signals

import (
	"context"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/template"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"sigs.k8s.io/yaml"
)

const (
	alertsFile = "../../alerts/afterwrite.yaml"
	testsFile  = "testdata/alerts.yaml"
	runbook    = "https://github.com/afterwrite/afterwrite/blob/main/docs/operations.md#"
)

// ruleTests are in the format of "promtool test rules".
type ruleTests struct {
	RuleFiles          []string       `json:"rule_files"`
	EvaluationInterval model.Duration `json:"evaluation_interval"`
	Tests              []struct {
		Name        string         `json:"name"`
		Interval    model.Duration `json:"interval"`
		InputSeries []struct {
			Series string `json:"series"`
			Values string `json:"values"`
		} `json:"input_series"`
		AlertRuleTest []struct {
			EvalTime  model.Duration  `json:"eval_time"`
			Alertname string          `json:"alertname"`
			ExpAlerts []expectedAlert `json:"exp_alerts"`
		} `json:"alert_rule_test"`
	} `json:"tests"`
}

type expectedAlert struct {
	ExpLabels      map[string]string `json:"exp_labels"`
	ExpAnnotations map[string]string `json:"exp_annotations"`
}

func rules(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	data, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(data, false, model.UTF8Validation, parse, promslog.NewNopLogger())
	for _, err := range errs {
		t.Error(err)
	}
	if t.Failed() {
		t.FailNow()
	}
	byName := map[string]rulefmt.Rule{}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			if _, twice := byName[rule.Alert]; twice || rule.Alert == "" {
				t.Fatalf("%q must be an alert, once", rule.Alert)
			}
			byName[rule.Alert] = rule
		}
	}
	return byName
}

func TestEveryAlertSaysHowBadItIsAndWhatToDo(t *testing.T) {
	for name, rule := range rules(t) {
		if severity := rule.Labels["severity"]; severity != "critical" && severity != "warning" {
			t.Errorf("%s must be critical or a warning, it is %q", name, severity)
		}
		if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("%s must have a summary and a description", name)
		}
		if want := runbook + strings.ToLower(name); rule.Annotations["runbook_url"] != want {
			t.Errorf("%s must link to %s", name, want)
		}
	}
}

func ruleTestsOf(t *testing.T) ruleTests {
	t.Helper()
	data, err := os.ReadFile(testsFile)
	if err != nil {
		t.Fatal(err)
	}
	var tests ruleTests
	if err := yaml.UnmarshalStrict(data, &tests); err != nil {
		t.Fatal(err)
	}
	if want := []string{filepath.Join("..", alertsFile)}; !slices.Equal(tests.RuleFiles, want) {
		t.Fatalf("the tests must be of %v, for promtool to find them, not of %v", want, tests.RuleFiles)
	}
	return tests
}

func TestAlertsFireWhenTheyShouldAndOnlyThen(t *testing.T) {
	alerts, tests := rules(t), ruleTestsOf(t)
	fired, silent := map[string]bool{}, map[string]bool{}
	for _, test := range tests.Tests {
		t.Run(test.Name, func(t *testing.T) {
			var scraped series
			for _, input := range test.InputSeries {
				name, values, err := parse.ParseSeriesDesc(input.Series + " " + input.Values)
				if err != nil {
					t.Fatal(err)
				}
				var samples []chunks.Sample
				for i, v := range values {
					if !v.Omitted {
						samples = append(samples, sample{int64(i) * time.Duration(test.Interval).Milliseconds(), v.Value})
					}
				}
				scraped.add(name, samples)
			}
			for _, expect := range test.AlertRuleTest {
				rule, ok := alerts[expect.Alertname]
				if !ok {
					t.Fatalf("there is no alert %s", expect.Alertname)
				}
				got := firing(t, rule, &scraped, time.Duration(tests.EvaluationInterval), time.Duration(expect.EvalTime))
				if diff := cmp.Diff(sorted(expect.ExpAlerts), sorted(got)); diff != "" {
					t.Errorf("%s at %s (-want +got):\n%s", expect.Alertname, expect.EvalTime, diff)
				}
				if len(expect.ExpAlerts) > 0 {
					fired[expect.Alertname] = true
				} else {
					silent[expect.Alertname] = true
				}
			}
		})
	}
	for _, name := range slices.Sorted(maps.Keys(alerts)) {
		if !fired[name] || !silent[name] {
			t.Errorf("%s must be shown to fire, and not to", name)
		}
	}
}

// firing evaluates the rule from the beginning on, as a Prometheus would, and gives what fires in the end.
func firing(t *testing.T, rule rulefmt.Rule, scraped *series, interval, until time.Duration) []expectedAlert {
	t.Helper()
	var last []expectedAlert
	evaluate(t, rule, scraped, interval, until, func(_ time.Duration, fires []expectedAlert) { last = fires })
	return last
}

// evaluate evaluates the rule from the beginning on, as a Prometheus would, and tells what fires each time.
func evaluate(
	t *testing.T, rule rulefmt.Rule, scraped *series, interval, until time.Duration, tell func(now time.Duration, fires []expectedAlert),
) {
	t.Helper()
	engine := newEngine()
	since := map[string]time.Duration{}
	for now := time.Duration(0); now <= until; now += interval {
		active := map[string]time.Duration{}
		var fires []expectedAlert
		for _, found := range query(t, engine, scraped, rule.Expr, time.Unix(0, 0).Add(now)) {
			key := found.Metric.String()
			began, was := since[key]
			if !was {
				began = now
			}
			active[key] = began
			if now-began >= time.Duration(rule.For) {
				fires = append(fires, alert(t, rule, found))
			}
		}
		since = active
		tell(now, fires)
	}
}

func alert(t *testing.T, rule rulefmt.Rule, found promql.Sample) expectedAlert {
	t.Helper()
	own := labels.NewBuilder(found.Metric).Del(model.MetricNameLabel).Labels().Map()
	expand := func(text string) string {
		t.Helper()
		data := template.AlertTemplateData(own, nil, "", found)
		define := "{{$labels := .Labels}}{{$value := .Value}}"
		out, err := template.NewTemplateExpander(context.Background(), define+text, rule.Alert, data, 0, nil, new(url.URL), nil).Expand()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	a := expectedAlert{ExpLabels: maps.Clone(own), ExpAnnotations: map[string]string{}}
	maps.Copy(a.ExpLabels, rule.Labels)
	for name, text := range rule.Annotations {
		a.ExpAnnotations[name] = expand(text)
	}
	return a
}

// sorted is what lists of alerts are compared by.
func sorted(alerts []expectedAlert) []expectedAlert {
	return slices.SortedFunc(slices.Values(alerts), func(a, b expectedAlert) int {
		return strings.Compare(a.ExpAnnotations["description"], b.ExpAnnotations["description"])
	})
}
