// Package crashtest kills the real dispatcher, with SIGKILL, before and after every effect it has on the world, starts
// it again, and holds what is there in the end: every receipt acknowledged, every dispatch with one end, every intent
// once, nothing lost and nothing double.
//
// It has tests only. matrix_test.go is where the dispatcher dies, path_test.go what it is doing then, world_test.go
// the broker, the provider and the operator around it, and held_test.go what must hold afterwards.
//
//	go test ./internal/crashtest                      a few points of every path
//	go test ./internal/crashtest -full -timeout 1h    every point, each at its first hits
package crashtest
