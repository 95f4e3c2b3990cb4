package process

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/afterwrite/afterwrite/internal/flags"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collector is one that takes traces, and the paths it was sent to with what was sent.
func collector(t *testing.T) (at string, sent chan [2]string) {
	t.Helper()
	sent = make(chan [2]string, 16)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		sent <- [2]string{r.URL.Path, string(body)}
	}))
	t.Cleanup(server.Close)
	return server.URL, sent
}

func TestTracesGoWhereTheFlagOrTheVariablesSay(t *testing.T) {
	at, sent := collector(t)
	for name, test := range map[string]struct {
		flag string
		env  map[string]string
		path string // where they come, "" if nowhere
	}{
		"nowhere":                    {},
		"the flag":                   {flag: at, path: "/v1/traces"},
		"the flag with a path":       {flag: at + "/tenant/a", path: "/tenant/a"},
		"the endpoint":               {env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": at}, path: "/v1/traces"},
		"the endpoint of traces":     {env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": at + "/traces"}, path: "/traces"},
		"the flag before a variable": {flag: at, env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": at + "/other"}, path: "/v1/traces"},
		"the SDK disabled":           {flag: at, env: map[string]string{"OTEL_SDK_DISABLED": "true"}},
		"no exporter":                {flag: at, env: map[string]string{"OTEL_TRACES_EXPORTER": "none"}},
		"a sampler that takes none":  {flag: at, env: map[string]string{"OTEL_TRACES_SAMPLER": "always_off"}},
	} {
		t.Run(name, func(t *testing.T) {
			for variable, value := range test.env {
				t.Setenv(variable, value)
			}
			p, err := Flags{OTLPEndpoint: test.flag}.Open(t.Context(), "dispatcher", io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			if p.Tracing != nil {
				_, span := p.Tracing.Tracer("test").Start(t.Context(), "a span of the test")
				span.End()
			}
			p.Close()
			got := [2]string{}
			select {
			case got = <-sent:
			default:
			}
			if got[0] != test.path || test.path != "" && !strings.Contains(got[1], "a span of the test") {
				t.Errorf("sent to %q, want %q: %q", got[0], test.path, got[1])
			}
			if test.path != "" && !strings.Contains(got[1], "afterwrite-dispatcher") {
				t.Errorf("the spans do not say whose they are: %q", got[1])
			}
		})
	}
}

func TestAStopDoesNotWaitForACollectorThatIsNotThere(t *testing.T) {
	var out bytes.Buffer
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "100")
	p, err := Flags{OTLPEndpoint: "http://127.0.0.1:1"}.Open(t.Context(), "dispatcher", &out)
	if err != nil {
		t.Fatal(err)
	}
	_, span := p.Tracing.Tracer("test").Start(t.Context(), "a span of the test")
	span.End()
	p.Close()
	if !strings.Contains(out.String(), "traces not sent") {
		t.Errorf("logged %s", &out)
	}
}

func TestWhatIsWrongIsNamed(t *testing.T) {
	for endpoint, want := range map[string][]string{
		"http://collector:4318":     nil,
		"https://collector/tenant":  nil,
		"collector:4318":            {errEndpoint.Error()},
		"grpc://collector:4317":     {errEndpoint.Error()},
		"http://":                   {errEndpoint.Error()},
		"http://collector:4318/%zz": {errEndpoint.Error()},
	} {
		if diff := cmp.Diff(want, Flags{OTLPEndpoint: endpoint}.Problems()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", endpoint, diff)
		}
	}
	if diff := cmp.Diff([]string{"--log-burst must not be negative"}, Flags{Log: flags.Log{LogBurst: -1}}.Problems()); diff != "" {
		t.Error(diff)
	}
}

func TestServingEndsWithWhatItServesFor(t *testing.T) {
	p, err := Flags{}.Open(t.Context(), "executor", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	reasons := func() []string { return nil }
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		listen string
		ends   error
	}{
		"well":              {"127.0.0.1:0", nil},
		"badly":             {"127.0.0.1:0", broken},
		"listening to none": {"", broken},
	} {
		err := Flags{Listen: test.listen}.Serve(t.Context(), p, reasons, func(context.Context) error { return test.ends })
		if !errors.Is(err, test.ends) {
			t.Errorf("%s: %v, want %v", name, err, test.ends)
		}
	}
	if err := (Flags{Listen: "nowhere"}).Serve(t.Context(), p, reasons, nil); err == nil || !strings.HasPrefix(err.Error(), "listen for health and metrics: ") {
		t.Errorf("got %v", err)
	}
}
