//go:build failpoint

package failpoint

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

const variable = "AFTERWRITE_FAILPOINT"

// armed is the point at which the process dies, and how many hits are left until it does.
var armed = struct {
	after  bool
	effect Effect
	left   atomic.Int64
}{}

func init() {
	value := os.Getenv(variable)
	if value == "" {
		return
	}
	point, count, _ := strings.Cut(value, ":")
	when, effect, _ := strings.Cut(point, "_")
	n, err := strconv.ParseInt(count, 10, 64)
	if when != "before" && when != "after" || !slices.Contains(Effects, Effect(effect)) || err != nil || n < 1 {
		// A point that is never hit would let every test of it pass.
		fmt.Fprintf(os.Stderr, "%s must be before_ or after_ with an effect, a colon and a count from 1\n", variable)
		os.Exit(2)
	}
	armed.after, armed.effect = when == "after", Effect(effect)
	armed.left.Store(n)
}

// Before dies with the effect still to come, if it is the one.
func Before(effect Effect) {
	if effect == armed.effect && !armed.after && armed.left.Add(-1) == 0 {
		die()
	}
}

// After dies once the effect was sent, if it is the one.
// The sender is the connection: an effect that still lies in its buffer has not happened.
func After(effect Effect, sender any) {
	if effect == armed.effect && armed.after && armed.left.Add(-1) == 0 {
		_ = sender.(interface{ Flush() error }).Flush() // as far as it gets
		die()
	}
}

func die() {
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way
}
