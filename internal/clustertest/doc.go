// Package clustertest runs dispatchers against a broker of three nodes that keeps every stream three times, takes its
// nodes away, and holds that what was acknowledged is accounted for: nothing lost, nothing double.
//
// It has tests only. flow_test.go publishes receipts while nodes are stopped, isolated and restarted; race_test.go has
// many writers create the same dispatch; register_test.go holds the journal's expected sequences to a register with
// compare-and-set. world_test.go is the cluster and what runs on it.
//
//	go test ./internal/clustertest                      one disturbance of each kind
//	go test ./internal/clustertest -full -timeout 1h    more receipts, and every disturbance again and again
package clustertest
