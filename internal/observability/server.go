package observability

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/afterwrite/afterwrite/internal/version"
)

// Endpoints is what a [Server] serves.
type Endpoints struct {
	// Reasons are why the process is not ready, one line each, its condition first; none if it is. /readyz leaves out
	// the conditions that its parameters "exclude" name.
	Reasons func() []string
	Metrics prometheus.Gatherer
	// Debug is served under /debug/, nil for nothing there. See [Debug].
	Debug http.Handler
}

// Server serves health and metrics, and is all of a process that listens.
type Server struct {
	listener net.Listener
	http     *http.Server
}

const readHeaderTimeout = 5 * time.Second

// Listen claims the address. With none there is a server nevertheless, that serves nobody.
func Listen(address string, e Endpoints) (*Server, error) {
	s := &Server{http: &http.Server{Handler: e.mux(), ReadHeaderTimeout: readHeaderTimeout}}
	if address == "" {
		return s, nil
	}
	listener, err := net.Listen("tcp", address) //nolint:noctx // it neither dials nor waits
	if err != nil {
		return nil, fmt.Errorf("listen for health and metrics: %w", err)
	}
	s.listener = listener
	return s, nil
}

// Addr is where it serves, nil if it does not.
func (s *Server) Addr() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Serve serves until ctx is done. The error says why it could not go on.
func (s *Server) Serve(ctx context.Context) error {
	if s.listener == nil {
		<-ctx.Done()
		return nil
	}
	defer context.AfterFunc(ctx, func() { _ = s.http.Close() })()
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve health and metrics: %w", err)
	}
	return nil
}

// Close gives the address back, of a server that never served too.
func (s *Server) Close() {
	_ = s.http.Close()
	if s.listener != nil {
		_ = s.listener.Close()
	}
}

func (e Endpoints) mux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "alive") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		excluded := r.URL.Query()["exclude"]
		reasons := slices.DeleteFunc(e.Reasons(), func(reason string) bool {
			condition, _, _ := strings.Cut(reason, ":")
			return slices.Contains(excluded, condition)
		})
		if len(reasons) == 0 {
			_, _ = fmt.Fprintln(w, "ready")
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		for _, reason := range reasons {
			_, _ = fmt.Fprintln(w, reason)
		}
	})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, version.String()) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(e.Metrics, promhttp.HandlerOpts{}))
	if e.Debug != nil {
		mux.Handle("/debug/", e.Debug)
	}
	return mux
}
