// Package dispatcher is the process that turns committed receipts into recorded dispatches and intents.
//
// It is embeddable: [New] checks the options and claims the listening address, [Dispatcher.Run] dispatches until its
// context ends, and any number of dispatchers share the work of one set of streams. It holds authority over the
// journal, the intents and the wake-ups, and over nothing else: it calls no service but hooks, and acts on nothing.
//
// # Where what happens
//
//   - dispatcher/core decides: every rule of admission, attempts, budgets, replays, conflicts and redrives.
//   - dispatcher/lane carries a dispatch through its decisions, in order, with patience.
//   - This package is the host around lanes. port.go turns a lane's effects into NATS messages, inbound.go turns NATS
//     messages into a lane's inputs, runner.go is the goroutine between the two. watch.go looks at the broker,
//     redrive.go takes operators' requests, health.go, observer.go and metrics.go tell how it is, and tracing.go carries
//     the trace of a receipt on around a lane's effects.
//   - dispatcher/registry reads what is installed; dispatcher/journal reads what was decided.
//
// # When things fail
//
// A crash at any instruction loses nothing and doubles nothing, for a message is acknowledged only once the journal
// and its consequences are stored, and a second delivery finds them. The broker being away, slow or full holds work
// up and is said by /readyz. A journal that is deleted or created anew ends the process: it would do everything again.
//
// Start reading at dispatcher.go.
package dispatcher
