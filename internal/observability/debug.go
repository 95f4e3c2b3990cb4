package observability

import (
	"net/http"
	"net/http/pprof"

	"go.uber.org/zap"
)

// Debug serves profiles under /debug/pprof/ and the log level at /debug/loglevel: GET tells it, PUT changes it, as in
// curl -X PUT -d level=debug. Both cost the process something, and neither asks who wants it, so a flag opens them.
func Debug(level zap.AtomicLevel) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/debug/loglevel", level)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}
