// Package gc sets how often the daemons collect garbage.
package gc

import (
	"os"
	"runtime/debug"
)

// percent is how much a heap may grow between two collections. What a daemon of ours keeps is small, and nearly all that
// a receipt or a call allocates is garbage a moment later: at Go's default of 100, a collection comes after a few hundred
// receipts, and all of them take a fifth of the processor. At 200 it is a tenth, and a dispatcher with many hooks needs
// some 90 MB.
const percent = 200

// Tune is for the start of a process of ours. The environment variables GOGC and GOMEMLIMIT speak last.
func Tune() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
