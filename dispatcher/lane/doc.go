// Package lane runs dispatches from their receipt to their record: the loop at the heart of the dispatcher.
//
// A [Lane] owns its dispatches outright. It is fed inputs (a delivery, a reply, a record loaded, a write answered, a
// moment passed, a request, a stop) by one goroutine, and emits [Effects] (pull, call, load, append, publish,
// schedule, acknowledge, hand back). None of its methods blocks, so nothing in it needs a goroutine, a future, a lock
// or a context per message, and a simulated broker can drive it through any history.
//
// A lane decides nothing: what becomes of a dispatch it asks dispatcher/core. What it adds is order and patience.
//
//   - Order: a record is durable before its intents and wake-up are sent, those are acknowledged before a call
//     begins, and all of it before the message is acknowledged. Broken off anywhere, the message comes again and the
//     journal says what is missing.
//   - Patience: a write that is not answered is repeated byte for byte; one that lost is decided again on what won;
//     after [maxDecisions] the message is handed back. What the store refuses waits and is tried again.
//   - Isolation: each hook has a number of places and a breaker, and is told to the core as a fact. A hook that is
//     slow or dead fills its own places and nobody else's.
//
// Reading order: effects.go (what goes out), lane.go (what comes in), dispatch.go (one dispatch's way through the
// core), hook.go (places, breaker, how much to pull), alarm.go (deadlines).
//
// Nothing here may import NATS: adapters in package dispatcher turn it into inputs and effects into it.
package lane
