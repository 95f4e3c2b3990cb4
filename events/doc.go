// Package events is the contract between an orchestrator, the dispatcher, providers and executors: its documents,
// their strict codec, their identities, what of them is public-safe, and how they travel.
//
// It decides nothing about a dispatch and does no I/O. What belongs here is what two processes must agree upon; a
// rule that only one of them applies lives with that one. It imports nothing else of this module.
//
// # Documents
//
//	receipt            receipt.go        proof that a Turn's durable writeback committed
//	registration       registration.go   one hook of a capability
//	hook_input         hook.go           what a hook is called with
//	hook_result        hook.go           what it answers
//	intent             intent.go         a proposal; it grants nothing and performs nothing
//	dispatch_receipt   dispatch.go       one journal record about a dispatch; codes.go holds its enumerations
//	refusal            refusal.go        a receipt or registration that was not taken
//	conflict           refusal.go        a second, different telling of a dispatch
//	execution          execution.go      one record of what an executor did with an intent
//	service_request    service.go        a question to a service
//	service_response   service.go        its answer
//
// To read the code, begin with ids.go and kinds.go, then receipt.go, hook.go, intent.go and dispatch.go; then
// identity.go for what makes two things the same, decode.go for strictness, boundary.go for what may leave, and
// cloudevents.go for the way it travels.
//
// # Strictness
//
// [Decode] takes a document only as it must be: every member, no other and none twice, null only where the
// document says so, valid UTF-8, at most 32 levels, and of numbers only plain integers within ±(2^53−1), spelled
// as RFC 8785 spells them: 1.0, 1e3 and -0 are refused, because the canonical form of such a document would not be
// its own text. Then the values: ids, names, times, enumerations, and what must stand together.
//
// A refusal is a [*DecodeError]: one sentence that names the member and the rule. It repeats neither values nor
// names that the document does not know, for those are the sender's text, and a refused document may hold
// anything.
//
// Three questions are not the decoder's. Whether a receipt is admissible is the dispatcher's: a receipt's
// identities are any strings here. Whether an intent claims an authority is asked later ([Intent.Claims]), so that
// the journal can say so. Whether a payload is what its capability promised is its [PayloadSchema]'s.
//
// # Canonical form
//
// [Encode] writes RFC 8785. The fields of every document stand in the order of their members' names, so nothing is
// sorted at run time; payloads are brought into canonical form when they are decoded. [Canonical] writes payloads as
// they stand, for documents made of decoded parts, and ids are computed from them as they stand too: whoever makes one
// from a payload that was not decoded gives it in canonical form. Digests and ids are SHA-256 over these bytes.
//
// # Schemas and fixtures
//
// Every document has a published JSON Schema ([Schema], in schemas/). Types and schemas are held in agreement by
// testdata: valid/ decodes, satisfies its schema and encodes canonically; every file of invalid/ breaks one rule,
// and invalid/expected.json says which fault and sentence it must be refused with, and, where a JSON Schema cannot
// see it, why not. testdata/golden holds identities that were computed independently. All of it needs only a JSON
// parser, so that another language can hold itself to it.
package events
