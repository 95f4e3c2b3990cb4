// Package observability is how a process of ours tells how it is, the same in all of them.
//
//   - log.go makes the logger: structured, sampled, with a level that can change while it runs.
//   - health.go holds the conditions that keep a process from being ready, each with its sentence.
//   - server.go serves /livez, /readyz, /metrics and /version on one listener, and nothing else listens.
//   - debug.go is what is added under /debug/ by a flag: profiles and the log level. level_unix.go changes the level
//     of a process that was started without it, by a signal.
//   - metrics.go holds the metrics that several components have, and how they are registered. Those of one component
//     alone are its own. docs/metrics.md lists all of them, and a test holds it equal to what is scraped.
//   - trace.go reads and writes the distributed-tracing extension of CloudEvents.
//
// Exporting traces drags in a good deal of other software, so that is the package otlp beneath, for commands only.
//
// # What may be said
//
// Labels, log lines and span attributes hold ids of ours, names of what is installed, closed enums and numbers. They
// hold nothing that a receipt, a provider or a caller wrote as text: that may be private.
package observability
