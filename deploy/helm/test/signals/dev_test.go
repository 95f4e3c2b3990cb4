package signals

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/prometheus/promql"

	"github.com/afterwrite/afterwrite/dispatcher"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/internal/stack"
)

// dev runs what "hookctl dev" runs: every part in one process, which is scraped at the dispatcher's address.
func dev(t *testing.T) *deployment {
	t.Helper()
	d := &deployment{recording: newRecording(), t: t, ctx: t.Context(), pods: map[string]*pod{}}
	const plenty = 1 << 50 // bookkeeping, and not space
	running, err := stack.Start(t.Context(), stack.Options{
		Broker:     natsembed.Options{StoreDir: t.TempDir(), MaxStoreBytes: plenty, MaxMemoryBytes: plenty},
		Dispatcher: dispatcher.Options{Listen: anyPort},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := running.Stop(); err != nil {
			t.Errorf("dev ended with %v", err)
		}
	})
	d.nc = running.NC
	if d.js, err = jetstream.New(d.nc); err != nil {
		t.Fatal(err)
	}
	d.pods["dev"] = &pod{address: running.Dispatcher.Addr().String()}
	return d
}

func TestDevUnderLoadFillsEveryPanelAndAlertsNobody(t *testing.T) {
	t.Parallel()
	d := dev(t)
	d.underLoad(2 * time.Millisecond)
	d.hold(90 * time.Minute)
	d.alertsNobody()

	board, scraped := readDashboard(t), d.all()
	for _, chosen := range []map[string][]string{
		nil, // All, as it is opened
		board.values(t, scraped, d.at),
	} {
		for _, p := range board.Panels {
			for _, target := range p.Targets {
				expr := board.ask(t, target.Expr, chosen)
				if found := data(t, scraped, expr, d.at); len(found) == 0 {
					t.Errorf("%s shows nothing: %s", p.Title, expr)
				}
			}
		}
	}
}

// alertsNobody holds that no alert fired, ever.
func (d *deployment) alertsNobody() {
	d.t.Helper()
	scraped, alerts := d.all(), rules(d.t)
	for _, name := range slices.Sorted(maps.Keys(alerts)) {
		evaluate(d.t, alerts[name], scraped, scrapeInterval, d.at, func(now time.Duration, fires []expectedAlert) {
			if len(fires) > 0 {
				d.t.Errorf("%s fires after %s: %v", name, now, fires)
			}
		})
	}
}

// data is what a panel draws of a query: the last hour, in steps of as much as Grafana makes on a wide screen.
func data(t *testing.T, s *series, expr string, until time.Duration) promql.Matrix {
	t.Helper()
	const shown, step = time.Hour, 15 * time.Second
	to := time.Unix(0, 0).Add(until)
	q, err := newEngine().NewRangeQuery(t.Context(), s, nil, expr, to.Add(-shown), to, step)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	defer q.Close()
	result := q.Exec(t.Context())
	found, err := result.Matrix()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	if len(result.Warnings) > 0 {
		t.Errorf("%s: %v", expr, result.Warnings)
	}
	found = slices.DeleteFunc(slices.Clone(found), func(s promql.Series) bool {
		return !slices.ContainsFunc(s.Floats, func(p promql.FPoint) bool { return !math.IsNaN(p.F) })
	})
	return found
}

// ask is a query as Grafana sends it where the values are chosen, every one if none is.
func (b dashboard) ask(t *testing.T, expr string, chosen map[string][]string) string {
	t.Helper()
	// Four times the interval between scrapes; and what is shown.
	expr = strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h").Replace(expr)
	for _, v := range b.Templating.List {
		value := v.AllValue
		if values, is := chosen[v.Name]; is {
			value = "(" + strings.Join(values, "|") + ")"
		}
		expr = strings.ReplaceAll(expr, "$"+v.Name, value)
	}
	if strings.Contains(expr, "$") {
		t.Errorf("nobody sets a variable of %s", expr)
	}
	return expr
}

// values are what the variables offer to choose from.
func (b dashboard) values(t *testing.T, s *series, at time.Duration) map[string][]string {
	t.Helper()
	offered := map[string][]string{}
	for _, v := range b.Templating.List {
		if v.Type != "query" {
			continue
		}
		var metric, label string
		text := strings.NewReplacer("label_values(", "", ", ", " ", ")", "").Replace(v.Definition)
		if _, err := fmt.Sscan(text, &metric, &label); err != nil {
			t.Fatalf("$%s is %s: %v", v.Name, v.Definition, err)
		}
		for _, found := range query(t, newEngine(), s, "count by ("+label+") ("+metric+")", time.Unix(0, 0).Add(at)) {
			offered[v.Name] = append(offered[v.Name], found.Metric.Get(label))
		}
		if len(offered[v.Name]) == 0 {
			t.Errorf("$%s offers nothing: %s", v.Name, v.Definition)
		}
	}
	return offered
}
