package dispatcher

import (
	"fmt"
	"testing"

	"github.com/afterwrite/afterwrite/dispatcher/registry"
	"github.com/afterwrite/afterwrite/events"
)

func TestALaneHasRoomForTheHooksThatAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		hooks, inFlight, lanes, receipts int // given
		places, room                     int // wanted
	}{
		"one hook alone":             {hooks: 1, inFlight: 1024, lanes: 2, places: 512, room: 512},
		"one hook in one lane":       {hooks: 1, inFlight: 1024, lanes: 1, places: 512, room: 512},
		"two hooks in one lane":      {hooks: 2, inFlight: 512, lanes: 1, places: 384, room: 512},
		"sixteen hooks":              {hooks: 16, inFlight: 64, lanes: 2, places: 32, room: 512},
		"more lanes than calls":      {hooks: 1, inFlight: 2, lanes: 8, places: 1, room: 2},
		"more receipts are wanted":   {hooks: 2, inFlight: 4096, lanes: 2, receipts: 4000, places: 2048, room: 4000},
		"three hooks, four lanes":    {hooks: 3, inFlight: 341, lanes: 4, places: 85, room: 340},
		"two receipts, two hooks":    {hooks: 2, inFlight: 512, lanes: 2, receipts: 2, places: 1, room: 2},
		"fewer receipts are wanted":  {hooks: 2, inFlight: 512, lanes: 2, receipts: 8, places: 6, room: 8},
		"a single receipt, one hook": {hooks: 1, inFlight: 512, lanes: 2, receipts: 1, places: 1, room: 1},
	} {
		limits := map[events.HookID]registry.Limits{}
		for i := range tc.hooks {
			limits[fmt.Sprintf("hook_%d", i)] = registry.Limits{MaxInFlight: tc.inFlight}
		}
		o := Options{Registry: &registry.Installed{Limits: limits}, Lanes: tc.lanes, ReceiptsInFlight: tc.receipts}
		room, hooks := o.WithDefaults().laneLimits()
		if room != tc.room || hooks["hook_0"].Places != tc.places || len(hooks) != tc.hooks {
			t.Errorf("%s: %d receipts and %+v; want %d receipts and %d places", name, room, hooks, tc.room, tc.places)
		}
	}
}
