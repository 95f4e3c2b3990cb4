//go:build !failpoint

package failpoint

// Before is where the process may die with the effect still to come.
func Before(Effect) {}

// After is where the process may die once the effect was sent.
func After(Effect, any) {}
