// Package archtest holds what the layout of the module promises, as ordinary tests.
//
// rules_test.go is the table of who may not reach whom and why, graph_test.go finds the chain of imports that breaks
// a rule, source_test.go looks at what imports do not show (a clock or a goroutine in a pure package, the name of
// a stream spelled outside package streams), and records_test.go keeps the decision records in order. Nothing else
// lives here.
package archtest
