// Package signals holds the alert rules and the dashboard to what they promise, with Prometheus' own parser, rule
// format and query engine.
package signals
