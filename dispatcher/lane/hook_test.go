package lane

import (
	"testing"
	"time"
)

// idle is an observer that minds nothing.
type idle struct{ Observer }

func (idle) Breaker(string, string) {}

// hookWith is a hook of eight places of which so many are taken; if it was ever full, for that long.
func hookWith(now time.Time, taken int, full time.Duration) *hook {
	h := newHook("cap.hook", HookLimits{Places: 8}, idle{})
	h.taken = taken
	if full > 0 {
		h.fullSince = now.Add(-full)
	}
	return h
}

func TestReceiptsArePulledForTheFullestHookThatKeepsUp(t *testing.T) {
	now := time.Now()
	for name, row := range map[string]struct {
		hooks []*hook
		want  int
	}{
		"no hook":                        {nil, 100},
		"one hook, as its places":        {[]*hook{hookWith(now, 3, 0)}, 5},
		"the fullest of two":             {[]*hook{hookWith(now, 3, 0), hookWith(now, 6, 0)}, 2},
		"one just full holds the other":  {[]*hook{hookWith(now, 3, 0), hookWith(now, 8, time.Millisecond)}, 0},
		"one long full does not":         {[]*hook{hookWith(now, 3, 0), hookWith(now, 8, time.Second)}, 5},
		"nor does one that only drips":   {[]*hook{hookWith(now, 3, 0), hookWith(now, 7, time.Second)}, 5},
		"all slow, as the fullest":       {[]*hook{hookWith(now, 8, time.Second), hookWith(now, 7, time.Second)}, 0},
		"a slow hook alone, as it drips": {[]*hook{hookWith(now, 7, time.Second)}, 1},
	} {
		if got := receiptRoom(row.hooks, 100, now); got != row.want {
			t.Errorf("%s: room for %d, want %d", name, got, row.want)
		}
	}
}

func TestAHookKeepsUpAgainOnceMoreThanAQuarterOfItsPlacesIsFree(t *testing.T) {
	now := time.Now()
	h := newHook("cap.hook", HookLimits{Places: 8}, idle{})
	places := make([]place, 8)
	for i := range places {
		places[i], _ = h.take(now, true)
	}
	later := now.Add(time.Second)
	for i, wantSlow := range []bool{true, true, false} {
		places[i].release(nil)
		if h.slow(later) != wantSlow {
			t.Errorf("with %d places free, slow is %v", i+1, !wantSlow)
		}
	}
}
