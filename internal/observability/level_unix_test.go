//go:build unix

package observability_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/afterwrite/afterwrite/internal/observability"
)

// said gives each line that is logged.
type said chan string

// Write implements io.Writer.
func (s said) Write(line []byte) (int, error) {
	s <- string(line)
	return len(line), nil
}

// Not beside others: a signal is for the whole process.
func TestASignalSwitchesTheDebugLevelOnAndOff(t *testing.T) {
	lines := make(said, 1)
	log := observability.NewLogger(lines, observability.LogOptions{Level: zap.WarnLevel})
	observability.LevelBySignal(t.Context(), log)
	var got []string
	for range 3 {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		if line := <-lines; !strings.Contains(line, "log level changed") {
			t.Errorf("said %s", line)
		}
		got = append(got, log.Level.String())
	}
	if diff := cmp.Diff([]string{"debug", "warn", "debug"}, got); diff != "" {
		t.Errorf("levels (-want +got):\n%s", diff)
	}
}
