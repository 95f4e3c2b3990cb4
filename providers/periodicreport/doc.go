// Package periodicreport is the capability periodic_report: it notices when a periodic report may be due.
//
// It has two halves, both pure. The hook freezes the facts of a writeback into an intent and decides nothing. The
// reducer, served as a service, later decides from intents, a policy and what was last reported whether a report is
// due; it renders nothing and sends nothing. In between stands an executor with its own authority.
//
//	receipt ──▶ Hook ──▶ intent{Facts} ──▶ executor ──▶ Evaluate ──▶ Candidates ──▶ Reduce ──▶ Decision
//
// State advances only after a delivery has been read back, which is the executor's to do and never this package's.
//
// Read facts.go (what the intent carries), hook.go, candidate.go (the tables), reduce.go, then evaluate.go (the
// service). install.go holds what a composition root installs. Nothing here may read a clock or do I/O.
package periodicreport
