// Package e2e holds the tests of Afterwrite as a whole: the dispatcher, providers and executors over a real broker, told
// from the outside by what the streams hold afterwards.
//
// Every test begins at a Turn (turn_test.go) that an orchestrator settles, and ends at documents. Most run the whole
// stack as it is shipped (world_test.go); those in which a part is stopped, lost or doubled run its parts
// (parts_test.go). A probe (probe_test.go) is a provider that does as the test says.
//
// Here are no tests of one rule alone: those stand beside the core, the lane and the registry.
package e2e
