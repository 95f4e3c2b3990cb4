package observability_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/afterwrite/afterwrite/internal/observability"
)

// serve serves the endpoints until the test ends, and gives their address.
func serve(t *testing.T, e observability.Endpoints) string {
	t.Helper()
	server, err := observability.Listen("127.0.0.1:0", e)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return "http://" + server.Addr().String()
}

func ask(t *testing.T, method, url, body string) (code int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(read)
}

func TestReadinessLeavesOutTheConditionsThatAreExcluded(t *testing.T) {
	held := []string{"aging: it waits", "broken: a wheel is off"}
	at := serve(t, observability.Endpoints{Reasons: func() []string { return slices.Clone(held) }, Metrics: prometheus.NewRegistry()})
	for query, want := range map[string]string{
		"":                                "aging: it waits\nbroken: a wheel is off\n",
		"?exclude=aging":                  "broken: a wheel is off\n",
		"?exclude=a&exclude=it+waits":     "aging: it waits\nbroken: a wheel is off\n",
		"?exclude=aging&exclude=broken":   "ready\n",
		"?exclude=broken&exclude=unknown": "aging: it waits\n",
	} {
		code := http.StatusServiceUnavailable
		if want == "ready\n" {
			code = http.StatusOK
		}
		if got, text := ask(t, "GET", at+"/readyz"+query, ""); got != code || text != want {
			t.Errorf("/readyz%s is %d %q, want %d %q", query, got, text, code, want)
		}
	}
}

func TestReadinessSaysWhyNot(t *testing.T) {
	const broken, away observability.Condition = "broken", "away"
	health := observability.NewHealth(broken, away)
	gone := ""
	health.Check(away, func() string { return gone })
	registry := prometheus.NewRegistry()
	if err := registry.Register(health); err != nil {
		t.Fatal(err)
	}
	at := serve(t, observability.Endpoints{Reasons: health.Reasons, Metrics: registry})
	for _, step := range []struct {
		do   func()
		code int
		want string
	}{
		{func() {}, 503, "not_started: starting\n"},
		{func() { health.Clear(observability.NotStarted) }, 200, "ready\n"},
		{func() { health.Hold(broken, "a wheel is off") }, 503, "broken: a wheel is off\n"},
		{func() { gone = "nobody is there" }, 503, "away: nobody is there\nbroken: a wheel is off\n"},
		{func() { health.Hold(broken, "") }, 503, "away: nobody is there\n"},
	} {
		step.do()
		if code, text := ask(t, "GET", at+"/readyz", ""); code != step.code || text != step.want {
			t.Errorf("/readyz is %d %q, want %d %q", code, text, step.code, step.want)
		}
	}
	select {
	case <-health.Ready():
	default:
		t.Error("it was ready, and Ready does not tell")
	}
	_, text := ask(t, "GET", at+"/metrics", "")
	for _, want := range []string{
		`afterwrite_condition{condition="away"} 1`, `afterwrite_condition{condition="broken"} 0`, `afterwrite_condition{condition="not_started"} 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("/metrics lacks %s:\n%s", want, text)
		}
	}
}

func TestNothingElseIsServedWithoutTheFlag(t *testing.T) {
	at := serve(t, observability.Endpoints{Reasons: func() []string { return nil }, Metrics: prometheus.NewRegistry()})
	got := map[string]int{}
	for _, path := range []string{
		"/livez", "/readyz", "/metrics", "/version", "/", "/debug/pprof/", "/debug/loglevel", "/loglevel", "/healthz",
	} {
		got["GET "+path], _ = ask(t, "GET", at+path, "")
	}
	got["POST /livez"], _ = ask(t, "POST", at+"/livez", "")
	want := map[string]int{
		"GET /livez": 200, "GET /readyz": 200, "GET /metrics": 200, "GET /version": 200, "POST /livez": 405, "GET /": 404,
		"GET /debug/pprof/": 404, "GET /debug/loglevel": 404, "GET /loglevel": 404, "GET /healthz": 404,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("served (-want +got):\n%s", diff)
	}
}

func TestTheLevelChangesWhileTheProcessRuns(t *testing.T) {
	out := new(locked)
	log := observability.NewLogger(out, observability.LogOptions{Level: zap.InfoLevel})
	at := serve(t, observability.Endpoints{
		Reasons: func() []string { return nil }, Metrics: prometheus.NewRegistry(), Debug: observability.Debug(log.Level),
	})
	derived := log.With(zap.String("part", "one"))
	derived.Debug("before")
	if code, text := ask(t, "PUT", at+"/debug/loglevel", "level=debug"); code != 200 || text != `{"level":"debug"}`+"\n" {
		t.Errorf("PUT is %d %q", code, text)
	}
	derived.Debug("after")
	if code, _ := ask(t, "PUT", at+"/debug/loglevel", "level=loud"); code != 400 {
		t.Errorf("a level that there is not is %d, want 400", code)
	}
	if text := out.text(); strings.Contains(text, "before") || strings.Count(text, `"msg":"after"`) != 1 {
		t.Errorf("logged %s", text)
	}
	if code, _ := ask(t, "GET", at+"/debug/pprof/cmdline", ""); code != 200 {
		t.Errorf("/debug/pprof/cmdline is %d, want 200", code)
	}
}

func TestLinesBeyondABurstAreSampledAndCounted(t *testing.T) {
	out := new(locked)
	log := observability.NewLogger(out, observability.LogOptions{Level: zap.InfoLevel, Burst: 2})
	registry := prometheus.NewRegistry()
	if err := log.Register(registry); err != nil {
		t.Fatal(err)
	}
	const lines = 50 // fewer than would let one through again
	for i := range lines {
		log.Info("decision", zap.Int("number", i))
	}
	log.Warn("decision")
	written := strings.Count(out.text(), `"level":"info"`)
	dropped := 0.0
	for _, metric := range scraped(t, registry)["afterwrite_log_lines_dropped_total"].GetMetric() {
		dropped += metric.GetCounter().GetValue()
	}
	// Where a second ends in between, another burst begins.
	if written < 2 || written > 4 || written+int(dropped) != lines {
		t.Errorf("%d lines were written and %v counted as dropped, of %d", written, dropped, lines)
	}
	if strings.Count(out.text(), `"level":"warn"`) != 1 {
		t.Errorf("a line of another level was dropped: %s", out.text())
	}
}

func TestAnAddressThatIsTakenIsNamed(t *testing.T) {
	e := observability.Endpoints{Reasons: func() []string { return nil }, Metrics: prometheus.NewRegistry()}
	at := strings.TrimPrefix(serve(t, e), "http://")
	_, err := observability.Listen(at, e)
	if want := fmt.Sprintf("listen for health and metrics: listen tcp %s: ", at); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s…", err, want)
	}
}
