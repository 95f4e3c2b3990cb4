package signals

import (
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// scrapeInterval is that of a usual Prometheus, on the made-up clock.
const scrapeInterval = 15 * time.Second

// recording is what a Prometheus has of its targets: the samples of every scrape by series, and a mark where a series
// ended. The scrapes are real and taken within milliseconds; the times at which they are kept are made up, an interval
// apart, so that what is asked about minutes and hours is answered in seconds. Its store is kept in memory: one of
// Prometheus' own answers the same, and links the libraries of three clouds.
type recording struct {
	// at is when the last scrape was.
	at     time.Duration
	series map[string]*recorded
}

type recorded struct {
	labels  labels.Labels
	samples []chunks.Sample
	alive   bool // the last scrape had it
}

func newRecording() *recording { return &recording{series: map[string]*recorded{}} }

// target is a process that is scraped.
type target struct{ pod, address string }

// scrape scrapes every target, an interval after the scrape before.
func (r *recording) scrape(t *testing.T, targets []target) {
	t.Helper()
	r.at += scrapeInterval
	now := r.at.Milliseconds()
	found := map[string]bool{}
	for _, target := range targets {
		for _, told := range target.metrics(t) {
			key := told.of.String()
			found[key] = true
			if r.series[key] == nil {
				r.series[key] = &recorded{labels: told.of}
			}
			s := r.series[key]
			s.samples, s.alive = append(s.samples, sample{now, told.value}), true
		}
	}
	for key, s := range r.series {
		if s.alive && !found[key] {
			s.samples, s.alive = append(s.samples, sample{now, math.Float64frombits(value.StaleNaN)}), false
		}
	}
}

// reading is what a target tells of one series.
type reading struct {
	of    labels.Labels
	value float64
}

// metrics is what a target tells now; nothing if it does not answer. Where it runs is added, as by the chart's
// ServiceMonitor.
func (to target) metrics(t *testing.T) []reading {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+to.address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s answers %s, %v", to.pod, response.Status, err)
	}
	parser, err := textparse.New(body, response.Header.Get("Content-Type"), labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		t.Fatalf("%s tells what cannot be parsed: %v", to.pod, err)
	}
	var told []reading
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return told
		}
		if err != nil {
			t.Fatalf("%s tells what cannot be parsed: %v", to.pod, err)
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var name labels.Labels
		parser.Labels(&name)
		_, _, v := parser.Series()
		told = append(told, reading{labels.NewBuilder(name).Set("namespace", namespace).Set("pod", to.pod).Labels(), v})
	}
}

// all is everything that was scraped.
func (r *recording) all() *series {
	var all series
	for _, s := range r.series {
		all.add(s.labels, slices.Clone(s.samples))
	}
	return &all
}
