package gc

import (
	"runtime/debug"
	"testing"
)

func TestTheEnvironmentSpeaksLast(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	for environment, want := range map[string]int{"": percent, "50": 100} {
		t.Setenv("GOGC", environment)
		debug.SetGCPercent(100)
		Tune()
		if got := debug.SetGCPercent(100); got != want {
			t.Errorf("with GOGC=%q a heap grows by %d %%, want %d", environment, got, want)
		}
	}
}
