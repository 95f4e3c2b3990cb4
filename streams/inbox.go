package streams

import (
	"strings"
	"time"

	"github.com/afterwrite/afterwrite/events"
)

// DispatcherInbox is the prefix of every reply to a dispatcher. It is the dispatcher's own, so that permissions can
// keep everybody else from listening there.
func DispatcherInbox() string { return "_INBOX_PWH_DISPATCHER" }

// ScheduledAt is when the schedule of a message of [Retries] fires.
func ScheduledAt(h events.Header) (at time.Time, ok bool) {
	for _, value := range h[HeaderSchedule] {
		if text, isAt := strings.CutPrefix(value, "@at "); isAt {
			at, err := time.Parse(time.RFC3339Nano, text)
			return at, err == nil
		}
	}
	return time.Time{}, false
}
