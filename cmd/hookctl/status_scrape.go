package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/afterwrite/afterwrite/events"
)

// mostScraped bounds what is read of one answer.
const mostScraped = 16 << 20

// breakerMetric counts the lanes whose breaker of a hook is in a state.
const breakerMetric = "afterwrite_breaker_lanes"

// scrape asks a dispatcher, where it serves them, for its readiness and its breakers. One that cannot be asked is
// listed with the reason: that is what somebody wants to know who looks.
func (o *overview) scrape(ctx context.Context, address string) {
	d := dispatcherStatus{Address: events.Optional(address)}
	defer func() { o.Dispatchers = append(o.Dispatchers, d) }()
	status, body, err := get(ctx, address, "/readyz")
	if err != nil {
		d.Reasons = []string{err.Error()}
		return
	}
	ready := status == http.StatusOK
	d.Ready = &ready
	if !ready {
		d.Reasons = strings.Split(strings.TrimSpace(string(body)), "\n")
	}
	status, body, err = get(ctx, address, "/metrics")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("/metrics answers %d", status)
	}
	if err == nil {
		err = o.readBreakers(body)
	}
	if err != nil {
		d.Reasons = append(d.Reasons, err.Error())
	}
}

func get(ctx context.Context, address, path string) (status int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(address, "/")+path, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }() // it was read as far as it is wanted
	body, err = io.ReadAll(io.LimitReader(response.Body, mostScraped))
	return response.StatusCode, body, err
}

func (o *overview) readBreakers(body []byte) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("read the metrics: %w", err)
	}
	for _, m := range families[breakerMetric].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		i := slices.IndexFunc(o.Hooks, func(h hookStatus) bool { return h.HookID == labels["hook"] })
		if i < 0 {
			continue
		}
		if o.Hooks[i].Breakers == nil {
			o.Hooks[i].Breakers = map[string]int{}
		}
		o.Hooks[i].Breakers[labels["state"]] += int(m.GetGauge().GetValue())
	}
	return nil
}
