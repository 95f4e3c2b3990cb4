package dispatcher

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	zapobserver "go.uber.org/zap/zaptest/observer"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/dispatcher/lane"
	"github.com/afterwrite/afterwrite/events"
)

// observing is an observer of a lane with one hook, its registry, and what it logged.
func observing(t *testing.T) (*observer, *prometheus.Registry, *zapobserver.ObservedLogs) {
	t.Helper()
	registry := prometheus.NewRegistry()
	m, err := newMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	logged, logs := zapobserver.New(zap.DebugLevel)
	return newObserver(m, zap.New(logged), func(string, error) {}, map[events.HookID]core.Hook{"a.b": {}}), registry, logs
}

// values are the series of a metric by their labels.
func values(t *testing.T, registry *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetValue())
			}
			got[strings.Join(labels, " ")] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	return got
}

func TestAPanicIsCountedAndSaysNothingOfWhatWasHandled(t *testing.T) {
	o, registry, logs := observing(t)
	var nothing []int
	out := func() (fault any) {
		defer func() { fault = recover() }()
		return nothing[len(logs.All())]
	}()
	for _, value := range []any{"private", errors.New("private"), fmt.Errorf("private: %w", errors.New("private")), out} {
		o.Panicked(lane.Receipts, 7, value, []byte("stack"))
	}
	if diff := cmp.Diff(map[string]float64{"receipt": 4}, values(t, registry, "afterwrite_panics_total")); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
	var faults []any
	for _, line := range logs.All() {
		if strings.Contains(fmt.Sprint(line.ContextMap()), "private") {
			t.Errorf("logged %v", line.ContextMap())
		}
		faults = append(faults, line.ContextMap()["fault"])
	}
	if diff := cmp.Diff([]any{nil, nil, nil, "runtime error: index out of range [0] with length 0"}, faults); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

func TestEveryLaneIsInOneStateOfABreaker(t *testing.T) {
	o, registry, _ := observing(t)
	other := newObserver(o.metrics, zap.NewNop(), func(string, error) {}, map[events.HookID]core.Hook{"a.b": {}})
	o.Breaker("a.b", "open")
	o.Breaker("a.b", "half-open")
	other.Breaker("a.b", "open")
	o.Breaker("a.b", "open")
	want := map[string]float64{"a.b closed": 0, "a.b half-open": 0, "a.b open": 2}
	if diff := cmp.Diff(want, values(t, registry, "afterwrite_breaker_lanes")); diff != "" {
		t.Errorf("lanes by state (-want +got):\n%s", diff)
	}
}

func TestThereIsOneLineForEachDecision(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	record := &events.DispatchReceipt{DispatchID: "pwh_sha256_a", HookID: "a.b", Status: events.StatusProposed, Attempt: 1}
	failed := &events.DispatchReceipt{
		DispatchID: "pwh_sha256_a", HookID: "a.b", Status: events.StatusFailed,
		Code: events.CodeProducerFailed, Reason: events.ReasonAttemptsExhausted, Attempt: 12,
	}
	key := core.Key{Dispatch: "pwh_sha256_a", Hook: "a.b"}
	receipt := &lane.Delivery{Sequence: 7}
	for name, test := range map[string]struct {
		delivery *lane.Delivery
		planned  *core.Dispatch
		result   core.Result
		level    zapcore.Level
		want     map[string]any
	}{
		"a receipt admitted": {receipt, nil, core.Result{Outcome: core.OutcomeAdmitted}, zap.DebugLevel,
			map[string]any{"outcome": "admitted", "reason": "", "sequence": uint64(7)}},
		"a receipt refused": {receipt, nil,
			core.Result{Outcome: core.OutcomeRefused, Save: &core.Save{Refusal: &events.Refusal{Reason: events.RefusedTooOld}}}, zap.WarnLevel,
			map[string]any{"outcome": "refused", "reason": "too_old", "sequence": uint64(7)}},
		"a call": {receipt, &core.Dispatch{Key: key}, core.Result{Outcome: core.OutcomeCalling}, zap.DebugLevel,
			map[string]any{"dispatch_id": "pwh_sha256_a", "hook": "a.b", "outcome": "calling"}},
		"a record": {receipt, nil, core.Result{Outcome: core.OutcomeDecided, State: record, Save: &core.Save{Record: record}}, zap.InfoLevel,
			map[string]any{"dispatch_id": "pwh_sha256_a", "hook": "a.b", "outcome": "decided", "status": "proposed", "code": "", "reason": "", "attempt": int64(1)}},
		"a failure": {receipt, nil, core.Result{Outcome: core.OutcomeDecided, State: failed, Save: &core.Save{Record: failed}}, zap.WarnLevel,
			map[string]any{"dispatch_id": "pwh_sha256_a", "hook": "a.b", "outcome": "decided", "status": "failed", "code": "producer_failed", "reason": "attempts_exhausted", "attempt": int64(12)}},
		"a conflict": {receipt, nil, core.Result{Outcome: core.OutcomeConflict, State: record,
			Save: &core.Save{Conflict: &events.Conflict{Reason: events.ReasonInputDiffers}}}, zap.WarnLevel,
			map[string]any{"dispatch_id": "pwh_sha256_a", "hook": "a.b", "outcome": "conflict", "status": "proposed", "code": "", "reason": "", "attempt": int64(1), "conflict": "input_differs"}},
		"a wake-up without a record": {&lane.Delivery{Source: lane.Source{Hook: "a.b"}, Key: key}, nil, core.Result{Outcome: core.OutcomeExpired}, zap.DebugLevel,
			map[string]any{"dispatch_id": "pwh_sha256_a", "hook": "a.b", "outcome": "expired"}},
	} {
		t.Run(name, func(t *testing.T) {
			o, _, logs := observing(t)
			o.Decided(time.Now(), test.delivery, test.planned, &test.result, lane.Trace{Parent: parent})
			test.want["trace_id"] = "0af7651916cd43dd8448eb211c80319c"
			if logs.Len() != 1 {
				t.Fatalf("%d lines, want 1", logs.Len())
			}
			line := logs.All()[0]
			if diff := cmp.Diff(test.want, line.ContextMap()); diff != "" || line.Level != test.level {
				t.Errorf("level %s, want %s; fields (-want +got):\n%s", line.Level, test.level, diff)
			}
		})
	}
}
