// Package simulation drives lanes through simulated histories: a broker, providers and operators that misbehave as
// chance has it, under virtual time, from a seed. It runs in the package's tests; nothing else imports it.
//
// What the world may do at any moment: deliver late, twice, or to another lane; lose a request, an answer or an
// acknowledgement; answer "wrong last sequence" for a rival that then vanishes; read from a replica that lags; refuse
// writes because a store is full; fire a schedule late or let it stick; kill a lane between any two effects. Its
// providers are slow, silent, absent, failing, malformed, or contradict themselves; operators redrive what failed.
//
// While the history runs, every append is held against the design's status table, and every receipt that was
// acknowledged against the journal: each of its dispatches is terminal, or waits with a wake-up. Then the faults stop,
// and what is left must come to rest with every receipt acknowledged and each intent there exactly if its record says
// so.
//
// A failing run names its seed; the same seed gives the same history:
//
//	go test ./dispatcher/simulation -run TestHistories -seed 1234 -v
//	go test ./dispatcher/simulation -run TestHistories -seeds 1000000 -timeout 0
//
// Reading order: world.go (time and chance), broker.go, provider.go, node.go (a lane and its effects), check.go.
package simulation
