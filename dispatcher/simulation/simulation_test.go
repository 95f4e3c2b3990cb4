package simulation

import (
	"bytes"
	"flag"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seed  = flag.Uint64("seed", 0, "run the history of this seed alone")
	seeds = flag.Uint64("seeds", 2000, "run this many histories")
	from  = flag.Uint64("from", 1, "begin with this seed")
)

// replay runs the history of a seed, changed by alter, and gives what failed.
func replay(t *testing.T, seed uint64, log io.Writer, alter func(*history)) (failures []string) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		s := byChance(newWorld(seed, nil))
		h := newHistory(seed, log, s)
		if alter != nil {
			alter(h)
		}
		h.play(1+h.w.rng.IntN(12), h.w.between(10*time.Second, 3*time.Minute))
		failures = h.w.failures
	})
	return failures
}

func TestHistories(t *testing.T) {
	if *seed != 0 {
		var log bytes.Buffer
		failures := replay(t, *seed, &log, nil)
		t.Log("\n" + log.String())
		for _, failure := range failures {
			t.Error(failure)
		}
		return
	}
	const side = 2
	for part := range uint64(side) {
		t.Run("part", func(t *testing.T) {
			t.Parallel()
			for s := *from + part; s < *from+*seeds; s += side {
				if failures := replay(t, s, nil, nil); len(failures) > 0 {
					t.Fatalf("seed %d: %s\nagain with: go test ./dispatcher/simulation -run TestHistories -seed %d -v", s, failures[0], s)
				}
			}
		})
	}
}
