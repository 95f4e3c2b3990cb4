package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/afterwrite/afterwrite/internal/version"
)

// flushWait is how long a process that stops waits for its last spans to be taken.
const flushWait = 5 * time.Second

// wanted reports whether traces are to be sent: by the flag, or by the variables that OpenTelemetry defines. All their
// other variables are the SDK's and the exporter's own, so that sampling, headers and certificates need no flags.
func wanted(endpoint string) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return cmp.Or(endpoint, os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")) != ""
}

var errEndpoint = errors.New("--otlp-endpoint must be an http or https URL, as in http://collector:4318")

// parseEndpoint reads where the collector is. A URL without a path is of one that takes traces at the usual path.
func parseEndpoint(endpoint string) (*url.URL, error) {
	at, err := url.Parse(endpoint)
	if err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
		return nil, errEndpoint
	}
	if strings.Trim(at.Path, "/") == "" {
		at.Path = "/v1/traces"
	}
	return at, nil
}

// openTracing gives a provider whose spans are sent in batches, and what sends the last of them; nil, and nothing,
// where traces are not wanted.
func openTracing(ctx context.Context, endpoint, component string, log *zap.Logger) (trace.TracerProvider, func(), error) {
	if !wanted(endpoint) {
		return nil, func() {}, nil
	}
	var options []otlptracehttp.Option
	if endpoint != "" {
		at, err := parseEndpoint(endpoint)
		if err != nil {
			return nil, nil, err
		}
		options = append(options, otlptracehttp.WithEndpointURL(at.String()))
	}
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, nil, fmt.Errorf("export traces: %w", err)
	}
	// Variables speak last.
	described, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "afterwrite-"+component), attribute.String("service.version", version.Semantic()),
	), resource.WithFromEnv())
	if err != nil {
		return nil, nil, fmt.Errorf("describe the process to traces: %w", err)
	}
	// The SDK tells of spans that it could not send in no other way.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces not sent", zap.Error(err)) }))
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(described))
	return provider, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWait)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("last traces not sent", zap.Error(err))
		}
	}, nil
}
