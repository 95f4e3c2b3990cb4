// Package gc sets how often the daemons collect garbage.
package gc

import (
	"os"
	"runtime/debug"
)

// percent is how much a heap may grow between two collections. What a daemon of ours keeps is small, and nearly all that
// a receipt or a call allocates is garbage a moment later: at Go's default of 100, a collection would come after a few
// hundred receipts, and take a fifth of the processor to save some megabytes.
const percent = 400

// Tune is for the start of a process of ours. The environment variables GOGC and GOMEMLIMIT speak last.
func Tune() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
