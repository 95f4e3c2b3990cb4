// Package signals holds the alert rules and the dashboard to what they promise, with Prometheus' own parsers, rule format
// and query engine.
//
//   - alerts_test.go evaluates the rules over series that are written down, in the format of "promtool test rules": where
//     their thresholds lie, and what they say.
//   - causes_test.go brings about what each alert is for, in a deployment that runs (deployment_test.go) and is scraped
//     (scrape_test.go), and holds what fires.
//   - dev_test.go runs what "hookctl dev" runs, under load: every panel shows something, and no alert fires.
//   - dashboard_test.go and metrics_test.go hold what is asked to what docs/metrics.md says is served.
package signals
