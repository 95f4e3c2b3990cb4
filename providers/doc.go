// Package providers is the SDK for capability providers: the processes that answer a dispatcher's hook calls and an
// executor's service requests.
//
// # Authority
//
// A provider has none. It publishes only responses, needs no JetStream access, and what it answers is a proposal that
// the dispatcher judges again from scratch. A hook's failure reaches neither the receipt nor another hook.
//
// # What an author writes
//
// A [Hook] is one pure method from an input to proposals: no clock, no I/O, no state. The dispatcher may ask twice and
// compare, so an answer that depends on anything but the input contradicts itself. A [Service] is the one
// implementation of a request/reply name, with a timeout and a schema that gates what it returns.
//
// [Serve] does the rest: it registers a NATS micro service with one endpoint and one queue group per hook and service,
// decodes strictly, bounds concurrency, keeps deadlines, computes every id, encodes canonically, turns panics into
// service errors, and drains on stop.
//
// # A call
//
//	subscription ──▶ queue ──▶ worker: envelope, deadline, decode ──▶ Hook or Service ──▶ gate ──▶ reply
//	                   │full: overloaded
//
// A subscription never runs author code and never waits. Every endpoint has its own queue and workers, so that a slow
// service does not hold up a hook. A call whose deadline passed while it waited is not run. A hook that was started in
// time is always answered, late or not: the dispatcher can still use it. A service is answered at its deadline.
//
// # Failures
//
// Whatever goes wrong is an [ErrorCode] and one sentence that repeats nothing of the request and nothing the author
// wrote, see errors.go. Only types and places reach the log.
//
// Read hook.go and service.go (what an author implements), options.go, provider.go (start and stop), endpoint.go (the
// path of a call), errors.go; metrics.go and tracing.go tell how it is. Conformance lives in providertest, and may be
// run on a provider in any language.
package providers
